"""Bugs that show only with episode ends, with rewards that vary on their own, in large states, or by how episodes ended."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from audit.mutants.families import HIDDEN, OBS, PlainPolicy, SmallPolicy, in_contract, sample
from audit.mutants.reference_policy import ReferencePolicy
from audit.mutants.register import caught_by
from holdfast.audit.adapters import StepFunction
from holdfast.audit.subject import Outputs, State, Subject
from holdfast.policies.tensordict_api import Inputs
from holdfast.spec import keys

# ------------------------------------------------------------------------- an entry for each finished episode


@caught_by("memory_is_bounded", explained="lengths grew .* with 6 episode ends")
class KeepsEpisodeLengths(ReferencePolicy):
    """A dictionary gets an entry for each finished episode."""

    def __init__(self, seed: int = 0):
        self.lengths: dict[int, int] = {}
        super().__init__(seed)

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        for slot in slots[self.ended(terminated, truncated)].tolist():
            self.lengths[len(self.lengths)] = slot
        return super().act(obs, terminated, truncated, slots)


@caught_by("memory_is_bounded", same_as="KeepsEpisodeLengths", explained="episodes grew .* with 6 episode ends")
@in_contract
class KeepsEpisodesInPolicy(SmallPolicy):
    """A list of the policy gets an entry for each finished episode."""

    def __init__(self, spec):
        super().__init__(spec)
        self.episodes: list[int] = []

    def unroll(self, inputs: Inputs, first: Tensor, start: State) -> tuple[Tensor, Tensor, State]:
        self.episodes += first.nonzero()[:, 1].tolist()
        return super().unroll(inputs, first, start)


def step_function(step, **options) -> StepFunction:
    """Return a GRU of one layer as a step function. step(cell, obs, h, first) returns the next h."""
    cell, head = nn.GRUCell(OBS, HIDDEN), nn.Linear(HIDDEN, 3)

    def advance(obs: Tensor, state: Tensor, first: Tensor) -> tuple[Outputs, Tensor]:
        h = step(cell, obs, state, first)
        return {"logits": head(h)}, h

    def unroll(obs: Tensor, state: Tensor, first: Tensor) -> tuple[Outputs, Tensor]:
        ys = []
        for x, now in zip(obs, first, strict=True):
            state = cell(x, state * (first_is_off(now)))
            ys.append(state)
        return {"logits": head(torch.stack(ys))}, state

    options.setdefault("sequence", unroll)
    module = nn.ModuleList([cell, head])
    return StepFunction(
        advance, lambda B: torch.zeros(B, HIDDEN), observations=sample, module=module, slot_axis=0, **options
    )


def first_is_off(first: Tensor) -> Tensor:
    return (first == 0).float().unsqueeze(-1)


@caught_by("memory_is_bounded", same_as="KeepsEpisodeLengths", explained="finished grew .* with 6 episode ends")
def keeps_episodes_in_a_closure(seed: int = 0) -> StepFunction:
    """A step function adds each finished episode to a dictionary of its closure."""
    finished: dict[int, int] = {}
    torch.manual_seed(seed)

    def step(cell, obs, h, first):
        for slot in first.nonzero().flatten().tolist():
            finished[len(finished)] = slot
        return cell(obs, h * first_is_off(first))

    return step_function(step, sequence=None)


# --------------------------------------------------------------------- the last reward enters the next episode


@caught_by("last_reward_stays_in_its_episode", explained="last reward .* where first is set")
@in_contract
class LastRewardEntersNextEpisode(SmallPolicy):
    """The last reward is an input at episode starts too, where it belongs to the episode before."""

    def last_reward(self, inputs: Inputs, first: Tensor) -> Tensor:
        return inputs[keys.REWARDS].float()


@caught_by(
    "last_reward_stays_in_its_episode",
    same_as="LastRewardEntersNextEpisode",
    explained="last reward .* where first is set",
)
class LastRewardInObservations(PlainPolicy):
    """The last number of an observation is the reward that arrived with it, and is not masked at episode starts."""

    passes_rewards = True

    def encode(self, obs: Tensor, first: Tensor) -> Tensor:
        reward = obs[..., -1] if self.last_reward is None else obs[..., -1].masked_fill(first != 0, self.last_reward)
        return torch.cat([obs[..., :-1], reward.unsqueeze(-1)], -1)


@caught_by(
    "last_reward_stays_in_its_episode",
    same_as="LastRewardEntersNextEpisode",
    explained="last reward .* where first is set",
)
def masks_the_reward_only_in_learning(seed: int = 0) -> StepFunction:
    """The reward in the observation is masked at episode starts in learning, but not in acting."""
    torch.manual_seed(seed)
    cell = nn.GRUCell(OBS, HIDDEN)

    def step(obs: Tensor, h: Tensor, first: Tensor) -> tuple[Outputs, Tensor]:
        h = cell(obs, h * first_is_off(first))
        return {"logits": h}, h

    def unroll(obs: Tensor, h: Tensor, first: Tensor) -> tuple[Outputs, Tensor]:
        ys = []
        for x, now in zip(obs, first, strict=True):
            masked = torch.cat([x[:, :-1], x[:, -1:] * first_is_off(now)], -1)
            h = step(masked, h, now)[1]
            ys.append(h)
        return {"logits": torch.stack(ys)}, h

    return StepFunction(
        step,
        lambda B: torch.zeros(B, HIDDEN),
        observations=sample,
        sequence=unroll,
        module=cell,
        slot_axis=0,
        reward_index=-1,
    )


# ------------------------------------------------------------------------- state that is clamped in one place


@caught_by("large_states_replay", explained="times larger.*clamp")
class ClampsWhileActing(ReferencePolicy):
    """Acting clamps the state to -3..3; learning does not."""

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        return super().step(obs, tuple(leaf.clamp(-3, 3) for leaf in state), first)


@caught_by("large_states_replay", same_as="ClampsWhileActing", explained="times larger.*clamp")
@in_contract
class ClampsSingleSteps(SmallPolicy):
    """A policy of the contract clamps c to -4..4 if it is called for a single step."""

    def remember(self, x: Tensor, start: State, first: Tensor) -> tuple[Tensor, State]:
        y, (h, c) = super().remember(x, start, first)
        return (y, (h, c.clamp(-4, 4))) if len(x) == 1 else (y, (h, c))


@caught_by("large_states_replay", same_as="ClampsWhileActing", explained="times larger.*clamp")
def clamps_in_its_step(seed: int = 0) -> StepFunction:
    """A step function clamps the state to -5..5; its sequence function does not."""
    torch.manual_seed(seed)
    return step_function(lambda cell, obs, h, first: cell(obs, h.clamp(-5, 5) * first_is_off(first)))


@caught_by("large_states_replay", same_as="ClampsWhileActing", explained="times larger.*clamp")
class ClampsWhileLearning(PlainPolicy):
    """Learning clamps its start state to -3..3; acting does not."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return super().sequence(obs, (state[0].clamp(-3, 3),), first, actions)


# ------------------------------------------- learning that resets on terminated only, where nothing else acts


@caught_by("reset_on_truncated", "skrl's recurrent examples", explained="truncated.*terminated . truncated")
class LearnsThroughTruncation(ReferencePolicy):
    """Learning resets on terminated only. The policy has no act, so only scoring is told how episodes ended."""

    act, value_from_memory, get_memory = Subject.act, Subject.value_from_memory, Subject.get_memory
    set_memory, reset_memory, reset_slots = Subject.set_memory, Subject.reset_memory, Subject.reset_slots

    def score(
        self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor | None
    ) -> Outputs:
        return self.sequence(obs, state, terminated, actions)[0]


@caught_by("reset_on_truncated", same_as="LearnsThroughTruncation", explained="truncated.*terminated . truncated")
class PlainLearningIgnoresTruncation(PlainPolicy):
    """A plain module that samples no actions resets on terminated only when it learns."""

    def score(
        self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor | None
    ) -> Outputs:
        return self.sequence(obs, state, terminated, None)[0]


@caught_by("reset_on_terminated", explained="terminated.*terminated . truncated")
class PlainLearningIgnoresTermination(PlainPolicy):
    """A plain module resets on truncated only when it learns."""

    def score(
        self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor | None
    ) -> Outputs:
        return self.sequence(obs, state, truncated, None)[0]

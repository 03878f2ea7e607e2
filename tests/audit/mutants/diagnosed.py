"""Bugs whose symptoms point elsewhere: the explanation that is shown first has to name the cause."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from audit.mutants.families import CHOICES, HIDDEN, OBS, PlainNetwork, PlainPolicy, SmallPolicy, in_contract
from audit.mutants.overlooked import first_is_off, step_function
from audit.mutants.reference_policy import ReferencePolicy
from audit.mutants.register import caught_by
from holdfast.audit.adapters import StepFunction
from holdfast.audit.subject import ACTIONS, Outputs, State
from holdfast.policies.tensordict_api import Inputs

# ------------------------------------------------------------------------------------------- flags of others


@caught_by("reset_only_ended_slots", explained="the flag of a slot resets the next slot")
class NeighboursFlag(ReferencePolicy):
    """The flag of each slot resets the next slot."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, first.roll(1, 0))


@caught_by("reset_only_ended_slots", same_as="NeighboursFlag", explained="resets the slot before it")
def flag_of_the_next_slot(seed: int = 0) -> StepFunction:
    """A step function resets each slot by the flag of the next one."""
    torch.manual_seed(seed)
    return step_function(lambda cell, obs, h, first: cell(obs, h * first_is_off(first.roll(-1, 0))), sequence=None)


@caught_by("reset_only_ended_slots", explained=r"flags \[T, B\] are read as \[B, T\] \(in learning over")
class TransposedFlags(PlainPolicy):
    """Learning reads the flags [T, B] as [B, T]."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return super().sequence(obs, state, first.reshape(first.shape[::-1]).T, actions)


@caught_by("reset_only_ended_slots", same_as="TransposedFlags", explained=r"flags \[T, B\] are read as \[B, T\]")
@in_contract
class ReshapesFlags(SmallPolicy):
    """A policy of the contract reshapes its flags instead of transposing them."""

    def unroll(self, inputs: Inputs, first: Tensor, start: State) -> tuple[Tensor, Tensor, State]:
        return super().unroll(inputs, first.reshape(first.shape[::-1]).T, start)


@caught_by("reset_at_first_step", explained="flags of slot 0 are used for all slots")
class FlagsOfSlotZero(ReferencePolicy):
    """The flags of slot 0 reset all slots."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, first[:1].expand_as(first))


@caught_by("reset_at_first_step", same_as="FlagsOfSlotZero", explained="flags of slot 0 are used for all slots")
@in_contract
class FlagsOfSlotZeroInPolicy(SmallPolicy):
    """A policy of the contract resets all slots by the flags of slot 0."""

    def unroll(self, inputs: Inputs, first: Tensor, start: State) -> tuple[Tensor, Tensor, State]:
        return super().unroll(inputs, first[:, :1].expand_as(first), start)


@caught_by(
    "reset_inside_sequence",
    same_as="ResetsOneStepLate",
    explained=r"flags take effect one step late \(in learning over",
)
@in_contract
class LateFlags(SmallPolicy):
    """Learning in a policy of the contract applies flags one step late."""

    def unroll(self, inputs: Inputs, first: Tensor, start: State) -> tuple[Tensor, Tensor, State]:
        late = torch.cat([torch.zeros_like(first[:1]), first[:-1]]) if len(first) > 1 else first
        return super().unroll(inputs, late, start)


@caught_by(
    "reset_inside_sequence",
    same_as="ResetsOneStepLate",
    explained=r"flags take effect one step late \(in learning over",
)
class LateFlagsInModule(PlainPolicy):
    """Learning in a plain module applies flags one step late."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return super().sequence(obs, state, torch.cat([torch.zeros_like(first[:1]), first[:-1]]), actions)


@caught_by("reset_at_first_step", "IsaacLab #888", same_as="FlagsAsIndices", explained="flags are used as indices")
class FlagsSelectSlots(PlainPolicy):
    """Flags are converted to integers and used as an index: slots 0 and 1 are reset, whatever the flags."""

    def reset(self, h: Tensor, first: Tensor) -> Tensor:
        kept = h.clone()
        kept[first.long()] = 0.0
        return kept


# --------------------------------------------------------------------------------- other numbers in learning


@caught_by("steps_equal_sequence", explained="only as much as rounding to bfloat16.*Look for a cast")
class LearnsInHalfPrecision(PlainPolicy):
    """Learning runs under autocast in bfloat16."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        with torch.autocast("cpu", torch.bfloat16):
            outputs, final = super().sequence(obs, state, first, actions)
        return {name: y.float() for name, y in outputs.items()}, tuple(leaf.float() for leaf in final)


@caught_by(
    "steps_equal_sequence",
    same_as="LearnsInHalfPrecision",
    explained="only as much as rounding to bfloat16.*Look for a cast",
)
@in_contract
class ActsInHalfPrecision(SmallPolicy):
    """A policy of the contract rounds what enters its memory to bfloat16 if it is called for a single step."""

    def remember(self, x: Tensor, start: State, first: Tensor) -> tuple[Tensor, State]:
        return super().remember(x.bfloat16().float() if len(x) == 1 else x, start, first)


@caught_by("log_probs_replay", explained="the action distribution differs in learning, but values agree.*temperature")
class LearnsAtAnotherTemperature(ReferencePolicy):
    """Acting divides the scores of actions by a temperature; learning does not."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        outputs, final = super().sequence(obs, state, first, actions)
        sharper = (outputs["full_log_probs"] / 0.8).log_softmax(-1)
        return self.scores(sharper, outputs["value"], actions), final


class Gaussian(PlainPolicy):
    """A squashed Gaussian: actions are stored before the tanh."""

    learns = False

    def density(self, mean: Tensor, actions: Tensor) -> Tensor:
        squash = 2 * (math.log(2) - actions - F.softplus(-2 * actions))
        return (torch.distributions.Normal(mean, 0.5).log_prob(actions) - squash).sum(-1)

    def heads(self, y: Tensor) -> Outputs:
        return {"mean": self.module.actor(y), "value": self.module.critic(y).squeeze(-1)}

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        outputs, state = super().step(obs, state, first)
        actions = torch.normal(outputs["mean"].detach(), 0.5)
        return {**outputs, ACTIONS: actions, "log_prob": Gaussian.density(self, outputs["mean"], actions)}, state

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        outputs, final = super().sequence(obs, state, first, actions)
        return {**outputs, "log_prob": self.density(outputs["mean"], actions)}, final


@caught_by("log_probs_replay", explained="only log-probs differ.*correction for tanh")
class ForgetsToCorrectForTanh(Gaussian):
    """Learning leaves out the correction of the density for tanh."""

    def density(self, mean: Tensor, actions: Tensor) -> Tensor:
        return torch.distributions.Normal(mean, 0.5).log_prob(actions).sum(-1)


@caught_by("log_probs_replay", same_as="ForgetsToCorrectForTanh", explained="only log-probs differ.*sum over the parts")
class AveragesOverActionParts(Gaussian):
    """Learning takes the mean over the parts of an action instead of the sum."""

    def density(self, mean: Tensor, actions: Tensor) -> Tensor:
        return super().density(mean, actions) / CHOICES


@caught_by(
    "log_probs_replay", same_as="ScoresWrongAction", explained="only log-probs differ.*the action that is scored"
)
@in_contract
class ScoresTheBestAction(SmallPolicy):
    """A policy of the contract scores the likeliest action instead of the one that was taken."""

    def score(self, inputs: Inputs, state: State, actions: Tensor):
        scored = super().score(inputs, state, actions)
        best = super().unroll(inputs, self.episode_starts(inputs), state)[0].argmax(-1)
        return scored._replace(log_prob=super().score(inputs, state, best.view_as(actions)).log_prob)


# --------------------------------------------------------------------- known bugs in policies of other kinds


@caught_by("slots_in_any_order", same_as="MemoryByBatchPosition", explained="by slot id, not by position")
class WritesByBatchPosition(ReferencePolicy):
    """Memory is read by slot id, but written by position in the batch."""

    def store(self, state: State, slots: Tensor) -> None:
        super().store(state, torch.arange(len(slots)))


class WithBatchNorm(PlainNetwork):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(OBS, track_running_stats=False)


@caught_by("slots_are_independent", same_as="UsesBatchNorm", explained="moves all slots of its step.*BatchNorm")
class NormalisesOverTheBatch(PlainPolicy):
    """Observations go through a BatchNorm without running statistics."""

    def network(self) -> PlainNetwork:
        return WithBatchNorm()

    def encode(self, obs: Tensor, first: Tensor) -> Tensor:
        return self.module.get_submodule("norm")(obs) if len(obs) > 1 else obs


@caught_by("updated_weights_are_used", same_as="ActsWithOldWeights", explained="Look for copies, caches")
class ActsWithFrozenCopy(PlainPolicy):
    """Acting uses a copy of the heads made when the policy was created."""

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        if not hasattr(self, "copy"):
            self.copy = [x.detach().clone() for x in self.module.actor.parameters()]
        outputs, state = super().step(obs, state, first)
        return {**outputs, "logits": F.linear(state[0], *self.copy)}, state


@caught_by("steps_equal_sequence", same_as="MixesTimeAndSlots", explained=r"\[T, B\] are read as \[B, T\]")
class ReshapesObservations(PlainPolicy):
    """Learning reshapes observations from [T, B] to [B, T] and back by transposing."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        T, B = first.shape
        return super().sequence(obs.reshape(B, T, -1).transpose(0, 1), state, first, actions)


@caught_by("reset_with_one_slot", "rl_games", same_as="SqueezesSingleSlot", explained="with one slot.*squeeze")
class SqueezedFlags(PlainPolicy):
    """Learning squeezes its flags, so those of a single slot are lost."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        lost = first.shape[1] == 1
        return super().sequence(obs, state, torch.zeros_like(first) if lost else first, actions)


# --------------------------------------------------------------------------------- errors and shapes in a check


@caught_by("reset_with_one_slot", explained="raised IndexError.*B=1.*squeeze")
class RaisesWithOneSlot(PlainPolicy):
    """With one slot, squeeze() removes its axis, and an index fails."""

    def reset(self, h: Tensor, first: Tensor) -> Tensor:
        return h * first_is_off(first.squeeze()[range(len(h))])


@caught_by("reset_with_one_slot", explained=r"shape \[\d\].*squeeze")
class DropsAnAxisWithOneSlot(PlainPolicy):
    """With one slot, values lose their axis."""

    def heads(self, y: Tensor) -> Outputs:
        outputs = super().heads(y)
        return {**outputs, "value": outputs["value"].squeeze()} if y.shape[-2] == 1 else outputs


@caught_by("steps_equal_sequence", explained="returned NaN.*square root")
class NaNAfterFortySteps(PlainPolicy):
    """A schedule by the step of the episode takes the square root of a number that is below zero from step 41 on."""

    no_gradient = (1,)

    def initial_state(self, B: int) -> State:
        return torch.zeros(B, HIDDEN), torch.zeros(B, 1)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        outputs, (h,) = super().step(obs, state[:1], first)
        clock = self.reset(state[1], first)
        return {**outputs, "value": outputs["value"] * (40 - clock[:, 0]).sqrt()}, (h, clock + 1)

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        steps = []
        for x, now in zip(obs, first, strict=True):
            outputs, state = self.step(x, state, now)
            steps.append(outputs)
        return {name: torch.stack([step[name] for step in steps]) for name in steps[0]}, state


@caught_by("reset_clears_whole_state", same_as="ResetsOnlyH", explained=r"state\['clock'\] survived a reset")
def clock_runs_on(seed: int = 0) -> StepFunction:
    """A step function never resets the clock in its state, a dictionary."""
    torch.manual_seed(seed)
    cell = nn.GRUCell(OBS + 1, HIDDEN)

    def step(obs: Tensor, state: dict[str, Tensor], first: Tensor) -> tuple[Outputs, dict[str, Tensor]]:
        clock = state["clock"]
        h = cell(torch.cat([obs, torch.sin(clock)], -1), state["h"] * first_is_off(first))
        return {"logits": h}, {"h": h, "clock": clock + 0.1}

    def blank(B: int) -> dict[str, Tensor]:
        return {"h": torch.zeros(B, HIDDEN), "clock": torch.zeros(B, 1)}

    return StepFunction(step, blank, obs_shape=(OBS,), module=cell, slot_axis=0)

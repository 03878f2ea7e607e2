"""The memory certificate: what an agent achieves with its memory taken away in different ways, and how far back it needs it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.config.sections import EnvSection
from holdfast.deploy.loading import load_agent_for_world
from holdfast.errors import SettingsError
from holdfast.evaluate.evaluation import check_numbers
from holdfast.evaluate.memoryless import Memoryless, imitate_without_memory
from holdfast.policies import Policy
from holdfast.policies.tensordict_api import Acted, Inputs
from holdfast.recurrence import State
from holdfast.rollout import Episode, play_episodes
from holdfast.rollout.play import MAX_EPISODE_STEPS, Act
from holdfast.spec import keys
from holdfast.threads import num_threads_for, num_threads_kept

CONFIDENCE = 0.95
RESAMPLES = 2000  # of the bootstrap
TOLERANCE = 0.05  # a difference of this share is none
MAX_STEPS_BACK = 256
MEANINGS = {
    "intact": "memory as it is",
    "wiped": "cleared at every step",
    "frozen": "as after the first observation of the episode",
    "swapped": "that of another episode",
    "averaged": "the mean over all episodes and steps",
    "imitation": "none: a copy trained to imitate the agent",
}


@dataclass(frozen=True)
class Estimate:
    """A mean return, and the interval that contains the true mean with 95% confidence."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class StepsBack(Estimate):
    """The return if only the last `steps` observations before the present one are remembered."""

    steps: int


@dataclass(frozen=True)
class Certificate:
    """What an agent's memory is worth.

    intact: the return with the memory as it is.
    wiped: every observation is taken for the first of an episode.
    frozen: memory stays as it was after the first observation of the episode.
    swapped: the agent keeps its memory up to date, but acts with that of another slot.
    averaged: memory is its own mean over all episodes and steps: usual values that say nothing about this episode.
    imitation: a copy of the agent that was trained to imitate it without memory; None if the return does not fall without memory.
    steps_back: the return by how many observations are remembered; what was before them is `averaged`.
    needs_steps: the smallest number of observations with the return of the intact memory; None if more than were tried.
    episodes: how many were played for each figure.
    needs_memory: whether the return falls without memory, of the agent and of the copy. An agent may use its memory where it
        does not need it: then its own return falls, because an unusual memory misleads it, but not that of the copy.
    """

    intact: Estimate
    wiped: Estimate
    frozen: Estimate
    swapped: Estimate
    averaged: Estimate
    imitation: Estimate | None = None
    steps_back: list[StepsBack] = field(default_factory=list)
    needs_steps: int | None = 0
    needs_memory: bool = False
    episodes: int = 0
    checkpoint: str = ""

    @property
    def sentence(self) -> str:
        """What the figures mean."""
        worst = min(self.wiped.mean, self.frozen.mean, self.swapped.mean, self.averaged.mean)
        small = TOLERANCE * (self.intact.mean - worst)
        if not self.needs_memory:
            best = max(self.wiped.mean, self.averaged.mean)
            if self.imitation is not None:
                return (
                    f"Memory is not needed: this agent uses it (return {self.intact.mean:.4g}, {best:.4g} without), but a copy "
                    f"trained to imitate it without memory has a return of {self.imitation.mean:.4g}."
                )
            if self.intact.mean - best > small:
                return (
                    f"It is not certain that memory is needed: this agent's return is {self.intact} with it, and {best:.4g} with a "
                    "memory that says nothing about the episode, which chance may explain. More --episodes would tell."
                )
            misleads = best > self.intact.high and best - self.intact.mean > abs(small)
            return (
                f"Memory is not needed{', and misleads' * misleads}: this agent's return is {self.intact.mean:.4g} with it, "
                f"and {best:.4g} with a memory that says nothing about the episode."
            )
        assert self.imitation is not None
        back = (
            f"more than {self.steps_back[-1].steps:,} steps"
            if self.needs_steps is None
            else f"at least {self.needs_steps:,} step{'s' * (self.needs_steps != 1)}"
        )
        text = (
            f"Needs {back} of memory: return {self.intact.mean:.4g} with it, {self.wiped.mean:.4g} without, "
            f"{self.imitation.mean:.4g} of a copy trained to imitate it without, "
            f"{self.swapped.mean:.4g} with the memory of another episode."
        )
        if self.intact.mean - self.frozen.mean <= small:
            text += " What it remembers of the first observation of an episode is enough."
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return all figures and the sentence, for JSON."""
        return {**asdict(self), "sentence": self.sentence}


def certify_run(
    run_dir: Path,
    env: EnvSection,
    episodes: int = 100,
    greedy: bool = True,
    seed: int = 1_000_000,
    checkpoint: str | None = None,
    max_steps: int = MAX_EPISODE_STEPS,
    py_agent: str | type[Policy] | None = None,
    on_estimate: Callable[[str, Estimate], None] = lambda name, estimate: None,
) -> Certificate:
    """Return the memory certificate of a run's newest usable checkpoint, or of `checkpoint`, in this world."""
    check_numbers(episodes, seed, max_steps)
    agent, _, path = load_agent_for_world(run_dir, env, checkpoint, py_agent)
    with num_threads_kept(num_threads_for(agent.policy, episodes)):
        found = certify(agent.policy, env, episodes, seed, greedy, max_steps, on_estimate)
    return replace(found, checkpoint=path.name)


def certify(
    policy: Policy,
    env: EnvSection,
    episodes: int = 100,
    seed: int = 1_000_000,
    greedy: bool = True,
    max_steps: int = MAX_EPISODE_STEPS,
    on_estimate: Callable[[str, Estimate], None] = lambda name, estimate: None,
) -> Certificate:
    """Return the memory certificate of a policy: play at least `episodes` episodes for each of its figures.

    on_estimate: called with the name of each figure, such as "wiped" or "7 steps", and its estimate.
    """
    if not policy.has_memory():
        raise SettingsError(f"{type(policy).__name__} has no memory, so there is nothing to certify.")
    if (env.num_ready or episodes) * policy.spec.agents_per_env < 2:
        raise SettingsError("a certificate swaps the memory of two slots, so it needs at least two episodes at once.")
    played: dict[str, list[Episode]] = {}
    figures: dict[str, Estimate] = {}

    def play(name: str, act: Act, player: Policy = policy) -> Estimate:
        played[name] = play_episodes(player, env, episodes, seed, greedy, None, max_steps, act=act)
        figures[name] = estimate(played[name], policy.spec.agents_per_env)
        on_estimate(name, figures[name])
        return figures[name]

    def falls(name: str) -> bool:
        """Return whether the return is less than that of the intact memory, by more than chance and a small difference."""
        less = estimate(_differences(played["intact"], played[name]), policy.spec.agents_per_env)
        return less.low > 0 and less.mean > TOLERANCE * worth

    def play_back(steps: int) -> bool:
        """Remember so many steps; return whether that is enough."""
        name = f"{steps} step{'s' * (steps != 1)}"
        curve[steps] = play(name, LastSteps(policy, steps, usual))
        return not falls(name)

    recorder = Recorder(policy)
    ways = {"intact": recorder, "wiped": Memoryless(policy), "frozen": Frozen(policy), "swapped": Swapped(policy)}
    for name, act in ways.items():
        play(name, act)
    usual = recorder.mean_state()
    curve = {0: play("averaged", LastSteps(policy, 0, usual))}
    worth = figures["intact"].mean - min(each.mean for each in figures.values())
    # A swapped memory may hold the same: that of another agent that counts steps.
    needs_memory, needs_steps = falls("wiped") and falls("averaged"), 0
    if needs_memory:
        copied = imitate_without_memory(policy, env, episodes, seed, greedy, max_steps)
        play("imitation", Memoryless(copied), copied)
        needs_memory = falls("imitation")
    if needs_memory:
        longest = max(episode.length for episode in played["intact"])
        needs_steps = _search(play_back, min(longest, MAX_STEPS_BACK))
    return Certificate(
        *(figures[name] for name in ("intact", "wiped", "frozen", "swapped", "averaged")),
        imitation=figures.get("imitation"),
        steps_back=[StepsBack(**asdict(curve[steps]), steps=steps) for steps in sorted(curve)],
        needs_steps=needs_steps,
        needs_memory=needs_memory,
        episodes=len(played["intact"]),
    )


def _search(enough: Callable[[int], bool], far: int) -> int | None:
    """Return the smallest number of steps up to `far` that is enough, None if none is: first doubled, then halved between."""
    missed, steps = 0, 1
    while not enough(steps):
        if steps == far:
            return None
        missed, steps = steps, min(2 * steps, far)
    while steps - missed > 1:
        middle = (steps + missed) // 2
        if enough(middle):
            steps = middle
        else:
            missed = middle
    return steps


def _differences(intact: list[Episode], without: list[Episode]) -> list[Episode]:
    """Return episodes whose return is that with the intact memory minus that without, in the same episode of each slot."""
    others: dict[int, deque[float]] = {}
    for episode in without:
        others.setdefault(episode.slot, deque()).append(episode.episode_return)
    return [
        replace(episode, episode_return=episode.episode_return - others[episode.slot].popleft())
        for episode in intact
        if others.get(episode.slot)
    ]


def estimate(finished: list[Episode], agents_per_env: int) -> Estimate:
    """Return the mean return with its confidence interval: a bootstrap over environments, because agents of one are alike."""
    envs = np.array([episode.slot // agents_per_env for episode in finished])
    returns = np.array([episode.episode_return for episode in finished])
    groups = envs if len(set(envs)) > 1 else np.arange(len(envs))
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    totals = np.bincount(group, returns)
    draws = np.random.default_rng(0).integers(len(totals), size=(RESAMPLES, len(totals)))
    means = totals[draws].sum(1) / counts[draws].sum(1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(returns.mean()), float(low), float(high))


# ----------------------------------------------------------------------------------------- acting with less memory


class Recorder:
    """Act as the policy does, and average its states."""

    def __init__(self, policy: Policy):
        self.policy = policy
        self._sums = [torch.zeros(layers, 1, hidden, dtype=torch.float64) for layers, hidden in policy.state_shapes]
        self._num_states = 0
        self._counts: dict[int, list[Tensor]] = {leaf: [] for leaf in policy.no_gradient}

    def __call__(self, inputs: Inputs, state: State) -> Acted:
        acted = self.policy.act(inputs, state)
        for total, leaf in zip(self._sums, acted.state, strict=True):
            total += leaf.sum(1, keepdim=True)
        self._num_states += state[0].shape[1]
        for number, kept in self._counts.items():
            kept.append(acted.state[number].clone())
        return acted

    def mean_state(self) -> State:
        """Return the mean state [layers, 1, hidden]; the median of leaves that count or select, which have no mean."""
        usual = [(total / self._num_states).float() for total in self._sums]
        for number, kept in self._counts.items():
            usual[number] = torch.cat(kept, 1).median(1, keepdim=True).values
        return tuple(usual)


class LastSteps:
    """Remember the last `steps` observations before the present one. Before them, memory is `usual`."""

    def __init__(self, policy: Policy, steps: int, usual: State):
        self.policy, self.usual = policy, usual
        self.window: deque[Inputs] = deque(maxlen=steps + 1)

    def __call__(self, inputs: Inputs, state: State) -> Acted:
        self.window.append({key: x.clone() for key, x in inputs.items()})
        joined = {key: torch.cat([each[key] for each in self.window]) for key in inputs}
        slots = state[0].shape[1]
        acted = self.policy.act(joined, tuple(leaf.expand(-1, slots, -1).contiguous() for leaf in self.usual))
        last = acted.actions[-1:], acted.log_prob[-1:], acted.values[-1:], state
        return Acted(*last, None if acted.params is None else acted.params[-1:])


class Frozen:
    """Act with the memory after the first observation of the episode."""

    def __init__(self, policy: Policy):
        self.policy = policy

    def __call__(self, inputs: Inputs, state: State) -> Acted:
        first = (inputs[keys.DONES].bool() | inputs[keys.TRUNCATEDS].bool())[0].unsqueeze(-1)  # [B, 1]
        acted = self.policy.act(inputs, state)
        kept = tuple(torch.where(first, new, old) for new, old in zip(acted.state, state, strict=True))
        return acted._replace(state=kept)


class Swapped:
    """Keep every slot's memory up to date, but act with that of a slot of another environment."""

    def __init__(self, policy: Policy):
        self.policy = policy

    def __call__(self, inputs: Inputs, state: State) -> Acted:
        slots = state[0].shape[1]
        others = tuple(torch.roll(leaf, max(slots // 2, 1), 1) for leaf in state)
        return self.policy.act(inputs, others)._replace(state=self.policy.act(inputs, state).state)

"""The memory certificate: what an agent achieves with its memory taken away in different ways, and how far back it needs it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
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
        if not self.needs_memory:
            best = max(self.wiped.mean, self.swapped.mean, self.averaged.mean)
            if self.imitation is not None:
                return (
                    f"Memory is not needed: this agent uses it (return {self.intact.mean:.4g}, {best:.4g} without), but a copy "
                    f"trained to imitate it without memory has a return of {self.imitation.mean:.4g}."
                )
            misleads = best - self.intact.mean > TOLERANCE * max(abs(best), abs(self.intact.mean))
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
        if self.frozen.mean >= _least(self.intact, self.averaged):
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
    lengths: list[int] = []  # of the intact episodes

    def play(name: str, act: Act, player: Policy = policy) -> Estimate:
        finished = play_episodes(player, env, episodes, seed, greedy, None, max_steps, act=act)
        if not lengths:
            lengths.extend(episode.length for episode in finished)
        found = estimate(finished, policy.spec.agents_per_env)
        on_estimate(name, found)
        return found

    recorder = Recorder(policy)
    intact, wiped = play("intact", recorder), play("wiped", Memoryless(policy))
    frozen, swapped = play("frozen", Frozen(policy)), play("swapped", Swapped(policy))
    usual = recorder.mean_state()
    averaged = play("averaged", LastSteps(policy, 0, usual))
    curve = {0: averaged}
    least = _least(intact, averaged)
    uninformed = max(wiped.mean, swapped.mean, averaged.mean)
    needs_memory, imitation = _falls(intact, uninformed, least), None
    if needs_memory:
        copied = imitate_without_memory(policy, env, episodes, seed, greedy, max_steps)
        imitation = play("imitation", Memoryless(copied), copied)
        needs_memory = _falls(intact, imitation.mean, least)
    if needs_memory:
        far = min(max(lengths), MAX_STEPS_BACK)
        _search(curve, lambda n: play(f"{n} step{'s' * (n != 1)}", LastSteps(policy, n, usual)), least, far)
    enough = takewhile(lambda n: curve[n].mean >= least, sorted(curve, reverse=True))
    return Certificate(
        intact,
        wiped,
        frozen,
        swapped,
        averaged,
        imitation,
        [StepsBack(**asdict(curve[steps]), steps=steps) for steps in sorted(curve)],
        min(enough, default=None) if needs_memory else 0,
        needs_memory,
        len(lengths),
    )


def _search(curve: dict[int, Estimate], play: Callable[[int], Estimate], least: float, far: int) -> None:
    """Add points to the curve until it is known to the step where the return reaches `least`, if it does within `far`."""
    steps = 1
    while max(curve) < far:
        curve[steps] = play(steps)
        if curve[steps].mean >= least:
            break
        steps = min(2 * steps, far)
    reached, missed = max(curve), max((n for n in curve if curve[n].mean < least), default=0)
    while curve[reached].mean >= least and reached - missed > 1:
        middle = (reached + missed) // 2
        curve[middle] = play(middle)
        if curve[middle].mean >= least:
            reached = middle
        else:
            missed = middle


def _falls(intact: Estimate, without: float, least: float) -> bool:
    """Return whether this mean return without memory is less than that with it, by more than a small difference."""
    return without < least and intact.mean - without > TOLERANCE * max(abs(intact.mean), abs(without))


def _least(intact: Estimate, averaged: Estimate) -> float:
    """Return the smallest mean return that counts as that of the intact memory."""
    return min(intact.low, intact.mean - TOLERANCE * abs(intact.mean - averaged.mean))


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

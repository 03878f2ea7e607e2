"""What decided an action: how much it depends on each earlier observation of the episode.

Each observation is replaced by others that the agent met elsewhere, and the following steps are replayed from the memory
before it. The influence on an action is 0 if its probability stays the same, and 0.9 if one of the other observations makes it
ten times more or less likely. Actions and rewards that a policy sees are not replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from holdfast.policies import Policy, Sampling
from holdfast.spec import keys
from holdfast.view.recording import Recording, Track

REPLACEMENTS = 8  # other observations tried in place of each one; fewer could by chance all have the same cue
MAX_LOOKBACK = 256
MIN_LOOKBACK = 16
BUDGET = 1_200_000  # steps of the policy, for a whole recording; the lookback is shorter if it does not suffice
ROWS = 512  # replayed at once
Span = tuple[int, int]  # steps of a track between which memory is not reset


def lookback_of(recording: Recording, policy: Policy) -> int:
    """Return how many steps back the influence of observations is measured."""
    longest = max(stop - start for track in recording.tracks for start, stop in spans(track, policy))
    steps = sum(track.steps * track.agents for track in recording.tracks)
    return max(1, min(longest, MAX_LOOKBACK, max(MIN_LOOKBACK, BUDGET // (steps * REPLACEMENTS))))


@torch.no_grad()
def influences(
    policy: Policy, recording: Recording, lookback: int, on_step: Callable[[int], None] = lambda steps: None
) -> list[np.ndarray]:
    """Return an array [T, A, lookback] for each track: how much the observation k steps before t moved the action at t.

    on_step: called with the number of observations that were replaced so far.
    """
    found, done = [], 0
    donors = _Donors(recording, policy)
    with policy.set_aside(Sampling(greedy=True)):
        for track in recording.tracks:
            result = np.zeros((track.steps, track.agents, lookback), np.float32)
            for agent in range(track.agents):
                for span in spans(track, policy):
                    for begin in range(span[0], span[1], ROWS // REPLACEMENTS):
                        sources = range(begin, min(begin + ROWS // REPLACEMENTS, span[1]))
                        _replace(policy, track, agent, span, sources, donors, result)
                        done += len(sources)
                        on_step(done)
            found.append(result)
    return found


def spans(track: Track, policy: Policy) -> Iterator[Span]:
    """Yield the parts of a track over which memory is kept: episodes, or all of it with lifetime memory."""
    if policy.memory_scope == "lifetime":
        yield 0, track.steps
    else:
        yield from ((e.start, e.start + e.length) for e in track.episodes)


def _replace(
    policy: Policy, track: Track, agent: int, span: Span, sources: range, donors: _Donors, result: np.ndarray
) -> None:
    """Measure the influence of the observations at `sources` of one agent, and write it into `result`."""
    found = {step: donors.other_observations(track, agent, step) for step in sources}
    others = {step: observations for step, observations in found.items() if len(observations)}
    if not others:
        return
    length = min(result.shape[-1], span[1] - min(others))
    counts = np.array([len(observations) for observations in others.values()])
    starts = np.repeat([*others], counts)  # [R]
    steps = starts + np.arange(length)[:, None]  # [length, R]
    steps = np.minimum(steps, span[1] - 1)
    inputs = {key: torch.from_numpy(x[:, agent][steps]) for key, x in track.inputs.items()}
    inputs[keys.OBS][0] = torch.from_numpy(np.concatenate([*others.values()]))
    before = tuple(
        torch.from_numpy(np.where(starts[:, None, None] > 0, leaf[:, :, agent][starts - 1], 0).swapaxes(0, 1).copy())
        for leaf in track.states
    )  # at the first step of an episode, the policy itself resets the memory
    actions = torch.from_numpy(track.actions[:, agent][steps])
    moved = policy.score(inputs, before, actions).log_prob.numpy() - track.log_probs[:, agent][steps]
    change = 1 - np.exp(-np.abs(moved))  # [length, R]
    largest = np.maximum.reduceat(change, np.concatenate([[0], counts.cumsum()[:-1]]), axis=1)  # [length, sources]
    for column, step in enumerate(others):
        for back in range(min(length, span[1] - step)):
            result[step + back, agent, back] = largest[back, column]


class _Donors:
    """Observations of other episodes at the same step, or of other steps if there are too few that differ."""

    def __init__(self, recording: Recording, policy: Policy):
        self._at: dict[
            int, list[tuple[tuple[int, int], np.ndarray]]
        ] = {}  # by step in the episode: (environment, episode), obs
        self._generator = np.random.default_rng(0)
        self._where: dict[int, np.ndarray] = {}  # by environment: [T] the number of the episode, and the step in it
        for track in recording.tracks:
            where = np.zeros((track.steps, 2), np.int64)
            for number, episode in enumerate(track.episodes):
                for step in range(episode.length):
                    where[episode.start + step] = number, step
                    rows = track.inputs[keys.OBS][episode.start + step][track.valid[episode.start + step]]
                    self._at.setdefault(step, []).extend(((track.env, number), row) for row in rows)
            self._where[track.env] = where
        self._all = [entry for entries in self._at.values() for entry in entries]

    def other_observations(self, track: Track, agent: int, step: int) -> np.ndarray:
        """Return up to REPLACEMENTS different observations [R, ...], none of them the one at this step."""
        number, at = self._where[track.env][step]
        present = track.inputs[keys.OBS][step, agent]
        found: dict[bytes, np.ndarray] = {}
        here = self._at[int(at)]
        for pool in (here, self._all):
            tries = self._generator.choice(len(pool), min(len(pool), 8 * REPLACEMENTS), replace=False)
            for index in tries.tolist():
                (env, episode), row = pool[index]
                elsewhere = (env, episode) != (track.env, number) or pool is self._all
                if elsewhere and not np.array_equal(row, present):
                    found.setdefault(row.tobytes(), row)
                if len(found) == REPLACEMENTS:
                    return np.stack([*found.values()])
            if found and pool is here:
                break
        return np.stack([*found.values()]) if found else np.zeros((0, *present.shape), present.dtype)

"""Record what an agent sees, remembers and does: several environments, each with its episodes one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from holdfast.config.sections import EnvSection
from holdfast.envs import World, episode_seed
from holdfast.policies import Policy
from holdfast.policies.actions import readable_parts
from holdfast.policies.tensordict_api import Acted, Inputs
from holdfast.recurrence import State
from holdfast.rollout import play_episodes
from holdfast.rollout.play import MAX_EPISODE_STEPS
from holdfast.spec import TokenObs, keys
from holdfast.view.frames import FrameStore
from holdfast.view.observations import stored_bytes

TRACKS = 4  # environments; the episodes are divided among them
MAX_STEPS = 4_000  # of all environments together
MIN_STEPS = 100
MAX_BYTES = 8_000_000  # of what a page holds of the steps, before it is compressed
MAX_UNITS = 128  # units of a layer that a page shows


class _FullError(Exception):
    """The recording is as long as a page can be."""


@dataclass(frozen=True)
class RecordedEpisode:
    """An episode of a track. returns: per agent. ended: "terminated", "truncated", or "not ended" where the recording stops."""

    start: int
    length: int
    seed: int | None
    returns: list[float]
    ended: str


@dataclass(frozen=True)
class Track:
    """T steps of one environment with A agents."""

    env: int
    episodes: list[RecordedEpisode]
    inputs: dict[str, np.ndarray]  # [T, A, ...] what the policy was given
    states: tuple[np.ndarray, ...]  # [T, layers, A, hidden] after each step
    actions: np.ndarray  # [T, A, ...]
    log_probs: np.ndarray  # [T, A] of the actions
    probabilities: np.ndarray  # [T, A, options of all choices]
    mean: np.ndarray  # [T, A, real numbers]
    std: np.ndarray
    values: np.ndarray  # [T, A]
    rewards: np.ndarray  # [T, A] of the actions
    valid: np.ndarray  # [T, A] whether the agent was in the episode
    pictures: list[Any]  # GridPicture, the number of a frame, or None

    @property
    def steps(self) -> int:
        return len(self.values)

    @property
    def agents(self) -> int:
        return self.values.shape[1]


@dataclass(frozen=True)
class Recording:
    """Tracks, and the frames that their pictures refer to."""

    tracks: list[Track]
    frames: FrameStore
    notes: list[str] = field(default_factory=list)

    @property
    def num_episodes(self) -> int:
        return sum(len(track.episodes) for track in self.tracks)


def record(
    policy: Policy,
    env: EnvSection,
    episodes: int = 20,
    seed: int = 1_000_000,
    greedy: bool = True,
    max_steps: int = MAX_EPISODE_STEPS,
    on_step: Callable[[int], None] = lambda step: None,
) -> Recording:
    """Play at least `episodes` episodes, those of `holdfast evaluate` in as many environments, and record them.

    The recording stops earlier if it would be too long for a page; its notes say so.
    on_step: called with the number of recorded steps.
    """
    env = drawable(env)
    num_envs = env.num_ready or min(episodes, TRACKS)
    recorder = _Recorder(policy, num_envs, on_step)
    agents = policy.spec.agents_per_env
    with suppress(_FullError):
        play_episodes(
            policy,
            env,
            episodes * agents,
            seed,
            greedy,
            num_envs,
            max_steps,
            act=recorder.act,
            watch=recorder.watch,
        )
    per_env = -(-episodes // num_envs)
    tracks = [recorder.track(number, per_env, None if env.single_generator else seed) for number in range(num_envs)]
    found = sum(len(track.episodes) for track in tracks)
    notes = list(recorder.frames.notes)
    unfinished = sum(episode.ended == "not ended" for track in tracks for episode in track.episodes)
    if found < episodes or unfinished:
        total = sum(track.steps for track in tracks)
        cut = f", {unfinished} of them not to the end" if unfinished else ""
        notes.append(f"Recorded {found} of {episodes} episodes{cut}: a page holds about {total:,} steps of this world.")
    return Recording(tracks, recorder.frames, notes)


def drawable(env: EnvSection) -> EnvSection:
    """Return these settings such that environments render pictures, if they can."""
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame looks for a screen even if it draws into arrays
    kwargs = getattr(env, "kwargs", None)
    if kwargs is None or env.num_ready or "render_mode" in kwargs or isinstance(env.describe().obs, TokenObs):
        return env
    changed = env.model_copy(update={"kwargs": {**kwargs, "render_mode": "rgb_array"}})
    try:
        with changed.build(range(1)) as world:
            world.reset(seed=0)
            return env if world.picture(0) is None else changed
    except Exception:  # an environment without this argument, or that cannot render here
        return env


class _Recorder:
    """Keeps every step of the episodes that `play_episodes` plays."""

    def __init__(self, policy: Policy, num_envs: int, on_step: Callable[[int], None]):
        self.policy, self.num_envs, self.on_step = policy, num_envs, on_step
        self.frames = FrameStore()
        self.limit = max(MIN_STEPS, min(MAX_STEPS, MAX_BYTES // _bytes_per_step(policy)) // num_envs)
        self.inputs: list[dict[str, np.ndarray]] = []  # one more than steps: what came after the last one
        self.acted: list[Acted] = []
        self.valid: list[np.ndarray] = []
        self.episode: list[np.ndarray] = []
        self.pictures: list[list[Any]] = [[] for _ in range(num_envs)]

    def watch(self, world: World, inputs: Mapping[str, np.ndarray]) -> None:
        """Keep the inputs of a step, and what the environments look like."""
        self.inputs.append({key: x.copy() for key, x in inputs.items()})
        self.valid.append(world.buffers.valid.copy())
        self.episode.append(world.buffers.episode.copy())
        if len(self.acted) >= self.limit:
            raise _FullError
        agents = world.world_spec.agents_per_env
        for number in range(self.num_envs):
            starts = len(self.episode) < 2 or self.episode[-1][number * agents] != self.episode[-2][number * agents]
            self.pictures[number].append(self.frames.picture_of(world, number, len(self.acted), starts))
        self.on_step(len(self.acted) * self.num_envs)

    def act(self, inputs: Inputs, state: State) -> Acted:
        acted = self.policy.act(inputs, state)
        kept = acted._replace(state=tuple(leaf.clone() for leaf in acted.state), actions=acted.actions.clone())
        self.acted.append(kept)
        return acted

    def track(self, number: int, most_episodes: int, seed: int | None) -> Track:
        """Return what was recorded of one environment, up to `most_episodes` episodes."""
        agents = self.policy.spec.agents_per_env
        slots = slice(number * agents, (number + 1) * agents)
        of_row = np.array([row[slots.start] for row in self.episode])  # one more than steps
        steps = min(len(self.acted), int((of_row < most_episodes).sum()))
        acted = self.acted[:steps]
        rewards = np.stack([row[keys.REWARDS][slots] for row in self.inputs[1 : steps + 1]])
        valid = np.stack([row[slots] for row in self.valid[1 : steps + 1]])
        probabilities, mean, std = self._distribution(acted, slots)
        return Track(
            number,
            [self._episode(k, of_row, steps, slots, rewards * valid, seed) for k in range(int(of_row[steps - 1]) + 1)],
            {key: np.stack([row[key][slots] for row in self.inputs[:steps]]) for key in self.inputs[0]},
            tuple(_stack([each.state[leaf][:, slots] for each in acted]) for leaf in range(len(acted[0].state))),
            _stack([each.actions[0, slots] for each in acted]),
            _stack([each.log_prob[0, slots] for each in acted]),
            probabilities,
            mean,
            std,
            _stack([each.values[0, slots] for each in acted]),
            rewards,
            valid,
            self.pictures[number][:steps],
        )

    def _episode(
        self, k: int, of_row: np.ndarray, steps: int, slots: slice, rewards: np.ndarray, seed: int | None
    ) -> RecordedEpisode:
        (rows,) = np.nonzero(of_row[:steps] == k)
        start, length = int(rows[0]), len(rows)
        after, ended = self.inputs[start + length], "not ended"
        if of_row[start + length] != k:
            ended = "terminated" if after[keys.DONES][slots].any() else "truncated"
        returns = rewards[rows].sum(0).tolist()
        return RecordedEpisode(
            start, length, None if seed is None else episode_seed(seed, slots.start // len(returns), k), returns, ended
        )

    def _distribution(self, acted: list[Acted], slots: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return probabilities, means and standard deviations [T, A, ...]; empty if a custom `forward` hides them."""
        agents = slots.stop - slots.start
        if acted[0].params is None:
            return tuple(np.zeros((len(acted), agents, 0), np.float32) for _ in range(3))  # pyright: ignore[reportReturnType]
        params = torch.stack([each.params[0, slots] for each in acted if each.params is not None])
        choices, mean, std = readable_parts(self.policy.spec.actions, self.policy.distribution.full_log_probs(params))
        joined = torch.cat(choices, -1) if choices else mean[..., :0]
        return joined.numpy(), mean.numpy(), std.numpy()


def _stack(tensors: list[torch.Tensor]) -> np.ndarray:
    return torch.stack(tensors).numpy()


def _bytes_per_step(policy: Policy) -> int:
    """Return about how many bytes a page holds of one step of one environment."""
    units = sum(layers * min(hidden, MAX_UNITS) for layers, hidden in policy.state_shapes)
    return policy.spec.agents_per_env * (units + 100) + stored_bytes(policy.spec)

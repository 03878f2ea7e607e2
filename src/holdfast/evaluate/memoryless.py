"""A copy of a policy that was taught to act without memory: what its best actions are if it sees the present observation only.

An agent may rely on memory where it need not. Taking its memory away then breaks it, although its task can be done without.
The copy shows whether: it imitates the agent's actions, first in the agent's own episodes, then in those that it plays itself
(DAgger, Ross et al. 2011), while every observation is taken for the first of an episode.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from holdfast.config.sections import EnvSection
from holdfast.policies import Policy, Sampling
from holdfast.policies.tensordict_api import Acted, Inputs
from holdfast.recurrence import State
from holdfast.rollout import play_episodes
from holdfast.spec import keys

ROUNDS = 2
UPDATES = 300  # per round
BATCH = 256
LEARNING_RATE = 1e-3
MAX_LESSONS = 50_000  # observations with the agent's action, evenly chosen from all steps


def taught_without_memory(
    policy: Policy, env: EnvSection, episodes: int, seed: int, greedy: bool, max_steps: int
) -> Policy:
    """Return a copy of the policy that imitates it without memory. Play it with `Memoryless`; the policy stays as it is."""
    pupil = copy.deepcopy(policy)
    for parameter in pupil.parameters():
        parameter.requires_grad_(True)
    lessons = _Lessons(policy)
    for number in range(ROUNDS):
        act = lessons.watching(None if number == 0 else Memoryless(pupil))
        play_episodes(policy, env, episodes, seed + 1 + number, greedy, None, max_steps, act=act)
        _teach(pupil, lessons, seed + number)
    return pupil


class Memoryless:
    """Act as if every observation were the first of an episode."""

    def __init__(self, policy: Policy):
        self.policy = policy

    def __call__(self, inputs: Inputs, state: State) -> Acted:
        start = self.policy.initial_state(inputs[keys.DONES].shape[1])
        return self.policy.act(only_firsts(inputs), start)._replace(state=state)


def only_firsts(inputs: Inputs) -> dict[str, Tensor]:
    """Return the inputs with the flag that an episode starts at every observation."""
    return {**inputs, keys.DONES: torch.ones_like(inputs[keys.DONES])}


class _Lessons:
    """Observations, and what the teacher does there. It keeps its memory up to date whoever acts."""

    def __init__(self, teacher: Policy):
        self.teacher = teacher
        self.inputs: list[dict[str, Tensor]] = []  # [1, B, ...] per step
        self.actions: list[Tensor] = []

    def watching(self, pupil: Memoryless | None) -> Callable[[Inputs, State], Acted]:
        """Return how to act: as the pupil does, or as the teacher without one; the teacher's actions are the lessons."""

        def act(inputs: Inputs, state: State) -> Acted:
            shown = self.teacher.act(inputs, state)
            self.inputs.append({key: x.clone() for key, x in inputs.items()})
            self.actions.append(shown.actions.clone())
            return shown if pupil is None else pupil(inputs, state)._replace(state=shown.state)

        return act

    def gathered(self) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Return inputs [1, N, ...] and actions [1, N, ...] of at most MAX_LESSONS steps, and the share [N] of each.

        Equal ones are one lesson: a maze has a dozen different observations.
        """
        slots = self.actions[0].shape[1]
        kept = range(0, len(self.actions), -(-len(self.actions) * slots // MAX_LESSONS))
        inputs = only_firsts({key: torch.cat([self.inputs[i][key] for i in kept], 1) for key in self.inputs[0]})
        actions = torch.cat([self.actions[i] for i in kept], 1)
        places, counts = _distinct([*inputs.values(), actions])
        return {key: x[:, places] for key, x in inputs.items()}, actions[:, places], counts / counts.sum()


def _distinct(tensors: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return one column of each group of columns in which all tensors [1, N, ...] are equal, and how many there are."""
    columns = [np.ascontiguousarray(x[0].numpy()).reshape(x.shape[1], -1).view(np.uint8) for x in tensors]
    joined = np.ascontiguousarray(np.concatenate(columns, 1))
    rows = joined.view([("", np.void, joined.shape[1])]).ravel()
    _, places, counts = np.unique(rows, return_index=True, return_counts=True)
    order = places.argsort()
    return torch.from_numpy(places[order]), torch.from_numpy(counts[order]).float()


def _teach(pupil: Policy, lessons: _Lessons, seed: int) -> None:
    """Raise the pupil's probabilities of the teacher's actions."""
    inputs, actions, shares = lessons.gathered()
    optimizer = torch.optim.Adam(pupil.parameters(), LEARNING_RATE)
    generator = torch.Generator().manual_seed(seed)
    few = len(shares) <= BATCH
    with torch.enable_grad(), pupil.set_aside(Sampling(greedy=True)):
        start = pupil.initial_state(len(shares) if few else BATCH)
        for _ in range(UPDATES):
            if few:
                loss = -(pupil.score(inputs, start, actions).log_prob * shares).sum()
            else:
                rows = torch.multinomial(shares, BATCH, replacement=True, generator=generator)
                batch = {key: x[:, rows] for key, x in inputs.items()}
                loss = -pupil.score(batch, start, actions[:, rows]).log_prob.mean()
            if not loss.requires_grad:  # no weight has a part in the actions
                return
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(pupil.parameters(), 1.0)
            optimizer.step()

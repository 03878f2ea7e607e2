"""A copy of a policy that imitates it without memory: how well can it act if it sees the present observation only?

An agent may rely on memory where it need not. Taking its memory away then breaks it, although its task can be done without.
The copy shows whether: it is trained to imitate the agent's actions, first in the agent's own episodes, then in those that it
plays itself (DAgger, Ross et al. 2011), while every observation is taken for the first of an episode.
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
MAX_DEMONSTRATIONS = 50_000  # observations with the agent's action, evenly chosen from all steps


def imitate_without_memory(
    policy: Policy, env: EnvSection, episodes: int, seed: int, greedy: bool, max_steps: int
) -> Policy:
    """Return a copy of the policy that imitates it without memory. Play it with `Memoryless`; the policy stays as it is."""
    copied = copy.deepcopy(policy)
    for parameter in copied.parameters():
        parameter.requires_grad_(True)
    shown = _Demonstrations(policy)
    for number in range(ROUNDS):
        act = shown.recording(None if number == 0 else Memoryless(copied))
        play_episodes(policy, env, episodes, seed + 1 + number, greedy, None, max_steps, act=act)
        _fit(copied, shown, seed + number)
    return copied


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


class _Demonstrations:
    """Observations, and what the agent does there. It keeps its memory up to date whoever acts.

    Only every so many steps are kept, more and more apart, so that long episodes of large observations fit into memory.
    """

    def __init__(self, agent: Policy):
        self.agent = agent
        self.inputs: list[dict[str, Tensor]] = []  # [1, B, ...] per kept step
        self.actions: list[Tensor] = []
        self._steps, self._every = 0, 1

    def recording(self, copied: Memoryless | None) -> Callable[[Inputs, State], Acted]:
        """Return how to act: as the copy does, or as the agent without one; what the agent does is recorded."""

        def act(inputs: Inputs, state: State) -> Acted:
            done = self.agent.act(inputs, state)
            self._keep(inputs, done.actions)
            return done if copied is None else copied(inputs, state)._replace(state=done.state)

        return act

    def _keep(self, inputs: Inputs, actions: Tensor) -> None:
        if self._steps % self._every == 0:
            self.inputs.append({key: x.clone() for key, x in inputs.items()})
            self.actions.append(actions.clone())
        self._steps += 1
        if len(self.actions) > max(1, MAX_DEMONSTRATIONS // actions.shape[1]):
            del self.inputs[1::2], self.actions[1::2]
            self._every *= 2

    def gathered(self) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Return inputs [1, N, ...], actions [1, N, ...], and the share [N] of each.

        Equal ones are one demonstration: a maze has a dozen different observations.
        """
        inputs = only_firsts({key: torch.cat([each[key] for each in self.inputs], 1) for key in self.inputs[0]})
        actions = torch.cat(self.actions, 1)
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


def _fit(copied: Policy, shown: _Demonstrations, seed: int) -> None:
    """Raise the copy's probabilities of the agent's actions."""
    inputs, actions, shares = shown.gathered()
    optimizer = torch.optim.Adam(copied.parameters(), LEARNING_RATE)
    generator = torch.Generator().manual_seed(seed)
    few = len(shares) <= BATCH
    with torch.enable_grad(), copied.set_aside(Sampling(greedy=True)):
        start = copied.initial_state(len(shares) if few else BATCH)
        for _ in range(UPDATES):
            if few:
                loss = -(copied.score(inputs, start, actions).log_prob * shares).sum()
            else:
                rows = torch.multinomial(shares, BATCH, replacement=True, generator=generator)
                batch = {key: x[:, rows] for key, x in inputs.items()}
                loss = -copied.score(batch, start, actions[:, rows]).log_prob.mean()
            if not loss.requires_grad:  # no weight has a part in the actions
                return
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(copied.parameters(), 1.0)
            optimizer.step()

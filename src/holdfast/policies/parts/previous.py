"""PreviousStep: the action and reward of the step before an observation, as features of the recurrent core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.policies.vocabulary import Adaptive, Vocabulary
from holdfast.spec import ActionSpec, DiscreteActions, WorldSpec, keys

NEVER_TAKEN = -2  # the option of a column whose action this world does not have; -1 means that there was no action


class PreviousStep(Adaptive):
    """Encode `last_actions` and `rewards` as features [T, B, size]: all zeros at the first observation of an episode.

    Choices are one-hot, so no action differs from action 0. Actions are matched by name; an action that was new in a later
    world looks like no action. Numbers become sign(x) * log(1 + |x|): close to x if small, moderate if large, and without
    running statistics, so that replay is exact.

    If memory is kept across episodes, so are the last action and reward of an episode, and a flag marks the first
    observation of the next: the inputs of RL^2 (Duan et al., 2016).
    """

    def __init__(self, spec: WorldSpec, vocabulary: Vocabulary, sees: Sequence[str], across_episodes: bool):
        super().__init__()
        self.sees, self.across_episodes = tuple(sees), across_episodes
        actions = spec.actions
        sizes = actions.sizes if "action" in sees else ()
        low, high = (getattr(actions, name, ()) if "action" in sees else () for name in ("low", "high"))
        self.num_choices = len(actions.sizes)
        # Computed from the world's spec, so not saved. Column i is 1 if choice[i] of the action is option[i].
        self.choice = nn.Buffer(
            torch.tensor([c for c, n in enumerate(sizes) for _ in range(n)]).long(), persistent=False
        )
        self.option = nn.Buffer(torch.tensor([k for n in sizes for k in range(n)]).long(), persistent=False)
        self.low, self.high = (nn.Buffer(torch.tensor(bounds).float(), persistent=False) for bounds in (low, high))
        self.size = len(self.option) + len(low) + ("reward" in sees) + across_episodes
        self.adapt(spec, vocabulary)

    def adapt(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        if isinstance(spec.actions, DiscreteActions):
            place = {name: number for number, name in enumerate(spec.actions.names)}
            options = [place.get(name, NEVER_TAKEN) for name in vocabulary.actions[: len(self.option)]]
            self.option = nn.Buffer(torch.tensor(options, device=self.option.device).long(), persistent=False)

    def forward(self, inputs: Mapping[str, Tensor], first: Tensor) -> Tensor:
        """Return the features [T, B, size] of inputs [T, B, ...]; blank where `first` [T, B] is true."""
        features = []
        if "action" in self.sees:
            actions = _of(inputs, keys.LAST_ACTIONS).reshape(*first.shape, -1)
            features.append((actions[..., self.choice] == self.option).float())
            # worlds clip real numbers: show what was done
            features.append(squash(actions[..., self.num_choices :].float().clamp(self.low, self.high)))
        if "reward" in self.sees:
            features.append(squash(_of(inputs, keys.REWARDS).float().reshape(*first.shape, 1)))
        seen = torch.cat(features, -1).masked_fill(first.unsqueeze(-1), 0.0)
        if not self.across_episodes:
            return seen
        ended = inputs[keys.DONES].bool() | inputs[keys.TRUNCATEDS].bool()
        return torch.cat([seen, ended.unsqueeze(-1).float()], -1)


def no_actions(actions: ActionSpec, num_slots: int) -> np.ndarray:
    """Return inputs [S, ...] that mean that there was no action, see keys.LAST_ACTIONS."""
    none = np.zeros((num_slots, *actions.shape), actions.dtype)
    none.reshape(num_slots, -1)[:, : len(actions.sizes)] = -1
    return none


def squash(x: Tensor) -> Tensor:
    """sign(x) * log(1 + |x|)."""
    return x.sign() * x.abs().log1p()


def _of(inputs: Mapping[str, Tensor], key: str) -> Tensor:
    if key not in inputs:
        raise KeyError(
            f"the inputs have no key {key!r}, which policy.sees needs: add what the step before did, or -1 (0 for real "
            "numbers) if there was none. If your policy overrides get_agent_experience_spec, it must list the key too."
        )
    return inputs[key]

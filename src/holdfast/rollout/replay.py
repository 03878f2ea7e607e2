"""Calls that look without touching: scoring stored steps again, and the value of an observation."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from holdfast.policies import Policy
from holdfast.policies.policy import read_state
from holdfast.recurrence import State
from holdfast.spec import keys


def score(policy: Policy, arrivals: Mapping[str, Tensor], start: State, actions: Tensor) -> TensorDictBase:
    """Log-prob, entropy and values [T, M] of given actions [T, M, ...], replayed from the start state.

    The policy's contract is slot-major, experience is time-major: transposed views, no copies.
    """
    T, M = actions.shape[:2]
    td = TensorDict({key: x.transpose(0, 1) for key, x in arrivals.items()}, batch_size=[M, T])
    out = policy(td, state=start, action=actions.transpose(0, 1))
    return out.transpose(0, 1)


@torch.no_grad()
def value_of(policy: Policy, arrived: Mapping[str, Tensor], state: State) -> Tensor:
    """V [B] of observations that just arrived, seen with this memory. Draws no action and keeps no state."""
    B = arrived[keys.OBS].shape[0]
    td = TensorDict(dict(arrived), batch_size=[B])
    actions = policy.spec.actions
    blank = torch.zeros(B, *actions.shape, dtype=getattr(torch, actions.dtype), device=td[keys.OBS].device)
    return policy(td, state=state, action=blank)[keys.VALUES]


@torch.no_grad()
def state_after(policy: Policy, arrivals: Mapping[str, Tensor], start: State, actions: Tensor) -> State:
    """Memory after replaying these steps from the start state, leaves [layers, M, hidden]."""
    T, M = actions.shape[:2]
    out = score(policy, arrivals, start, actions)
    return read_state(out.transpose(0, 1), len(start), M, T, keys.FINAL_STATE)

"""The TensorDict interface `policy(td, state=None, action=None)`.

`forward`, the default implementation, converts td to time-major inputs and a state and calls `Policy.act` or `score`.
The functions `act`, `score` and `predict_values` do the reverse: they build a td and call the custom `forward` of a
policy, so that such a policy can be trained and audited like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from holdfast.recurrence import Memory, State
from holdfast.spec import keys

if TYPE_CHECKING:
    from holdfast.policies.policy import Policy


Inputs = Mapping[str, Tensor]  # [T, B, ...] under the names of spec.keys


class Acted(NamedTuple):
    actions: Tensor  # [T, B, ...]
    log_prob: Tensor  # [T, B]
    values: Tensor  # [T, B]
    state: State  # after the last step
    params: Tensor | None = None  # [T, B, P] of the action distribution


class Scored(NamedTuple):
    log_prob: Tensor  # [T, B]
    entropy: Tensor  # [T, B]
    values: Tensor  # [T, B]
    state: State  # after the last step
    params: Tensor | None = None  # [T, B, P] of the action distribution


@dataclass
class Call:
    """The sizes, flags, start state and slots of one call of the TensorDict interface."""

    T: int
    B: int
    first: Tensor  # [T, B] bool
    inputs: Inputs  # [T, B, ...]: what came of the previous step
    start: State  # leaves [layers, B, hidden]
    slots: Tensor | None  # [B] slots whose memory is read and written; None: memory is not used


# --------------------------------------------------------------- the default forward: from a TensorDict to tensors


def forward(
    policy: Policy,
    td: TensorDictBase,
    action: Tensor | None,
    act: Callable[[Inputs, State], Acted],
    score: Callable[[Inputs, State, Tensor], Scored],
) -> TensorDictBase:
    """Call `act` or `score` with the inputs in td and write the outputs into td. If td holds no state, use memory."""
    B, T = td.batch_size[0], (td.batch_size[1] if td.batch_dims == 2 else 1)
    call = open_call(policy, td, B, T)
    for key, size in ((keys.BPTT, T), (keys.BATCH, B)):
        td.set(key, torch.full(td.batch_size, size, device=td.device))
    inputs = {str(key): _time_major(td[key], td) for key in td.keys()}  # noqa: SIM118  (iterating a td gives its rows)
    if action is None:
        actions, log_prob, values, final, params = act(inputs, call.start)
        td.set(keys.ACTIONS, _batch_major(actions, td))
    else:
        log_prob, entropy, values, final, params = score(inputs, call.start, _time_major(action, td))
        td.set(keys.ENTROPY, _batch_major(entropy, td))
    td.set(keys.LOG_PROB, _batch_major(log_prob, td))
    td.set(keys.VALUES, _batch_major(values, td))
    if params is not None:
        td.set(keys.FULL_LOG_PROBS, _batch_major(policy.distribution.full_log_probs(params), td))
    if call.slots is None:
        return with_state(td, final, keys.FINAL_STATE)
    policy.memory.write(call.slots, final)
    return td


def open_call(policy: Policy, td: TensorDictBase, B: int, T: int) -> Call:
    """Read the episode starts and the start state for td, which is [B], [B, T] or flattened to [B * T].

    The state comes from td if td holds one, otherwise from the memory.
    """
    for key in (keys.DONES, keys.TRUNCATEDS):
        if key not in td:
            raise KeyError(
                f"td has no key {key!r}, which marks the first observation of each episode. Add it; use zeros if no "
                "episode starts in td."
            )
    mask_size = policy.spec.mask_size
    if mask_size and keys.ACTION_MASK not in td:
        raise KeyError(
            f"td has no key {keys.ACTION_MASK!r} [..., {mask_size}], but {policy.spec.name} masks actions. Add it. "
            "If your policy overrides get_agent_experience_spec, it must list the mask too."
        )
    flags = {key: td[key].reshape(B, T).transpose(0, 1) for key in (keys.DONES, keys.TRUNCATEDS)}
    first = policy.episode_starts(flags)
    seen = {key: td[key].reshape(B, T, -1).transpose(0, 1) for key in (keys.REWARDS, keys.LAST_ACTIONS) if key in td}
    inputs = {**flags, **seen}
    if keys.START_STATE + "0" in td or not policy.state_shapes:
        return Call(T, B, first, inputs, read_state(td, len(policy.state_shapes), B, T), None)
    slots = _slots(td, B, T)
    return Call(T, B, first, inputs, policy.memory.read(slots), slots)


def _slots(td: TensorDictBase, B: int, T: int) -> Tensor:
    """Return the slot numbers [B]: `slot_ids` if given, otherwise consecutive from training_env_id_start or 0."""
    if keys.SLOT_IDS in td:
        return td[keys.SLOT_IDS].reshape(B, T)[:, 0]
    start = int(td[keys.SLOT_START].reshape(-1)[0]) if keys.SLOT_START in td else 0
    return torch.arange(start, start + B, device=td.device)


# ---------------------------------------------------------------- a custom forward: from tensors to a TensorDict


def act(policy: Policy, inputs: Inputs, state: State) -> Acted:
    """Take one step with the policy's custom `forward`, which acts from a temporary memory that holds `state`."""
    td, slots = _batch(inputs), torch.arange(state[0].shape[1] if state else 0)
    td.set(keys.SLOT_START, torch.zeros_like(td[keys.DONES], dtype=torch.long))
    kept, policy._memory = policy._memory, Memory(policy.state_shapes, device=policy._any_weight.device)
    try:
        policy.memory.write(slots, state)
        out = policy(td)
        final = policy.memory.read(slots)
    finally:
        policy._memory = kept
    return Acted(_rows(out, keys.ACTIONS), _rows(out, keys.LOG_PROB), _rows(out, keys.VALUES), final)


def score(policy: Policy, inputs: Inputs, state: State, actions: Tensor) -> Scored:
    """Score actions [T, B, ...] with the policy's custom `forward`. If it returns no final state, the state is ()."""
    td = _batch(inputs)
    T, B = actions.shape[:2]
    out = policy(td, state, actions.transpose(0, 1) if td.batch_dims == 2 else actions[0])
    final = read_state(out, len(state), B, T, keys.FINAL_STATE) if keys.FINAL_STATE + "0" in out else ()
    return Scored(_rows(out, keys.LOG_PROB), _rows(out, keys.ENTROPY), _rows(out, keys.VALUES), final)


@torch.no_grad()
def predict_values(policy: Policy, inputs: Inputs, state: State) -> Tensor:
    """Return the values [T, B]. To avoid sampling, score arbitrary actions (zeros)."""
    spec = policy.spec.actions
    flags = inputs[keys.DONES]
    blank = torch.zeros(*flags.shape, *spec.shape, dtype=getattr(torch, spec.dtype), device=flags.device)
    return score(policy, inputs, state, blank).values


def _batch(inputs: Inputs) -> TensorDict:
    """Return the inputs [T, B, ...] as a TensorDict [B, T], or [B] for a single step."""
    T, B = inputs[keys.DONES].shape
    if T == 1:
        return TensorDict({key: x[0] for key, x in inputs.items()}, batch_size=[B])
    return TensorDict({key: x.transpose(0, 1) for key, x in inputs.items()}, batch_size=[B, T])


def _rows(td: TensorDictBase, key: str) -> Tensor:
    return td[key].transpose(0, 1) if td.batch_dims == 2 else td[key].unsqueeze(0)


# ------------------------------------------------------------------------- axes and states inside a TensorDict


def _time_major(x: Tensor, td: TensorDictBase) -> Tensor:
    """[B, ...] -> [1, B, ...]; [B, T, ...] -> [T, B, ...]. Views, no copies."""
    return x.transpose(0, 1) if td.batch_dims == 2 else x.unsqueeze(0)


def _batch_major(x: Tensor, td: TensorDictBase) -> Tensor:
    """Convert [T, B, ...] back to the axes of td."""
    return x.transpose(0, 1) if td.batch_dims == 2 else x.squeeze(0)


def with_state(td: TensorDictBase, state: State, prefix: str) -> TensorDictBase:
    """Return a copy of td plus the state leaves [layers, B, hidden], repeated along the time axis if td has one."""
    td = td.copy()
    for i, leaf in enumerate(state):
        rows = leaf.transpose(0, 1)
        if td.batch_dims == 2:
            rows = rows.unsqueeze(1).expand(-1, td.batch_size[1], -1, -1)
        td.set(f"{prefix}{i}", rows)
    return td


def read_state(td: TensorDictBase, num_leaves: int, B: int, T: int, prefix: str = keys.START_STATE) -> State:
    """Return the state that `with_state` stored, with leaves [layers, B, hidden]."""
    leaves = (td[f"{prefix}{i}"] for i in range(num_leaves))
    return tuple(leaf.reshape(B, T, *leaf.shape[-2:])[:, 0].transpose(0, 1) for leaf in leaves)

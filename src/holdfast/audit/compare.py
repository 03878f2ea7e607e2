"""Compare outputs and states of two runs, after checking that names and shapes agree."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from holdfast.audit.subject import ACTIONS, NotOfferedError, Outputs, State, UnusableError


def check_pair(given: Any, source: str) -> tuple[Outputs, State]:
    """Check that `source` returned (outputs, state)."""
    if not isinstance(given, tuple) or len(given) != 2:
        what = f"{len(given)} values" if isinstance(given, tuple) else type(given).__name__
        raise UnusableError(f"{source} returned {what}: it has to return (outputs, state).")
    return given


def check_outputs(outputs: Outputs, source: str) -> None:
    """Check that outputs are a dict of tensors."""
    if not isinstance(outputs, dict):
        raise UnusableError(f"{source} returned outputs of type {type(outputs).__name__}: return a dict of tensors.")
    if not outputs:
        raise UnusableError(f"{source} returned no outputs: return a dict with at least one tensor, such as logits.")
    for name, output in outputs.items():
        if not isinstance(output, Tensor):
            raise UnusableError(f"{source} returned {name} of type {type(output).__name__}: return a tensor.")


def stack_steps(steps: list[Outputs]) -> Outputs:
    """Stack the outputs of single steps: [B, ...] -> [T, B, ...]."""
    for outputs in steps:
        check_outputs(outputs, "a step")
        if outputs.keys() != steps[0].keys():
            one, other = (", ".join(sorted(names)) for names in (steps[0], outputs))
            raise UnusableError(f"outputs must have the same names at every step; got {one}, then {other}.")
        for name, y in outputs.items():
            if y.shape != steps[0][name].shape:
                one, other = [*steps[0][name].shape], [*y.shape]
                raise UnusableError(f"output {name} has shape {one} at one step and {other} at another: use one shape.")
    return {name: torch.stack([step[name] for step in steps]) for name in steps[0]}


def differences(a: Outputs, b: Outputs, names: tuple[str, ...] = (), actions_too: bool = False) -> Tensor:
    """Return [T, B]: the largest difference between outputs [T, B, ...], relative where outputs are above 1.

    Only outputs that both runs have are compared, and log-probs only where both took the same action. actions_too:
    count a different action as a difference, because both runs used the same random numbers.
    """
    common = [name for name in a if name in b and (actions_too or name != ACTIONS) and (not names or name in names)]
    if not common:
        raise NotOfferedError(f"no output to compare: one run returns {', '.join(a)}, the other {', '.join(b)}")
    apart = {name: _apart(a[name].detach(), b[name].detach(), name) for name in common}
    if "log_prob" in apart and ACTIONS in a and ACTIONS in b:
        same = (a[ACTIONS] == b[ACTIONS]).unsqueeze(-1).flatten(2).all(-1)
        apart["log_prob"] = apart["log_prob"].where(same, 0.0)
    return torch.stack(list(apart.values())).amax(0)


def until_actions_differ(a: Outputs, b: Outputs) -> Tensor:
    """Return [T, B] bool: true up to and including the first step at which two runs sampled different actions."""
    other = (a[ACTIONS] != b[ACTIONS]).unsqueeze(-1).flatten(2).any(-1)
    return (other.cumsum(0) - other.long()) == 0


def policy_outputs(outputs: Outputs) -> tuple[str, ...]:
    """Return the names of the outputs that describe the action distribution; if there are none, of all outputs."""
    names = tuple(name for name in outputs if name not in (ACTIONS, "value", "entropy"))
    return names or tuple(name for name in outputs if name != ACTIONS)


def learned_outputs(outputs: Outputs) -> list[str]:
    """Return the names of the outputs that enter the loss; if there are no log-probs, of all outputs."""
    names = ("log_prob", "value", "entropy")
    return [name for name in outputs if name != ACTIONS and (name in names or "log_prob" not in outputs)]


def _apart(a: Tensor, b: Tensor, name: str) -> Tensor:
    if a.shape != b.shape:
        raise UnusableError(f"output {name} has shape {[*a.shape]} in one call and {[*b.shape]} in another.")
    a, b = to_double(a).unsqueeze(-1).flatten(2), to_double(b).unsqueeze(-1).flatten(2)
    size = torch.stack([a.abs(), b.abs()]).amax(0).clamp(min=1.0)
    return (_distance(a, b) / size).nan_to_num(nan=float("inf")).amax(-1)


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """Return |a - b|, with -inf (masked choices) equal to itself and NaN infinitely far from everything."""
    return (a - b).abs().where(a != b, 0.0).nan_to_num(nan=float("inf"), posinf=float("inf"))


def to_double(x: Tensor) -> Tensor:
    return x.to(torch.complex128) if x.is_complex() else x.double()


def largest_by_slot(leaf: Tensor, slot_axis: int) -> Tensor:
    """Return the largest number of a state tensor for each slot: [slots]. It is 0 if the tensor is empty."""
    rows = leaf.movedim(slot_axis, 0).unsqueeze(-1).flatten(1)
    return rows.amax(1) if rows.shape[1] else rows.new_zeros(len(rows))


def state_differences(a: State, b: State, slot_axis: int) -> Tensor:
    """Return the largest difference between two states, by tensor and slot: [tensors, slots]."""
    if [leaf.shape for leaf in a] != [leaf.shape for leaf in b]:
        shapes = [[[*leaf.shape] for leaf in state] for state in (a, b)]
        raise UnusableError(f"states have different shapes in different calls: {shapes[0]} and {shapes[1]}.")
    rows = [
        largest_by_slot(_distance(to_double(x.detach()), to_double(y.detach())), slot_axis)
        for x, y in zip(a, b, strict=True)
    ]
    return torch.stack(rows) if rows else torch.zeros(0, 1, dtype=torch.float64)

"""Outputs and states of two runs: of the same names and shapes, and how far apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from holdfast.audit.failing import UnusableError
from holdfast.audit.subject import ACTIONS, NotOfferedError, Outputs, State


def pair(given: Any, source: str) -> tuple[Outputs, State]:
    if not isinstance(given, tuple) or len(given) != 2:
        what = f"{len(given)} things" if isinstance(given, tuple) else type(given).__name__
        raise UnusableError(f"{source} gave {what}: outputs and a state are needed, (outputs, state).")
    return given


def check_outputs(outputs: Outputs, source: str) -> None:
    if not isinstance(outputs, dict):
        raise UnusableError(f"{source} gave outputs of type {type(outputs).__name__}: a dict of tensors is needed.")
    if not outputs:
        raise UnusableError(f"{source} gave no outputs.")
    for name, output in outputs.items():
        if not isinstance(output, Tensor):
            raise UnusableError(f"{source} gave {name} of type {type(output).__name__}: a tensor is needed.")


def stacked(steps: list[Outputs]) -> Outputs:
    """Outputs of single steps with the steps in front."""
    for outputs in steps:
        check_outputs(outputs, "a step")
        if outputs.keys() != steps[0].keys():
            one, other = (", ".join(sorted(names)) for names in (steps[0], outputs))
            raise UnusableError(f"a step gave {one}, and another one {other}: names have to be the same at every step.")
        for name, y in outputs.items():
            if y.shape != steps[0][name].shape:
                one, other = [*steps[0][name].shape], [*y.shape]
                raise UnusableError(f"a step gave {name} of shape {one}, and another one of {other}.")
    return {name: torch.stack([step[name] for step in steps]) for name in steps[0]}


def differences(a: Outputs, b: Outputs, names: tuple[str, ...] = (), actions_too: bool = False) -> Tensor:
    """[T, B]: how far two sets of outputs [T, B, ...] are apart, relative where they are larger than 1.

    Log-probs are compared where both took the same action. Outputs that only one of the two has are not compared.
    actions_too: both drew from the same random numbers, so another action is a movement.
    """
    common = [name for name in a if name in b and (actions_too or name != ACTIONS) and (not names or name in names)]
    if not common:
        raise NotOfferedError(f"its forms give no output of the same name: {', '.join(a)} and {', '.join(b)}")
    apart = {name: _apart(a[name].detach(), b[name].detach(), name) for name in common}
    if "log_prob" in apart and ACTIONS in a and ACTIONS in b:
        same = (a[ACTIONS] == b[ACTIONS]).unsqueeze(-1).flatten(2).all(-1)
        apart["log_prob"] = apart["log_prob"].where(same, 0.0)
    return torch.stack(list(apart.values())).amax(0)


def until_actions_differ(a: Outputs, b: Outputs) -> Tensor:
    """[T, B] bool: up to the first step of a slot at which two runs drew different actions, that step included."""
    other = (a[ACTIONS] != b[ACTIONS]).unsqueeze(-1).flatten(2).any(-1)
    return (other.cumsum(0) - other.long()) == 0


def of_the_policy(outputs: Outputs) -> tuple[str, ...]:
    """Names of what actions are drawn by, or else of whatever is put out."""
    names = tuple(name for name in outputs if name not in (ACTIONS, "value", "entropy"))
    return names or tuple(name for name in outputs if name != ACTIONS)


def _apart(a: Tensor, b: Tensor, name: str) -> Tensor:
    if a.shape != b.shape:
        raise UnusableError(
            f"output {name} is {[*a.shape]} in one form and {[*b.shape]} in another; they have to agree."
        )
    a, b = exact(a).unsqueeze(-1).flatten(2), exact(b).unsqueeze(-1).flatten(2)
    size = torch.stack([a.abs(), b.abs()]).amax(0).clamp(min=1.0)
    return (_distance(a, b) / size).nan_to_num(nan=float("inf")).amax(-1)


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """|a - b|. -inf, as masked choices and running maxima have it, equals itself; what is no number is infinitely far."""
    return (a - b).abs().where(a != b, 0.0).nan_to_num(nan=float("inf"), posinf=float("inf"))


def exact(x: Tensor) -> Tensor:
    return x.to(torch.complex128) if x.is_complex() else x.double()


def by_slot(leaf: Tensor, slot_axis: int) -> Tensor:
    """[slots, numbers], of a tensor of the state that may have no other axis."""
    return leaf.movedim(slot_axis, 0).unsqueeze(-1).flatten(1)


def state_differences(a: State, b: State, slot_axis: int) -> Tensor:
    """[leaves, slots]: how far two states are apart."""
    if [leaf.shape for leaf in a] != [leaf.shape for leaf in b]:
        shapes = [[[*leaf.shape] for leaf in state] for state in (a, b)]
        raise UnusableError(f"states have other shapes in one form than in another: {shapes[0]} and {shapes[1]}.")
    rows = [
        by_slot(_distance(exact(x.detach()), exact(y.detach())), slot_axis).amax(1) for x, y in zip(a, b, strict=True)
    ]
    return torch.stack(rows) if rows else torch.zeros(0, 1, dtype=torch.float64)

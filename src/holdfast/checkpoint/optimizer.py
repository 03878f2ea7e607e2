"""Save Adam's state as tensors and JSON, and restore it bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Adam

from holdfast.errors import CheckpointError
from holdfast.runs.files import find_non_json

_NAMES = ("step", "exp_avg", "exp_avg_sq")
_IDENTITY = ("params", "param_names")  # which parameters a group holds; all other entries are settings


def flatten_optimizer(optimizer: Adam) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return (tensors, facts): one `<parameter number>.<name>` per state tensor, and the parameter groups."""
    state = optimizer.state_dict()
    problem = find_non_json(state["param_groups"])
    if problem:
        raise TypeError(f"the optimizer's param_groups{problem}")
    tensors = {}
    for index, entries in state["state"].items():
        for name, value in entries.items():
            if not isinstance(value, Tensor):
                raise TypeError(f"the optimizer keeps {name} as a {type(value).__name__}, not as a tensor")
            tensors[f"{index}.{name}"] = value
    return tensors, {"kind": type(optimizer).__name__, "param_groups": state["param_groups"]}


def restore_optimizer(optimizer: Adam, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Load the state from `flatten_optimizer` into an optimizer over the same parameters in the same order.

    Learning rates come from the checkpoint too. State that does not fit raises CheckpointError and changes nothing.
    """
    kind = type(optimizer).__name__
    if facts.get("kind") != kind:
        raise CheckpointError(f"optimizer: state of {facts.get('kind')!r} does not fit {kind}")
    groups = _fit_groups(optimizer, facts.get("param_groups"))
    state = _fit_state(optimizer, tensors, groups)
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _fit_groups(optimizer: Adam, saved: Any) -> list[dict[str, Any]]:
    own = optimizer.state_dict()["param_groups"]
    if not isinstance(saved, list) or len(saved) != len(own):
        found = len(saved) if isinstance(saved, list) else "no"
        raise CheckpointError(f"optimizer: {found} parameter groups, {len(own)} expected")
    return [_fit_group(number, own[number], group) for number, group in enumerate(saved)]


def _fit_group(number: int, own: dict[str, Any], saved: Any) -> dict[str, Any]:
    """One group with the saved settings. A setting that is not in the file keeps its present value."""
    if not isinstance(saved, dict):
        raise CheckpointError(f"optimizer: parameter group {number} is a {type(saved).__name__}, not a mapping")
    fitted = dict(own)
    for key, value in saved.items():
        if key not in own:
            raise CheckpointError(f"optimizer: parameter group {number} has the unknown setting {key!r}")
        if key in _IDENTITY:
            if value != own[key]:
                raise CheckpointError(f"optimizer: parameter group {number} holds other parameters ({key})")
            continue
        value = tuple(value) if isinstance(own[key], tuple) and isinstance(value, list) else value
        if not _same_kind(value, own[key]):
            raise CheckpointError(f"optimizer: parameter group {number} has {key}={value!r}")
        fitted[key] = value
    return fitted


def _same_kind(value: Any, own: Any) -> bool:
    if isinstance(own, tuple):
        return isinstance(value, tuple) and len(value) == len(own) and all(map(_same_kind, value, own))
    if own is None or isinstance(own, bool):
        return value is None or isinstance(value, bool)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fit_state(
    optimizer: Adam, tensors: Mapping[str, Tensor], groups: list[dict[str, Any]]
) -> dict[int, dict[str, Tensor]]:
    """State by parameter number, copied so that training does not write into the checkpoint's tensors."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names_of = {
        index: _NAMES + (("max_exp_avg_sq",) if group["amsgrad"] else ())
        for group in groups
        for index in group["params"]
    }
    expected = {f"{index}.{name}": (index, name) for index, names in names_of.items() for name in names}
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key not in expected:
            raise CheckpointError(f"optimizer: unexpected tensor {key[:80]!r}")
        index, name = expected[key]
        parameter = parameters[index]
        if name == "step":
            fits = tensor.shape == () and tensor.is_floating_point()
        else:
            fits = tensor.shape == parameter.shape and tensor.dtype == parameter.dtype
        if not fits:
            found = f"{list(tensor.shape)} {tensor.dtype}"
            raise CheckpointError(f"optimizer: tensor {key!r} ({found}) does not fit its parameter")
        state.setdefault(index, {})[name] = tensor.detach().clone()
    for index, entries in state.items():
        for name in names_of[index]:
            if name not in entries:
                raise CheckpointError(f"optimizer: tensor '{index}.{name}' is missing")
    return state

"""Save Adam's state as tensors and JSON, and restore it bit for bit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Adam

from holdfast.errors import CheckpointError
from holdfast.runs.json_data import find_non_json

_NAMES = ("step", "exp_avg", "exp_avg_sq")
_IDENTITY = ("params", "param_names")  # these entries list the parameters of a group; all other entries are settings


def flatten_optimizer(optimizer: Adam) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return (tensors, facts): the state tensors, keyed `<parameter index>.<name>`, and the parameter groups."""
    state = optimizer.state_dict()
    if problem := find_non_json(state["param_groups"]):
        raise TypeError(f"the optimizer's param_groups{problem}")
    tensors = {}
    for index, entries in state["state"].items():
        for name, value in entries.items():
            if not isinstance(value, Tensor):
                raise TypeError(f"the optimizer state {name} is a {type(value).__name__}; it must be a tensor")
            tensors[f"{index}.{name}"] = value
    return tensors, {"kind": type(optimizer).__name__, "param_groups": state["param_groups"]}


def restore_optimizer(optimizer: Adam, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Load the result of `flatten_optimizer` into an optimizer with the same parameters in the same order.

    Learning rates are loaded too. If the state does not match, raise CheckpointError and leave the optimizer unchanged.
    """
    kind = type(optimizer).__name__
    if facts.get("kind") != kind:
        raise CheckpointError(f"optimizer: the saved state is for {facts.get('kind')!r}, not for {kind}")
    own, saved = optimizer.state_dict()["param_groups"], facts.get("param_groups")
    if not isinstance(saved, list) or len(saved) != len(own):
        found = len(saved) if isinstance(saved, list) else "no"
        raise CheckpointError(f"optimizer: {found} parameter groups in the checkpoint, but {len(own)} in this policy")
    groups = [_fit_group(f"optimizer: parameter group {i}", own[i], group) for i, group in enumerate(saved)]
    optimizer.load_state_dict({"state": _fit_state(optimizer, tensors, groups), "param_groups": groups})


def _fit_group(where: str, own: dict[str, Any], saved: Any) -> dict[str, Any]:
    """Return a parameter group with the saved settings. A setting that was not saved keeps its current value."""
    if not isinstance(saved, dict):
        raise CheckpointError(f"{where} is a {type(saved).__name__}, not a mapping")
    fitted = dict(own)
    for key, value in saved.items():
        if key not in own:
            raise CheckpointError(f"{where} has the unknown setting {key!r}")
        if key in _IDENTITY and value != own[key]:
            raise CheckpointError(f"{where} does not match this policy: {key} differs")
        fitted[key] = tuple(value) if isinstance(own[key], tuple) and isinstance(value, list) else value
        if key not in _IDENTITY and not _same_kind(fitted[key], own[key]):
            raise CheckpointError(f"{where} has {key}={fitted[key]!r}; expected a value like {own[key]!r}")
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
    """Return the state by parameter index, copied so that training does not change the checkpoint's tensors."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = {i: _NAMES + ("max_exp_avg_sq",) * group["amsgrad"] for group in groups for i in group["params"]}
    places = {f"{i}.{name}": (i, name) for i in names for name in names[i]}
    state: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for key, tensor in tensors.items():
        if key not in places:
            raise CheckpointError(f"optimizer: unexpected tensor {key[:80]!r}")
        i, name = places[key]
        scalar = tensor.shape == () and tensor.is_floating_point()
        like_parameter = tensor.shape == parameters[i].shape and tensor.dtype == parameters[i].dtype
        if not (scalar if name == "step" else like_parameter):
            found = f"{list(tensor.shape)} {tensor.dtype}"
            raise CheckpointError(f"optimizer: tensor {key!r} ({found}) does not match its parameter in shape or dtype")
        state[i][name] = tensor.detach().clone()
    for key, (i, name) in places.items():
        if i in state and name not in state[i]:
            raise CheckpointError(f"optimizer: tensor {key!r} is missing")
    return dict(state)

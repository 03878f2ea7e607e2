"""Spaces as JSON, so that a trained agent reads observations and gives actions in its environment's form without it."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from holdfast.errors import CheckpointError, SettingsError, one_line, printable
from holdfast.spec import BoxActions, BoxObs, DiscreteActions, DiscreteObs, MixedActions, WorldSpec

MANY = 1000  # a Box of observations with more values keeps only its smallest and largest bound
MAX_VALUES = 10**7  # of all spaces in a file, which could come from anybody
MAX_CHOICES = 10**6  # of all actions in a file
MAX_TEXT = 2**21
DTYPES = {np.dtype(name).str for name in ("bool", "f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")}


def save_spaces(
    obs_space: spaces.Space, action_space: spaces.Space, hide: Sequence[int | str], action_mask: bool | None
) -> str:
    """Return JSON text for `WorldSpec.spaces`; `read_spaces` reads it."""
    saved = {
        "observation": _to_json(obs_space, MANY),
        "action": _to_json(action_space, math.inf),
        "hide": list(hide),
        "action_mask": action_mask,
    }
    return json.dumps(saved)


def read_spaces(spec: WorldSpec) -> tuple[spaces.Space, spaces.Space, list[int | str], bool | None]:
    """Return the spaces of observations and actions, the hidden entries, and whether actions are masked.

    Worlds without spaces of their own (MettaGrid, and agents of older versions) have those of their spec.
    """
    if not spec.spaces:
        return obs_space_of(spec), action_space_of(spec), [], spec.mask_size > 0
    try:
        if len(spec.spaces) > MAX_TEXT:
            raise ValueError(f"{len(spec.spaces):,} characters")
        saved = json.loads(spec.spaces)
        if _size(saved["observation"]) > MAX_VALUES or _size(saved["action"], actions=True) > MAX_CHOICES:
            raise ValueError("too many values")
        return _from_json(saved["observation"]), _from_json(saved["action"]), saved["hide"], saved["action_mask"]
    except Exception as error:  # a file of somebody else can cause any exception
        raise CheckpointError(
            f"the spaces of {printable(spec.name)} in the checkpoint are damaged: {one_line(error)}"
        ) from error


def obs_space_of(spec: WorldSpec) -> spaces.Space:
    """Return a space with the shape and dtype of the spec's observations."""
    obs = spec.obs
    if isinstance(obs, DiscreteObs):
        return spaces.Discrete(obs.n)
    if obs.dtype == "uint8":
        return spaces.Box(0, 255, obs.shape, np.uint8)
    assert isinstance(obs, BoxObs)
    return spaces.Box(-math.inf, math.inf, obs.shape, np.float32)


def action_space_of(spec: WorldSpec) -> spaces.Space:
    """Return a space with the sizes of the spec's actions."""
    actions = spec.actions
    reals = None
    if isinstance(actions, BoxActions | MixedActions):
        reals = spaces.Box(np.array(actions.low, np.float32), np.array(actions.high, np.float32))
    choices = spaces.MultiDiscrete([*actions.sizes]) if actions.sizes else None
    if isinstance(actions, DiscreteActions):
        return spaces.Discrete(len(actions.names))
    if choices is not None and reals is not None:
        return spaces.Tuple((choices, reals))
    found = reals if choices is None else choices
    assert found is not None
    return found


def _to_json(space: spaces.Space, many: float) -> dict[str, Any]:
    match space:
        case spaces.Dict():
            entries = [[_key_to_json(key), _to_json(child, many)] for key, child in space.spaces.items()]
            return {"kind": "Dict", "entries": entries}
        case spaces.Tuple():
            return {"kind": "Tuple", "entries": [_to_json(child, many) for child in space.spaces]}
        case spaces.Box():
            low, high = (_bounds(space, side, many) for side in ("low", "high"))
            return {"kind": "Box", "shape": [*space.shape], "dtype": _dtype_name(space), "low": low, "high": high}
        case spaces.Discrete():
            n, start = int(space.n), int(space.start)
            return {"kind": "Discrete", "n": n, "start": start, "dtype": _dtype_name(space)}
        case spaces.MultiDiscrete():
            nvec, start = space.nvec.tolist(), space.start.tolist()
            return {"kind": "MultiDiscrete", "nvec": nvec, "start": start, "dtype": _dtype_name(space)}
        case spaces.MultiBinary():
            return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else [*space.shape]}
    return {"kind": "ignored"}  # text, or a hidden entry


def _key_to_json(key: Any) -> Any:
    """Return the key of an entry of a Dict; a tuple as a list."""
    if isinstance(key, tuple):
        return [_key_to_json(part) for part in key]
    key = key.item() if isinstance(key, np.generic) else key
    if not isinstance(key, str | int | float | bool | None):
        raise SettingsError(
            f"the observations have the key {printable(repr(key), 80)}. Keys of a Dict must be text, numbers or tuples of them."
        )
    return key


def _key_from_json(key: Any) -> Any:
    return tuple(map(_key_from_json, key)) if isinstance(key, list) else key


def _dtype_name(space: spaces.Space) -> str:
    """Return the dtype in this machine's byte order; an unusual one as float64, because values are converted anyway."""
    name = np.dtype(space.dtype).newbyteorder("=").str
    return name if name in DTYPES else np.dtype(np.float64).str


def _bounds(space: spaces.Box, side: str, many: float) -> Any:
    """Return one bound for all values if they have the same, or if they are many; JSON has no infinity, so it is text."""
    values = getattr(space, side)
    if values.size and (values.size > many or (values == values.flat[0]).all()):
        values = values.min() if side == "low" else values.max()
    return np.asarray(values).astype(str).tolist()


def _from_json(data: Any) -> spaces.Space:
    match data["kind"]:
        case "Dict":
            return spaces.Dict(OrderedDict((_key_from_json(key), _from_json(child)) for key, child in data["entries"]))
        case "Tuple":
            return spaces.Tuple([_from_json(child) for child in data["entries"]])
        case "Box":
            shape = tuple(data["shape"])
            dtype = _dtype(data)
            low, high = (_numbers(data[side], dtype) for side in ("low", "high"))
            return spaces.Box(np.broadcast_to(low, shape), np.broadcast_to(high, shape), shape, dtype.type)
        case "Discrete":
            return spaces.Discrete(data["n"], start=data["start"], dtype=_dtype(data).type)
        case "MultiDiscrete":
            dtype = _dtype(data)
            return spaces.MultiDiscrete(np.array(data["nvec"], dtype), dtype.type, start=np.array(data["start"], dtype))
        case "MultiBinary":
            return spaces.MultiBinary(data["n"])
        case "ignored":
            return spaces.Text(1)
    raise ValueError(f"unknown kind {str(data['kind'])[:20]!r}")


def _size(data: Any, actions: bool = False) -> int:
    """Return how many numbers, or choices of actions, the spaces in a file have, before any of them is built."""
    kind = data["kind"]
    if kind in ("Dict", "Tuple"):
        return 1 + sum(_size(entry[1] if kind == "Dict" else entry, actions) for entry in data["entries"])
    if kind == "Box":
        return math.prod(data["shape"])
    if kind == "Discrete":
        return data["n"] if actions else 1
    if kind == "MultiDiscrete":
        return int(np.sum(data["nvec"], dtype=np.float64))
    return math.prod(np.atleast_1d(data["n"]).tolist()) if kind == "MultiBinary" else 1


def _dtype(data: Any) -> np.dtype:
    if data.get("dtype", "<i8") not in DTYPES:
        raise ValueError(f"the dtype {str(data['dtype'])[:20]!r}")
    return np.dtype(data.get("dtype", "<i8"))


def _numbers(texts: Any, dtype: np.dtype) -> np.ndarray:
    if any(len(text) > 40 for text in np.ravel(np.array(texts, object))):
        raise ValueError("a limit that is no number")
    array = np.array(texts)
    return array == "True" if dtype == np.bool_ else array.astype(dtype)

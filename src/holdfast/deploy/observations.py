"""Read what a caller passes to an agent: one observation or a batch, in the form of the environment, and its action mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from holdfast.envs.failures import BadMask, BadValue
from holdfast.envs.spaces import MaskReader, obs_reader, read_spaces
from holdfast.envs.spaces.leaves import Leaf, leaves_of, visible
from holdfast.envs.spaces.masks import mask_is_in
from holdfast.errors import CheckpointError, HoldfastError, one_line, printable
from holdfast.spec import TokenObs, WorldSpec, keys

NO_TOKEN = 255
MAX_SIZES = 8  # batch sizes that have buffers


class AgentInputError(HoldfastError, ValueError):
    """An observation, state, flag or mask that an agent cannot read."""


class ObservationReader:
    """Reads the observations and action masks of one world."""

    def __init__(self, spec: WorldSpec):
        self.spec = spec
        self.space, self.action_space, self._hide, masked = read_spaces(spec)
        sizes = spec.actions.sizes
        self._mask_in_obs = masked is not False and spec.mask_size > 0 and mask_is_in(self.space, sizes)
        self._apart = keys.ACTION_MASK if self._mask_in_obs else None
        idle = spec.agents_per_env > 1  # an agent without a legal action waits, and may do anything
        self._masks = MaskReader(self.action_space, sizes, idle=idle) if spec.mask_size else None
        self._nested = isinstance(self.space, spaces.Dict | spaces.Tuple)
        self._readers: dict[int | None, tuple[Any, np.ndarray, Tensor]] = {}
        try:
            found = self._reader(None)[0].spec
            if (found.shape, found.dtype) != (spec.obs.shape, spec.obs.dtype):
                raise ValueError("they do not fit the observations of the agent")
            # The first visible leaf with a fixed shape tells a batch from a single observation.
            leaves = [leaf for leaf in leaves_of(self.space) if leaf.path[:1] != (self._apart,)]
            shown = [leaf for leaf, _ in visible(leaves, self._hide, spec.name) if leaf.space.shape is not None]
            self._probe: Leaf = next(leaf for leaf in shown if not isinstance(leaf.space, spaces.Text))
        except Exception as error:  # a file of somebody else can cause any exception
            name = printable(spec.name)
            raise CheckpointError(f"the spaces of {name} in the checkpoint are damaged: {one_line(error)}") from error

    def read(self, obs: Any) -> tuple[Tensor, int | None]:
        """Return observations [B, *spec.obs.shape], and B; None instead of B if it was a single one.

        The tensor is overwritten by the next call.
        """
        if isinstance(obs, torch.Tensor):
            obs = obs.detach().cpu().numpy()
        if self._nested and isinstance(obs, list):
            return self._read_list(obs), len(obs)
        if isinstance(self.spec.obs, TokenObs):
            obs = self._padded(obs)
        B = self._batch_size(obs)
        reader, array, tensor = self._reader(B)
        try:
            reader.read(obs, array if B is not None else array[0, ...])
        except BadValue as error:
            raise AgentInputError(f"the agent got {error} for {self._described(B)}.") from error
        self._check_finite(array)
        return tensor, B

    def read_mask(self, obs: Any, mask: Any, B: int | None) -> Tensor | None:
        """Return the action mask [B, M] that belongs to the observations; None if the world does not mask actions."""
        if self._masks is None:
            if mask is not None:
                raise AgentInputError(f"{self.spec.name} has no action masks: leave out mask=.")
            return None
        if mask is None and self._mask_in_obs:
            seen = [each.get(keys.ACTION_MASK) for each in (obs if isinstance(obs, list) else [obs])]
            mask = seen if isinstance(obs, list) else seen[0]
        if mask is None:
            where = "the observation" if self._mask_in_obs else "mask=, such as info['action_mask']"
            raise AgentInputError(f"{self.spec.name} masks actions: the agent needs the action mask in {where}.")
        out = np.empty((B or 1, self.spec.mask_size), bool)
        for row, legal in enumerate(out):
            try:
                self._masks.read(None, {keys.ACTION_MASK: mask if B is None else _row(mask, row)}, legal)
            except (BadMask, LookupError, TypeError) as error:
                at = "" if B is None else f" in row {row}"
                what = error if isinstance(error, BadMask) else f"action masks for fewer than {B} observations"
                raise AgentInputError(f"the agent got {what}{at}") from error
        return torch.from_numpy(out)

    def _reader(self, B: int | None) -> tuple[Any, np.ndarray, Tensor]:
        if B not in self._readers:
            if len(self._readers) >= MAX_SIZES:
                self._readers.clear()
            lead = () if B is None else (B,)
            reader = obs_reader(self.space, self.spec.name, self._hide, lead, self._apart)
            array = np.zeros((B or 1, *self.spec.obs.shape), self.spec.obs.dtype)
            self._readers[B] = reader, array, torch.from_numpy(array)
        return self._readers[B]

    def _read_list(self, rows: list[Any]) -> Tensor:
        """Read single observations that are Dicts or Tuples, one after the other."""
        if not rows:
            raise AgentInputError("the agent got an empty list of observations.")
        return torch.cat([self.read(row)[0].clone() for row in rows])

    def _batch_size(self, obs: Any) -> int | None:
        """Return the number of observations in a batch, None for a single observation; raise if it is neither."""
        value = obs
        for key in self._probe.path:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                return None  # the reader says what is missing
        shape = tuple(self._probe.space.shape or ())
        try:
            found = np.shape(value)
        except ValueError:
            return None
        if found == shape:
            return None
        if len(found) == len(shape) + 1 and found[1:] == shape:
            if not found[0]:
                raise AgentInputError("the agent got a batch without observations.")
            return found[0]
        what = f"entry {self._probe.name!r} of the observation" if self._probe.path else "an observation"
        one, many = _shown(shape), _shown(("B", *shape))
        raise AgentInputError(
            f"the agent got {what} of shape {_shown(found)}; {self.spec.name} has {one}, or {many} for a batch of B."
        )

    def _padded(self, obs: Any) -> np.ndarray:
        """Return tokens [..., K, 3] padded to the number of tokens of the spec."""
        assert isinstance(self.spec.obs, TokenObs)
        tokens, needed = np.asarray(obs), self.spec.obs.num_tokens
        if tokens.ndim < 2 or tokens.shape[-1] != 3 or tokens.shape[-2] >= needed:
            return tokens
        missing = [(0, 0)] * (tokens.ndim - 2) + [(0, needed - tokens.shape[-2]), (0, 0)]
        return np.pad(tokens, missing, constant_values=NO_TOKEN)

    def _check_finite(self, array: np.ndarray) -> None:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            row, *entry = map(int, np.argwhere(~np.isfinite(array))[0])
            at = f" in row {row}" if len(array) > 1 else ""
            raise AgentInputError(
                f"the agent got an observation with {array[(row, *entry)]}{at}, at entry {_shown(tuple(entry))}."
            )

    def _described(self, B: int | None) -> str:
        return f"{self.spec.name} (one observation)" if B is None else f"{self.spec.name} (a batch of {B})"


def _row(value: Any, row: int) -> Any:
    """Return one row of a batch: of an array, a list, or of every entry of a Dict or Tuple of arrays."""
    if isinstance(value, dict):
        return {key: _row(entry, row) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(_row(entry, row) for entry in value)
    return None if value is None else value[row]


def _shown(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"

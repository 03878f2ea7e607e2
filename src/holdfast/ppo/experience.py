"""The experience buffer: one time-major rollout of every slot (agent of an environment). Learning samples whole segments.

Row t contains observation t and the rewards, dones and truncateds of the transition t-1 -> t.
The outcome of action t is therefore in row t+1, and the last row of one rollout is row 0 of the next.
A column belongs to one slot for the whole run, so no segment can mix two slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from holdfast.ppo.segments import BurnIn, Segments, state_rows
from holdfast.recurrence.core import State
from holdfast.spec import keys

Spec = Mapping[str, tuple[tuple[int, ...], str | torch.dtype]]
Column = Tensor | np.ndarray

ALWAYS_STORED: Spec = {
    keys.REWARDS: ((), torch.float32),
    keys.DONES: ((), torch.bool),
    keys.TRUNCATEDS: ((), torch.bool),
}


class Experience:
    """One rollout of S slots and R = segments_per_slot * horizon steps: tensors [R + 1, S, ...], written row by row.

    spec: shape (without the slot axis) and dtype of `env_obs`, `actions` and every additional input that the
    policy needs for learning; rewards, dones and truncateds are always stored.
    state_shapes: (layers, hidden) of each state leaf. Segment k of slot s has the id k * S + s.
    poison: before each rollout, fill the buffer with NaN or extreme values, so that reading an unwritten entry is noticed.
    """

    def __init__(
        self,
        spec: Spec,
        num_slots: int,
        horizon: int,
        segments_per_slot: int,
        state_shapes: Sequence[tuple[int, int]],
        burn_in: int = 0,
        device: torch.device | str = "cpu",
        poison: bool = False,
    ):
        if min(num_slots, horizon, segments_per_slot) < 1 or burn_in < 0:
            raise ValueError(
                "num_slots, horizon and segments_per_slot must be at least 1, and burn_in at least 0; "
                f"got num_slots={num_slots}, horizon={horizon}, segments_per_slot={segments_per_slot}, burn_in={burn_in}"
            )
        if missing := {keys.OBS, keys.ACTIONS} - spec.keys():
            raise ValueError(f"the experience spec lacks {sorted(missing)}; add the shape and dtype of each")
        self.num_slots, self.horizon, self.segments_per_slot = num_slots, horizon, segments_per_slot
        self.num_rows = R = horizon * segments_per_slot
        self.num_segments = num_slots * segments_per_slot
        self.burn_in_steps = burn_in
        self.device = torch.device(device)
        self.poison = poison
        self.state_rows = state_rows(horizon, segments_per_slot, burn_in)
        starts = [k * horizon for k in range(segments_per_slot)]
        self._state_of_segment = torch.tensor([self.state_rows[row] for row in starts], device=self.device)
        self._state_of_burn_in = torch.tensor(
            [self.state_rows[max(0, row - burn_in)] for row in starts], device=self.device
        )

        def zeros(rows: int, shape: tuple[int, ...] = (), dtype: str | torch.dtype = torch.float32) -> Tensor:
            torch_dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
            return torch.zeros((rows, num_slots, *shape), dtype=torch_dtype, device=self.device)

        inputs = {**spec, **ALWAYS_STORED}
        self._actions = zeros(R, *inputs.pop(keys.ACTIONS))
        self._inputs = {key: zeros(R + 1, *shape_dtype) for key, shape_dtype in inputs.items()}
        self._log_prob = zeros(R)
        self._values = zeros(R + 1)
        self._valid = zeros(R, dtype=torch.bool)
        self._final_values = zeros(R)
        self.advantages, self.returns = zeros(R), zeros(R)
        self._states = tuple(
            torch.zeros((len(self.state_rows), layers, num_slots, hidden), device=self.device)
            for layers, hidden in state_shapes
        )
        # The policy inputs of each row: views [1, S, ...] of the buffer, by key.
        self.inputs = [{key: column[t : t + 1] for key, column in self._inputs.items()} for t in range(R + 1)]
        self._begin()

    # -------------------------------------------------------------------------------------------- collecting

    @torch.no_grad()
    def write_inputs(self, t: int, inputs: Mapping[str, Column], valid: Column | None = None) -> None:
        """Store row t: observation t and the outcome of action t-1. Transitions with `valid` [S] false are ignored."""
        if self._inputs_written != t or self._actions_written != t:
            raise self._out_of_order(f"inputs of row {t}")
        if t > self.num_rows:
            raise RuntimeError(f"row {t} is beyond the last row ({self.num_rows}); begin a new rollout with carry_over")
        if missing := self._inputs.keys() - inputs.keys():
            raise KeyError(f"the inputs of row {t} lack {sorted(missing)}, which the experience spec requires")
        for key, row in self.inputs[t].items():
            value = torch.as_tensor(inputs[key])
            if value.shape != row.shape[1:] or not _can_store(value.dtype, row.dtype):
                raise _misfit(key, value, row[0])
            row.copy_(value)
        if t > 0:
            self._valid[t - 1] = True if valid is None else torch.as_tensor(valid)
        self._inputs_written = t + 1

    @torch.no_grad()
    def write_state(self, t: int, state: State) -> None:
        """Store the state before observation t: leaves [layers, S, hidden]. Only for rows in `state_rows`."""
        if t not in self.state_rows:
            raise RuntimeError(f"row {t} stores no state; call write_state only for rows {list(self.state_rows)}")
        if self._states_written != self.state_rows[t]:
            raise self._out_of_order(f"state of row {t}")
        for store, leaf in zip(self._states, state, strict=True):
            _write(store[self.state_rows[t]], leaf, "state")
        self._states_written += 1

    @torch.no_grad()
    def write_action(self, t: int, actions: Column, log_prob: Tensor, values: Tensor) -> None:
        """Store the policy's output for observation t: actions [S, ...], log_prob [S], values [S]."""
        needs_state = bool(self._states) and t in self.state_rows and self._states_written <= self.state_rows[t]
        if self._inputs_written != t + 1 or self._actions_written != t or needs_state:
            raise self._out_of_order(f"action of row {t}")
        if t >= self.num_rows:
            raise RuntimeError(
                f"row {t} stores no action (the last row with one is {self.num_rows - 1}); call write_bootstrap instead"
            )
        named = {
            keys.ACTIONS: (self._actions, actions),
            keys.LOG_PROB: (self._log_prob, log_prob),
            keys.VALUES: (self._values, values),
        }
        for name, (column, given) in named.items():
            row, value = column[t], torch.as_tensor(given)
            if value.shape != row.shape or not _can_store(value.dtype, row.dtype):
                raise _misfit(name, value, row)
            row.copy_(value)
        self._actions_written = t + 1

    @torch.no_grad()
    def write_final_values(self, t: int, values: Tensor, slots: Tensor) -> None:
        """Store V(final observation) [n] of the slots [n] that were truncated at row t.

        Without a stored value, a truncation deliberately gives NaN advantages, so that a missing call is noticed.
        """
        self._require_outcome(t, "final values")
        if values.shape != slots.shape:
            raise ValueError(
                f"`values` has shape {list(values.shape)} and `slots` {list(slots.shape)}: the shapes must be equal"
            )
        self._final_values[t - 1, slots] = values

    @torch.no_grad()
    def write_bootstrap(self, values: Tensor) -> None:
        """Store the bootstrap values [S]: V of the last row's observations. This completes the rollout."""
        if self.complete or self._inputs_written != self.num_rows + 1:
            raise self._out_of_order("bootstrap values")
        _write(self._values[-1], values, keys.VALUES)
        self.complete = True

    @torch.no_grad()
    def drop_episode(self, t: int, slots: Tensor) -> None:
        """Exclude from learning the episodes that ended at row t in `slots` [n], because their environments failed."""
        self._require_outcome(t, "dropped episode")
        dones, truncateds = (self._inputs[key][1:t][:, slots] for key in (keys.DONES, keys.TRUNCATEDS))
        valid = self._valid[:t][:, slots].clone()
        valid[:-1] &= (dones | truncateds).flip(0).cumsum(0).flip(0) > 0  # keep the steps of earlier episodes
        valid[-1] = False
        self._valid[:t][:, slots] = valid

    @torch.no_grad()
    def carry_over(self) -> None:
        """Begin the next rollout, with the last row of this one as its row 0."""
        self._require_complete("carry over to the next rollout")
        last = {key: column[-1].clone() for key, column in self._inputs.items()}
        self._begin()
        self.write_inputs(0, last)

    # ---------------------------------------------------------------------------------------------- learning

    def outcomes(self) -> dict[str, Tensor]:
        """Return the tensor arguments that `gae` and `vtrace` have in common, by name, as views of the buffer."""
        self._require_complete("compute advantages")
        return {
            "rewards": self._inputs[keys.REWARDS],
            "values": self._values,
            "dones": self._inputs[keys.DONES],
            "truncateds": self._inputs[keys.TRUNCATEDS],
            "final_values": self._final_values,
            "valid": self._valid,
        }

    def segments(self, ids: Tensor) -> Segments:
        """Gather segments `ids` [M] into a minibatch [T, M, ...], with the start state of each."""
        return next(self.minibatches([ids]))

    def minibatches(self, ids: Sequence[Tensor]) -> Iterator[Segments]:
        """Gather one minibatch [T, M, ...] for each tensor of segment ids [M], with the start state of each segment.

        Observations are large, so they are gathered when their minibatch is needed; everything else is gathered at once.
        Minibatches are copies: use `write_back` or `replace_start_states` to change the rollout.
        """
        self._require_complete("sample segments")
        sizes = [len(minibatch) for minibatch in ids]
        k, slots = self._split(torch.cat(list(ids)))
        places = list(zip(k.split(sizes), slots.split(sizes), strict=True))
        indices = [self._index(k * self.horizon, slots, self.horizon) for k, slots in places]
        index, steps = torch.cat(indices), [len(minibatch) for minibatch in indices]
        outputs = [self._actions, self._log_prob, self._values, self._valid, self.advantages, self.returns]
        small_inputs = [x for key, x in self._inputs.items() if key != keys.OBS]
        gathered = [x.flatten(0, 1).index_select(0, index).split(steps) for x in (*small_inputs, *outputs)]
        names = [key for key in self._inputs if key != keys.OBS]
        # For token observations, index_select is 7x as fast as indexing by row and slot.
        all_obs = self._inputs[keys.OBS].flatten(0, 1)
        for (k, slots), index, *columns in zip(places, indices, *gathered, strict=True):
            obs, *columns = (x.unflatten(0, (self.horizon, len(k))) for x in (all_obs.index_select(0, index), *columns))
            inputs = {keys.OBS: obs, **dict(zip(names, columns, strict=False))}
            yield Segments(inputs, self._state_at(self._state_of_segment[k], slots), *columns[len(names) :])

    def burn_in(self, ids: Tensor) -> list[BurnIn]:
        """Return the burn-in steps before segments `ids` [M]. Segments with the same number of burn-in steps form a group.

        The first segment of a slot has no steps before it in this rollout, so it is in no group. The other segments
        form one group, or several if burn-in exceeds the horizon.
        """
        self._require_complete("replay burn-in steps")
        k, slots = self._split(ids)
        steps = (k * self.horizon).clamp(max=self.burn_in_steps)
        groups = []
        for length in steps.unique().tolist():
            if length == 0:
                continue
            positions = (steps == length).nonzero().squeeze(1)
            group_k, group_slots = k[positions], slots[positions]
            index = self._index(group_k * self.horizon - length, group_slots, length)
            inputs = {
                key: x.flatten(0, 1).index_select(0, index).unflatten(0, (length, len(group_k)))
                for key, x in self._inputs.items()
            }
            start_state = self._state_at(self._state_of_burn_in[group_k], group_slots)
            groups.append(BurnIn(inputs, start_state, positions))
        return groups

    def whole(self) -> Segments:
        """Return the whole rollout as one segment per slot (T = R, M = S), as views of the buffer."""
        self._require_complete("read the rollout")
        R = self.num_rows
        return Segments(
            {key: column[:R] for key, column in self._inputs.items()},
            tuple(store[0] for store in self._states),
            self._actions,
            self._log_prob,
            self._values[:R],
            self._valid,
            self.advantages,
            self.returns,
        )

    @torch.no_grad()
    def replace_start_states(self, k: int, state: State) -> None:
        """Replace the stored start state of segment k of every slot, leaves [layers, S, hidden]."""
        self._require_complete("replace start states")
        if not 0 < k < self.segments_per_slot:
            raise ValueError(
                f"the start state of segment {k} cannot be replaced: "
                f"k must be from 1 to {self.segments_per_slot - 1} (segment 0 starts from the state before this rollout)"
            )
        for store, leaf in zip(self._states, state, strict=True):
            _write(store[self.state_rows[k * self.horizon]], leaf, "state")

    @torch.no_grad()
    def write_back(self, x: Tensor, ids: Tensor, values: Tensor) -> None:
        """Write values [T, M, ...] of segments `ids` [M] into x [R, S, ...], a tensor for the whole rollout."""
        if x.shape[:2] != (self.num_rows, self.num_slots):
            raise ValueError(f"`x` must have shape [{self.num_rows}, {self.num_slots}, ...], got {list(x.shape)}")
        if values.shape[:2] != (self.horizon, len(ids)):
            raise ValueError(f"`values` must have shape [{self.horizon}, {len(ids)}, ...], got {list(values.shape)}")
        k, slots = self._split(ids)
        x[k * self.horizon + torch.arange(self.horizon, device=self.device).unsqueeze(1), slots] = values

    @property
    def bytes_per_step(self) -> float:
        """Buffer size in bytes per collected step, including start states and the extra row."""
        return sum(x.nbytes for x in self._buffers()) / (self.num_rows * self.num_slots)

    # ------------------------------------------------------------------------------------------------- parts

    def _buffers(self) -> list[Tensor]:
        columns = [self._actions, self._log_prob, self._values, self._valid, self._final_values]
        return [*self._inputs.values(), *self._states, *columns, self.advantages, self.returns]

    def _begin(self) -> None:
        """Start an empty rollout. Final values, advantages and returns become NaN, so that stale ones are noticed."""
        self._inputs_written = self._actions_written = self._states_written = 0
        self.complete = False  # true once all rows and the bootstrap values are written
        for x in self._buffers() if self.poison else (self._final_values, self.advantages, self.returns):
            x.fill_(_poison_of(x.dtype))

    def _out_of_order(self, what: str) -> RuntimeError:
        return RuntimeError(
            f"{what} written out of order; written so far: {self._inputs_written} rows of inputs, {self._states_written} "
            f"states, {self._actions_written} actions{', bootstrap values' if self.complete else ''}"
        )

    def _require_complete(self, what: str) -> None:
        if not self.complete:
            raise RuntimeError(
                f"cannot {what}: the rollout is incomplete, with {self._inputs_written} of {self.num_rows + 1} rows of inputs "
                f"and {self._actions_written} of {self.num_rows} actions; complete it with write_bootstrap"
            )

    def _require_outcome(self, t: int, what: str) -> None:
        if t < 1:
            raise RuntimeError(f"{what} at row {t}: a rollout's first transition ends at row 1; use row 1 or later")
        if self._inputs_written != t + 1:
            raise self._out_of_order(f"{what} at row {t}")

    def _split(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Split segment ids [M] into k [M], the segment's index within its slot, and slots [M]."""
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < self.num_segments:
            raise IndexError(
                f"segment ids must be from 0 to {self.num_segments - 1}, got {int(ids.min())} to {int(ids.max())}"
            )
        ids = ids.to(self.device)
        return ids // self.num_slots, ids % self.num_slots

    def _index(self, rows: Tensor, slots: Tensor, steps: int) -> Tensor:
        """Return the indices [steps * M] of `steps` rows from `rows` [M] on, with the time and slot axes flattened."""
        times = rows + torch.arange(steps, device=self.device).unsqueeze(1)
        return (times * self.num_slots + slots).flatten()

    def _state_at(self, index: Tensor, slots: Tensor) -> State:
        """Return stored state number index[m] of slot slots[m], for every m: leaves [layers, M, hidden]."""
        return tuple(store.transpose(0, 1)[:, index, slots] for store in self._states)


def experience_bytes(
    spec: Spec, num_slots: int, horizon: int, segments_per_slot: int, state_shapes: Sequence[tuple[int, int]]
) -> int:
    """Return the size of the experience buffer with these arguments, without the extra row and the states for burn-in."""
    inputs = [(shape, dtype) for shape, dtype in {**spec, **ALWAYS_STORED}.values()]
    floats = [((), torch.float32)] * 5  # log_prob, values, final_values, advantages, returns
    row = sum(
        math.prod(shape) * (getattr(torch, dtype) if isinstance(dtype, str) else dtype).itemsize
        for shape, dtype in (*inputs, *floats, ((), torch.bool))
    )
    state = sum(layers * hidden for layers, hidden in state_shapes) * torch.float32.itemsize
    return num_slots * segments_per_slot * (horizon * row + state)


def _write(row: Tensor, value: Tensor, name: str) -> None:
    """Copy `value` into `row`, a view of the buffer; raise ValueError if the shapes differ or the dtype cannot be cast."""
    if value.shape != row.shape or not _can_store(value.dtype, row.dtype):
        raise _misfit(name, value, row)
    row.copy_(value)


def _can_store(given: torch.dtype, stored: torch.dtype) -> bool:
    return given == stored or torch.can_cast(given, stored)


def _misfit(name: str, value: Tensor, row: Tensor) -> ValueError:
    return ValueError(
        f"{name} is {value.dtype} {list(value.shape)}, but the experience stores it as {row.dtype} {list(row.shape)}"
    )


def _poison_of(dtype: torch.dtype) -> float | int | bool:
    if dtype.is_floating_point:
        return torch.nan
    return True if dtype == torch.bool else torch.iinfo(dtype).max

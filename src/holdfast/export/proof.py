"""The proof that an exported file is the policy: it is replayed on a recorded trajectory and compared step by step."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import psutil

from holdfast.errors import SettingsError, lack_of_memory, one_line
from holdfast.export.interface import Interface, Port, choice_sizes, greedy_actions, num_choices
from holdfast.export.trajectory import Trajectory

TOLERANCE = 1e-5
ROUNDING = 1e-4  # below, a difference may be rounding that has grown over many steps
BATCHES = (7, 1)  # besides all slots of the trajectory
MAX_BYTES = 2**32  # of a trajectory
SUFFIX = ".proof.npz"


class Runnable(Protocol):
    """A loaded file: its metadata, and one step for arrays by name."""

    metadata: dict[str, str]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]: ...


@dataclass(frozen=True)
class Proof:
    """How far an exported file is from the policy, over all outputs and states of a trajectory.

    largest_difference: absolute; relative to the policy's value where that is larger than 1.
    actions, other_actions: how many greedy actions were compared, and in how many a choice was not the policy's.
    largest_lead: the most by which the policy's score of its choice exceeded that of the file's choice, where they differ. If it is as
    small as the differences between outputs, both choices are right: float32 cannot tell them apart.
    """

    steps: int
    slots: int
    episodes: int
    batches: tuple[int, ...]
    largest_difference: float
    place: str  # of the largest difference
    actions: int
    other_actions: int = 0
    first_other_action: str = ""  # its place
    largest_lead: float = 0.0

    @property
    def actions_equal(self) -> bool:
        """Whether every choice was the policy's. Real-valued actions are outputs, and compared as such."""
        return self.other_actions == 0

    @property
    def holds(self) -> bool:
        return self.actions_equal and self.largest_difference <= TOLERANCE

    def __str__(self) -> str:
        actions = "equal" if self.actions_equal else f"equal but for {self.other_actions} of {self.actions:,}"
        batches = ", ".join(map(str, self.batches))
        return (
            f"{self.steps:,} steps in {self.slots} slots with {self.episodes:,} episodes, in batches of {batches}: "
            f"actions {actions}, largest difference {self.largest_difference:.1e}"
        )

    @property
    def _hint(self) -> str:
        if not self.actions_equal or self.largest_difference > ROUNDING:
            return ""
        return (
            "\nAll actions are equal, and rounding that grows in the memory explains so small a difference. "
            "Prove it on other episodes with --seed, or export an agent that was trained for longer."
        )

    def require(self, what: str) -> None:
        """Raise SettingsError unless the proof holds."""
        if self.largest_difference > TOLERANCE:
            size = f"by {self.largest_difference:.1e}, more than {TOLERANCE:.0e}"
            raise SettingsError(f"{what} differs from the policy {size}, at {self.place}.{self._hint}")
        if not self.actions_equal:
            raise SettingsError(
                f"{what} chooses another action than the policy in {self.other_actions} of {self.actions:,} cases, first at "
                f"{self.first_other_action}.\nThe policy's scores of the two actions differ by up to {self.largest_lead:.1e}."
            )


def prove(loaded: Runnable, interface: Interface, recorded: Trajectory, batches: tuple[int, ...] = BATCHES) -> Proof:
    """Replay the trajectory with a state of the file's own, in batches of all slots and of `batches`, and compare."""
    sizes = sorted({recorded.slots, *(size for size in batches if size < recorded.slots)}, reverse=True)
    compared = Comparison(json.loads(loaded.metadata["action_space"]))
    for size in sizes:
        state = {port.name: np.zeros(port.full_shape(size), port.dtype) for port in interface.state_inputs}
        for step in range(recorded.steps):
            inputs = {name: np.ascontiguousarray(x[step, :size]) for name, x in recorded.inputs.items()}
            found = loaded.run({port.name: (inputs | state)[port.name] for port in interface.inputs})
            expected = {
                port.name: recorded.outputs[port.name][step].take(range(size), port.axis) for port in interface.outputs
            }
            for port in interface.outputs:
                compared.add_output(port, found[port.name], expected[port.name], step)
            compared.add_actions(found, expected, recorded.actions[step, :size], step)
            both = zip(interface.state_inputs, interface.state_outputs, strict=True)
            state = {into.name: found[out.name] for into, out in both}
    return compared.proof(recorded, tuple(sizes))


class Comparison:
    """Collects what differs. space: the metadata `action_space`."""

    def __init__(self, space: Mapping[str, Any]):
        self.space = space
        self.largest, self.place = 0.0, "no place"
        self.actions, self.other_actions, self.first_other_action, self.largest_lead = 0, 0, "", 0.0

    def add_output(self, port: Port, found: np.ndarray, expected: np.ndarray, step: int) -> None:
        gap = difference(found, expected)
        if (largest := float(gap.max(initial=0.0))) > self.largest:
            slot = np.unravel_index(gap.argmax(), gap.shape)[port.axis]
            size = expected.shape[port.axis]
            self.largest, self.place = largest, f"{port.name}, step {step}, slot {slot}, batch of {size}"

    def add_actions(
        self, found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], actions: np.ndarray, step: int
    ) -> None:
        """Compare the actions that follow from the outputs `found` with those that the policy took, [B, ...]."""
        size, count = len(actions), num_choices(self.space)
        chosen, taken = (x.reshape(size, -1) for x in (greedy_actions(self.space, found), actions))
        count = taken.shape[1] if count is None else count
        self.add_output(Port("action", (), "float32"), chosen[:, count:], taken[:, count:], step)
        differs = np.flatnonzero((chosen[:, :count] != taken[:, :count]).any(1))
        self.actions, self.other_actions = self.actions + size, self.other_actions + len(differs)
        for slot in differs:
            self.first_other_action = self.first_other_action or f"step {step}, slot {slot}, batch of {size}"
            self.largest_lead = max(self.largest_lead, self._lead(found["logits"][slot], expected["logits"][slot]))

    def _lead(self, found: np.ndarray, expected: np.ndarray) -> float:
        """Return by how much the best logits of `expected` [P] exceed those of the choices that `found` [P] makes."""
        ends = np.cumsum(choice_sizes(self.space))[:-1]
        parts = zip(np.split(found, ends), np.split(expected, ends), strict=True)
        return max(float(theirs.max() - theirs[ours.argmax()]) for ours, theirs in parts)

    def proof(self, recorded: Trajectory, sizes: tuple[int, ...]) -> Proof:
        counts = (recorded.steps, recorded.slots, recorded.episodes, sizes, self.largest, self.place)
        return Proof(*counts, self.actions, self.other_actions, self.first_other_action, self.largest_lead)


def difference(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return |found - expected|, divided by |expected| where that is larger than 1; infinite for NaN and other shapes."""
    if found.shape != expected.shape:
        return np.full(expected.shape, math.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(found.astype(np.float64) - expected) / np.maximum(1.0, np.abs(expected.astype(np.float64)))
    return np.where(found == expected, 0.0, np.where(np.isnan(gap), math.inf, gap))


# ------------------------------------------------------------------------------------------------- the stored proof


def pack(proof: Proof, recorded: Trajectory, kind: str, data: bytes, metadata: Mapping[str, str]) -> bytes:
    """Return the content of the proof file: the trajectory, and the figures as JSON."""
    figures = {
        "kind": kind,
        "file_sha256": hashlib.sha256(data).hexdigest(),
        "tolerance": TOLERANCE,
        "checkpoint_sha256": metadata.get("checkpoint_sha256", ""),
        **asdict(proof),
        "actions_equal": proof.actions_equal,
    }
    arrays = {"actions": recorded.actions, "figures": np.array(json.dumps(figures))}
    arrays |= {f"inputs/{name}": array for name, array in recorded.inputs.items()}
    arrays |= {f"outputs/{name}": array for name, array in recorded.outputs.items()}
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpack(data: bytes, where: str) -> tuple[Trajectory, dict[str, Any]]:
    """Read a proof file without running anything in it; raise SettingsError if it is none, or damaged."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MAX_BYTES:
            raise ValueError(f"{size:,} bytes, but the limit is {MAX_BYTES:,}")
        if lack := lack_of_memory(size, psutil.virtual_memory().available):
            raise ValueError(f"needs {lack}")
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        figures = json.loads(str(arrays.pop("figures")[()]))
        actions = arrays.pop("actions")
        sides: dict[str, dict[str, np.ndarray]] = {"inputs": {}, "outputs": {}}
        for name, array in arrays.items():
            side, _, port = name.partition("/")
            sides[side][port] = array
        if figures["kind"] not in ("onnx", "torch") or not isinstance(figures["file_sha256"], str):
            raise ValueError("its figures are incomplete")
        recorded = Trajectory(**sides, actions=actions)
        if recorded.inputs["first"].ndim != 2 or 0 in recorded.inputs["first"].shape:
            raise ValueError("it has no steps")
    except Exception as error:  # a damaged file can cause any exception
        raise SettingsError(f"{where}: damaged, or not a proof of holdfast export ({one_line(error, 100)}).") from error
    return recorded, figures


def check_shapes(interface: Interface, recorded: Trajectory, where: str) -> None:
    """Raise SettingsError unless the trajectory has exactly what the interface takes and returns."""
    steps, slots = recorded.steps, recorded.slots
    inputs = [port for port in interface.inputs if port not in interface.state_inputs]
    for ports, arrays in ((inputs, recorded.inputs), (interface.outputs, recorded.outputs)):
        wanted = {port.name: ((steps, *port.full_shape(slots)), np.dtype(port.dtype)) for port in ports}
        given = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        if wanted != given:
            raise SettingsError(f"{where}: its trajectory does not belong to the inputs and outputs of the file.")
    if recorded.actions.shape[:2] != (steps, slots):
        raise SettingsError(f"{where}: its actions do not belong to its {steps} steps of {slots} slots.")

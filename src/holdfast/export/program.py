"""The step of a policy as a torch.export program: traced once, saved, loaded."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import numpy as np
import torch
from torch.export import Dim, ExportedProgram

from holdfast.errors import HoldfastError, SettingsError, one_line, place_of
from holdfast.export.interface import BATCH
from holdfast.export.step import Step

METADATA = "holdfast.json"
EXAMPLE_ROWS = 3  # torch.export may treat 0 and 1 as constants
NOISY = ("torch", "onnxscript", "onnx_ir")


class Program:
    """A loaded program. run: one step for arrays by name."""

    def __init__(self, data: bytes):
        extra = {METADATA: ""}
        with quiet():
            # This runs code of the file: see docs/export.md.
            self.module = torch.export.load(io.BytesIO(data), extra_files=extra).module()
        self.metadata: dict[str, str] = json.loads(extra[METADATA])

    @torch.no_grad()
    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = self.module(**{name: torch.from_numpy(array) for name, array in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}


def trace(step: Step) -> ExportedProgram:
    """Trace the step with a batch of any size; raise SettingsError with the place in the user's code if that fails."""
    inputs = step.example(EXAMPLE_ROWS)
    rows = Dim(BATCH, min=1)
    shapes = {port.name: {port.axis: rows} for port in step.interface.inputs}
    try:
        with quiet():
            program = torch.export.export(step, (), inputs, dynamic_shapes=shapes, strict=False)
    except HoldfastError:
        raise
    except Exception as error:
        raise cannot_export(step, error) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths on this machine
    program.graph.eliminate_dead_code()  # the choice of an action
    program.graph_module.recompile()
    return program


def cannot_export(step: Step, error: Exception) -> SettingsError:
    name = type(step.policy).__name__
    if "Constraints violated" in str(error):
        return SettingsError(
            f"{name} cannot be exported: its code fixes the number of rows.\n"
            "Write x.shape[0] instead of len(x), and no number in its place."
        )
    said = f"{type(error).__name__}{place_of(error)}: {one_line(error, 160)}"
    return SettingsError(
        f"{name} cannot be exported: {said}\n"
        "The code of an exported policy cannot look at values: no .item(), .numpy(), or `if` on a tensor."
    )


def save(program: ExportedProgram, metadata: Mapping[str, str]) -> bytes:
    file = io.BytesIO()
    with quiet():
        torch.export.save(program, file, extra_files={METADATA: json.dumps(dict(metadata))})
    return file.getvalue()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what torch's exporters say about themselves."""
    levels = {name: logging.getLogger(name).level for name in NOISY}
    # Some messages go past the loggers to stderr, such as the graph up to an operator that cannot be traced.
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        for name in NOISY:
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)

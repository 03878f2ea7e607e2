"""A traced step as an ONNX model, and the model in onnxruntime."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from holdfast.errors import SettingsError, one_line
from holdfast.export.interface import BATCH, Interface
from holdfast.export.program import quiet


class OnnxModel:
    """A model loaded by onnxruntime. run: one step for arrays by name."""

    def __init__(self, data: bytes):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self.metadata: dict[str, str] = dict(self.session.get_modelmeta().custom_metadata_map)
        self._outputs = [output.name for output in self.session.get_outputs()]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        arrays: Any = self.session.run(self._outputs, dict(inputs))
        return dict(zip(self._outputs, arrays, strict=True))


def check_packages(to_convert: bool) -> None:
    """Raise SettingsError unless what ONNX needs is installed: onnxruntime, and more to convert a policy."""
    try:
        import onnxruntime  # noqa: F401

        if to_convert:
            import onnx  # noqa: F401
            import onnxscript  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            f"ONNX needs a package that is not installed ({one_line(error, 120)}).\n"
            "Install it with: pip install onnx onnxruntime onnxscript"
        ) from error


def convert(program: ExportedProgram, interface: Interface, metadata: Mapping[str, str]) -> bytes:
    """Return the ONNX model of a traced step, with the names of the interface and one name for the batch axis."""
    inputs, outputs = ([port.name for port in ports] for ports in (interface.inputs, interface.outputs))
    try:
        with quiet():
            exported: Any = torch.onnx.export(
                program, input_names=inputs, output_names=outputs, dynamo=True, verbose=False
            )
            model = exported.model_proto
    except Exception as error:
        cause = error.__cause__ or error  # the exporter wraps the error of one operator in a page of text
        operator = re.search(r"target=(torch\.ops\.[\w.]+)", str(cause))
        reason = f"ONNX has no form of {operator[1]}" if operator else one_line(cause)
        raise SettingsError(
            f"the policy cannot be exported to ONNX: {reason}.\nReplace the operator in the policy, or use --torch."
        ) from error
    graph = model.graph
    graph.ClearField("metadata_props")
    for node in graph.node:
        node.ClearField("metadata_props")  # paths on this machine
        node.ClearField("doc_string")
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.ClearField("metadata_props")
    for ports, values in ((interface.inputs, graph.input), (interface.outputs, graph.output)):
        if [port.name for port in ports] != [value.name for value in values]:
            raise SettingsError(
                f"the policy cannot be exported to ONNX: torch's exporter made {[value.name for value in values]} of "
                f"{[port.name for port in ports]}. Export it with --torch."
            )
        for port, value in zip(ports, values, strict=True):
            value.type.tensor_type.shape.dim[port.axis].dim_param = BATCH
    graph.ClearField("value_info")  # shapes inside, in terms of the former name of the batch axis
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    try:
        return model.SerializeToString()
    except Exception as error:  # protobuf's limit of 2 GB
        raise SettingsError(
            f"the policy is too large for one ONNX file: {one_line(error, 120)}. Use --torch."
        ) from error

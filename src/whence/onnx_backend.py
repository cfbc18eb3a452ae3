"""whence as a backend of the `onnx` package, so that its own test suite, and anything else written
to that interface, runs on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from whence.api import compile_model
from whence.errors import UnsupportedError
from whence.frontends.onnx.reader import read_onnx
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.types import DType


class WhenceRep(BackendRep):
    """A model that was prepared: `run` takes the inputs in order, or by name."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        if isinstance(inputs, dict):
            outputs = self._executable(**inputs)
        else:
            outputs = self._executable(*(inputs if isinstance(inputs, list | tuple) else [inputs]))
        return outputs if isinstance(outputs, tuple) else (outputs,)


class WhenceBackend(Backend):
    """Compiles for the CPU, each model for an engine of its own."""

    @classmethod
    def engine(cls) -> Engine:
        """What the next model is prepared for. A subclass may let models share one."""
        return Engine()

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> WhenceRep:
        super().prepare(model, device, **kwargs)
        return cls._compile(model, device)

    @classmethod
    def _compile(cls, model: onnx.ModelProto, device: str) -> WhenceRep:
        if not cls.supports_device(device):
            raise UnsupportedError(f"whence runs on the CPU, not on '{device}'")
        return WhenceRep(compile_model(read_onnx(model), engine=cls.engine()))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> Any:
        """One operator, as a model of its own."""
        values = [
            np.asarray(value)
            for value in (inputs if isinstance(inputs, list | tuple) else [inputs])
        ]
        names = [name for name in node.input if name]
        declared = [
            onnx.helper.make_tensor_value_info(name, DType.of(value), value.shape)
            for name, value in zip(names, values, strict=True)
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", declared, results)
        opsets = [
            onnx.helper.make_opsetid(
                "", kwargs.get("opset_version", onnx.defs.onnx_opset_version())
            )
        ]
        if node.domain:
            opsets.append(
                onnx.helper.make_opsetid(
                    node.domain,
                    onnx.defs.get_schema(node.op_type, domain=node.domain).since_version,
                )
            )
        # The types of the outputs are not known yet, which ONNX's checker would not have.
        outputs = cls._compile(onnx.helper.make_model(graph, opset_imports=opsets), device).run(
            values
        )
        return namedtupledict("Outputs", [result.name for result in results])(*outputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return bool(Device(device).type == DeviceType.CPU)


is_compatible = WhenceBackend.is_compatible
prepare = WhenceBackend.prepare
run = WhenceBackend.run_model
run_node = WhenceBackend.run_node
supports_device = WhenceBackend.supports_device

"""TFLite models changed field by field: shapes, types, quantisation, options, constants, wiring."""

from __future__ import annotations

import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.mutation.onnx_mutants import Mutant, quantised
from whence.api import prepare
from whence.errors import WhenceError
from whence.frontends.onnx.reader import read_onnx
from whence.frontends.tflite.writer import write_tflite

_NUMBERS = (-1, 0, 1, 2, 3, 4, 7, 16, 100, -2, (1 << 31) - 1, -(1 << 31))
_SCALES = (0.0, 1.0, 0.1, -0.5, 1e-30, 1e30, float("nan"), float("inf"))
_TYPES = (0, 1, 2, 3, 4, 6, 7, 9)


def written(base: Mutant) -> bytes | None:
    """The model as a TFLite file, half the time on codes; `None` where it cannot be one."""
    if base.chance(0.5):
        quantised(base)
    try:
        graph = read_onnx(base.model)
        prepare(graph, portable=True)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model.tflite"
            write_tflite(graph, path)
            return path.read_bytes()
    except WhenceError:
        return None


class TfliteMutant:
    """A file taken apart into the schema's objects, and changed."""

    def __init__(self, data: bytes, rng: np.random.Generator) -> None:
        self.model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
        self.rng = rng
        self.done: list[str] = []

    def pick(self, among: Any) -> Any:
        return among[int(self.rng.integers(len(among)))]

    def change(self) -> None:
        changes = (
            (self.shape,) * 3 + (self.kind,) + (self.scale,) * 3 + (self.option,) * 4
            + (self.constant,) * 3 + (self.wiring,) * 2 + (self.operator,)
        )  # fmt: skip
        for _ in range(1 + int(self.rng.integers(3))):
            step = self.pick(changes)
            self.done.append(step.__name__)
            step()

    def bytes(self) -> bytes:
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())

    @property
    def graph(self) -> Any:
        return self.model.subgraphs[0]

    def tensor(self) -> Any:
        return self.pick(self.graph.tensors)

    def shape(self) -> None:
        tensor = self.tensor()
        dims = list(tensor.shape) if tensor.shape is not None else []
        if dims:
            dims[int(self.rng.integers(len(dims)))] = self.pick((0, 1, 2, 3, 5, 17, 1 << 20, -1))
        if self.rng.random() < 0.2:
            dims.append(self.pick((0, 1, 2)))
        elif dims and self.rng.random() < 0.2:
            dims.pop()
        tensor.shape = dims

    def kind(self) -> None:
        self.tensor().type = self.pick(_TYPES)

    def scale(self) -> None:
        found = [each for each in self.graph.tensors if each.quantization is not None]
        found = [each.quantization for each in found if each.quantization.scale is not None]
        if not found:
            return
        chosen = self.pick(found)
        scales = [float(each) for each in chosen.scale]
        zeros = [int(each) for each in chosen.zeroPoint] if chosen.zeroPoint is not None else [0]
        what = int(self.rng.integers(5))
        if what == 0 and scales:
            scales[int(self.rng.integers(len(scales)))] = self.pick(_SCALES)
        elif what == 1 and zeros:
            zeros[int(self.rng.integers(len(zeros)))] = self.pick((*_NUMBERS, 127, -128, 255))
        elif what == 2:
            scales.append(0.1)
        elif what == 3:
            zeros.append(1)
        else:
            chosen.quantizedDimension = self.pick(_NUMBERS)
        chosen.scale, chosen.zeroPoint = scales, zeros

    def option(self) -> None:
        found = [each.builtinOptions for each in self.graph.operators or () if each.builtinOptions]
        if not found:
            return
        options = self.pick(found)
        fields = sorted(vars(options))
        if not fields:
            return
        name = self.pick(fields)
        value = getattr(options, name)
        if isinstance(value, bool):
            changed: Any = not value
        elif isinstance(value, int):
            changed = self.pick(_NUMBERS)
        elif isinstance(value, float):
            changed = self.pick(_SCALES)
        elif value is not None and not isinstance(value, str | bytes) and len(value):
            changed = [int(each) for each in value]
            changed[int(self.rng.integers(len(changed)))] = self.pick(_NUMBERS)
        else:
            return
        setattr(options, name, changed)
        try:
            self.bytes()
        except (TypeError, struct.error, OverflowError):
            # Enumerations are a byte in the file, and unsigned numbers have no sign.
            setattr(options, name, self.pick((0, 1, 2, 3, 4, 5, 100)))

    def constant(self) -> None:
        """A number of a constant, or its length."""
        found = [each for each in self.model.buffers if each.data is not None and len(each.data)]
        if not found:
            return
        buffer = self.pick(found)
        data = np.array(buffer.data, np.uint8)
        what = int(self.rng.integers(3))
        if what == 0:
            data[int(self.rng.integers(len(data)))] = self.pick((0, 1, 0x7F, 0x80, 0xFF))
        elif what == 1 and len(data) >= 4:
            at = int(self.rng.integers(len(data) // 4)) * 4
            data[at : at + 4] = np.frombuffer(np.int32(self.pick(_NUMBERS)).tobytes(), np.uint8)
        else:
            data = data[: int(self.rng.integers(len(data) + 1))]
        buffer.data = data

    def wiring(self) -> None:
        if not self.graph.operators:
            return
        operator = self.pick(self.graph.operators)
        inputs = [int(each) for each in operator.inputs] if operator.inputs is not None else []
        if not inputs:
            return
        at = int(self.rng.integers(len(inputs)))
        what = int(self.rng.integers(4))
        if what == 0:
            inputs[at] = int(self.rng.integers(-1, len(self.graph.tensors)))
        elif what == 1:
            other = int(self.rng.integers(len(inputs)))
            inputs[at], inputs[other] = inputs[other], inputs[at]
        elif what == 2:
            inputs.pop()
        else:
            inputs.append(int(self.rng.integers(-1, len(self.graph.tensors))))
        operator.inputs = inputs

    def operator(self) -> None:
        """Another operator on the same operands."""
        if not self.model.operatorCodes:
            return
        code = self.pick(self.model.operatorCodes)
        code.builtinCode = code.deprecatedBuiltinCode = int(self.rng.integers(0, 127))

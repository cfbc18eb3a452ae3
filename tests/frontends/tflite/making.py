"""Small TFLite and Circle models for tests, and the two ways to run one: LiteRT, and whence's
reader with its interpreter.

    model = Model()
    x = model.input([1, 4])
    model.output(model.op("SOFTMAX", [x], [1, 4], beta=1.0))
    check(model, [np.ones((1, 4), np.float32)])

The files are written with the object interface that the schemas' generators provide: LiteRT's own
for TFLite, `circle_schema` for Circle.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import circle_schema.v0_10.circle as circle_modules
import flatbuffers
import numpy as np
import onert.infer
from ai_edge_litert import schema_py_generated as tflite_schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from whence.frontends.tflite.reader import read_tflite
from whence.graph.graph import Graph
from whence.graph.interpreter import run

# Operators whose options are not called like them.
_OPTIONS = {
    "ARG_MAX": "ArgMaxOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "BIDIRECTIONAL_SEQUENCE_LSTM": "BidirectionalSequenceLSTMOptions",
    "GREATER_EQUAL": "GreaterEqualOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "NON_MAX_SUPPRESSION_V4": "NonMaxSuppressionV4Options",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "RNN": "RNNOptions",
    "ROPE": "RoPEOptions",
    "SUM": "ReducerOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
}
_TYPES = {
    "float32": "FLOAT32",
    "float16": "FLOAT16",
    "float64": "FLOAT64",
    "int8": "INT8",
    "uint8": "UINT8",
    "int16": "INT16",
    "uint16": "UINT16",
    "int32": "INT32",
    "uint32": "UINT32",
    "int64": "INT64",
    "uint64": "UINT64",
    "bool": "BOOL",
    "complex64": "COMPLEX64",
}


@cache
def _classes(circle: bool) -> dict[str, Any]:
    """The classes of a schema by name."""
    if not circle:
        return dict(vars(tflite_schema))
    found: dict[str, Any] = {}
    for module in vars(circle_modules).values():
        if type(module) is type(re):
            found.update(
                {name: each for name, each in vars(module).items() if isinstance(each, type)}
            )
    return found


@dataclass(frozen=True)
class Quantised:
    """How a tensor is quantised: one scale, or one per slice along `axis`."""

    scale: float | Sequence[float]
    zero: int | Sequence[int] = 0
    axis: int = 0


class Subgraph:
    """One subgraph being written. Tensors are known by their index."""

    def __init__(self, model: Model, name: str) -> None:
        self._model = model
        self.made = model.make(
            "SubGraphT", name=name.encode(), tensors=[], inputs=[], outputs=[], operators=[]
        )

    def tensor(
        self,
        shape: Sequence[int],
        dtype: Any = np.float32,
        quantised: Quantised | None = None,
        *,
        name: str = "",
        data: bytes | None = None,
        variable: bool = False,
        signature: Sequence[int] | None = None,
        type_name: str = "",
    ) -> int:
        make, tensors = self._model.make, self.made.tensors
        kind = self._model.number("TensorType", type_name or _TYPES[np.dtype(dtype).name])
        name = name or f"{self.made.name.decode()}/t{len(tensors)}"
        made = make(
            "TensorT",
            shape=list(shape),
            type=kind,
            name=name.encode(),
            hasRank=True,
            isVariable=variable,
        )
        if signature is not None:
            made.shapeSignature = list(signature)
        if data is not None:
            self._model.buffers.append(make("BufferT", data=np.frombuffer(data, np.uint8)))
            made.buffer = len(self._model.buffers) - 1
        if quantised is not None:
            scales = np.atleast_1d(np.asarray(quantised.scale, np.float32))
            zeros = np.broadcast_to(np.asarray(quantised.zero, np.int64), scales.shape)
            made.quantization = make(
                "QuantizationParametersT",
                scale=scales.tolist(),
                zeroPoint=zeros.tolist(),
                quantizedDimension=quantised.axis,
                min=None,
                max=None,
            )
        tensors.append(made)
        return len(tensors) - 1

    def input(
        self,
        shape: Sequence[int],
        dtype: Any = np.float32,
        quantised: Quantised | None = None,
        **more: Any,
    ) -> int:
        index = self.tensor(shape, dtype, quantised, **more)
        self.made.inputs.append(index)
        return index

    def const(
        self, value: Any, dtype: Any = None, quantised: Quantised | None = None, **more: Any
    ) -> int:
        array = np.asarray(value, dtype)
        if array.dtype == np.float64 and dtype is None:
            array = array.astype(np.float32)
        return self.tensor(array.shape, array.dtype, quantised, data=array.tobytes(), **more)

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        shape: Sequence[int] | None = None,
        dtype: Any = np.float32,
        quantised: Quantised | None = None,
        *,
        outputs: Sequence[int] | None = None,
        options: str = "",
        custom: bytes | None = None,
        version: int = 1,
        intermediates: Sequence[int] | None = None,
        **fields: Any,
    ) -> int:
        """An operator; its output is a tensor made of `shape` and so on, unless `outputs` are
        given. Returns the first output.
        """
        model = self._model
        if outputs is None:
            assert shape is not None
            outputs = [self.tensor(shape, dtype, quantised)]
        made = model.make(
            "OperatorT",
            opcodeIndex=model.opcode(name, version),
            inputs=list(inputs),
            outputs=list(outputs),
        )
        if intermediates is not None:
            made.intermediates = list(intermediates)
        if custom is not None:
            made.customOptions = np.frombuffer(custom, np.uint8)
        chosen = options or _OPTIONS.get(name) or model.options_of(name)
        if chosen is not None:
            made.builtinOptions = model.make(
                chosen + "T", **{_camel(key): value for key, value in fields.items()}
            )
            made.builtinOptionsType = model.number("BuiltinOptions", chosen)
        else:
            assert not fields, f"{name} has no options"
        self.made.operators.append(made)
        return outputs[0] if outputs else -1

    def output(self, *tensors: int) -> None:
        self.made.outputs.extend(tensors)


class Model(Subgraph):
    """A model being written: its own methods are those of the first subgraph."""

    def __init__(self, *, circle: bool = False) -> None:
        self.circle = circle
        self._classes = _classes(circle)
        self.buffers: list[Any] = [self.make("BufferT")]
        self.metadata: dict[str, bytes] = {}
        self._codes: dict[tuple[str, int], int] = {}
        self._subgraphs: list[Subgraph] = [self]
        super().__init__(self, "main")

    def subgraph(self, name: str) -> tuple[int, Subgraph]:
        """Another subgraph, with its index."""
        self._subgraphs.append(Subgraph(self, name))
        return len(self._subgraphs) - 1, self._subgraphs[-1]

    def make(self, kind: str, **fields: Any) -> Any:
        made = self._classes[kind]()
        for name, value in fields.items():
            assert hasattr(made, name), f"{kind} has no field {name}"
            setattr(made, name, value)
        return made

    def number(self, enum: str, name: str) -> int:
        return int(getattr(self._classes[enum], name))

    def opcode(self, name: str, version: int) -> int:
        return self._codes.setdefault((name, version), len(self._codes))

    def options_of(self, name: str) -> str | None:
        """The class of an operator's options, when it has a class called like the operator."""
        wanted = name.replace("_", "").lower() + "options"
        found = [each[:-1] for each in self._classes if each.lower() == wanted + "t"]
        return next(
            (each for each in found if hasattr(self._classes["BuiltinOptions"], each)), None
        )

    def bytes(self) -> bytes:
        codes = []
        for name, version in self._codes:
            builtin, _, custom = name.partition(":")
            number = self.number("BuiltinOperator", builtin)
            code = self.make(
                "OperatorCodeT",
                builtinCode=number,
                deprecatedBuiltinCode=min(number, 127),
                version=version,
            )
            code.customCode = custom.encode() or None
            codes.append(code)
        extra = [
            self.make("BufferT", data=np.frombuffer(data, np.uint8))
            for data in self.metadata.values()
        ]
        metadata = [
            self.make("MetadataT", name=name.encode(), buffer=len(self.buffers) + i)
            for i, name in enumerate(self.metadata)
        ]
        whole = self.make(
            "ModelT",
            version=0 if self.circle else 3,
            operatorCodes=codes,
            subgraphs=[each.made for each in self._subgraphs],
            buffers=self.buffers + extra,
            metadata=metadata or None,
        )
        builder = flatbuffers.Builder(1024)
        builder.Finish(whole.Pack(builder), file_identifier=b"CIR0" if self.circle else b"TFL3")
        return bytes(builder.Output())


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def write(model: Model | bytes, folder: Path, name: str = "model") -> Path:
    circle = isinstance(model, Model) and model.circle
    path = folder / f"{name}.{'circle' if circle else 'tflite'}"
    path.write_bytes(model.bytes() if isinstance(model, Model) else model)
    return path


def read(model: Model | bytes) -> Graph:
    """The graph that whence reads."""
    with tempfile.TemporaryDirectory() as folder:
        return read_tflite(write(model, Path(folder)))


def run_whence(model: Model | bytes, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    graph = read(model)
    assert graph.ledger.lost() == []
    return [np.asarray(value) for value in run(graph, list(feeds))]


def run_litert(
    model: Model | bytes, feeds: Sequence[np.ndarray], *, reference: bool = True
) -> list[np.ndarray]:
    """The outputs by LiteRT's reference kernels, or by those it uses normally."""
    content = model.bytes() if isinstance(model, Model) else model
    kind = (
        OpResolverType.BUILTIN_REF
        if reference
        else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    interpreter = Interpreter(
        model_content=content, experimental_op_resolver_type=kind, num_threads=1
    )
    details = interpreter.get_input_details()
    for each, value in zip(details, feeds, strict=True):
        if tuple(each["shape"]) != value.shape:
            interpreter.resize_tensor_input(each["index"], value.shape)
    interpreter.allocate_tensors()
    for each, value in zip(details, feeds, strict=True):
        interpreter.set_tensor(each["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]


def run_onert(model: Model, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a Circle model by Samsung's runtime."""
    with tempfile.TemporaryDirectory() as folder:
        session = onert.infer.session(str(write(model, Path(folder))), backends="cpu")
        return [np.asarray(value) for value in session.infer(list(feeds))]


def compare(
    ours: Sequence[np.ndarray],
    theirs: Sequence[np.ndarray],
    *,
    relative: float = 1e-5,
    quanta: int = 1,
) -> None:
    """Integers of 8 and 16 bits within `quanta`, other integers exactly, real numbers within
    `relative` of the largest.
    """
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype
        assert mine.shape == other.shape
        if mine.dtype.kind in "fc":
            finite = other[np.isfinite(other)]
            np.testing.assert_allclose(
                mine, other, rtol=relative, atol=relative * float(np.abs(finite).max(initial=0.0))
            )
        elif mine.dtype.itemsize <= 2 and mine.dtype.kind in "iu":
            assert (
                int(np.abs(mine.astype(np.int64) - other.astype(np.int64)).max(initial=0)) <= quanta
            )
        else:
            np.testing.assert_array_equal(mine, other)


def check(
    model: Model,
    feeds: Sequence[np.ndarray],
    *,
    relative: float = 1e-5,
    quanta: int = 1,
    reference: bool = True,
) -> list[np.ndarray]:
    """whence and LiteRT agree on a model; returns whence's outputs. Some operators have no
    reference kernel there.
    """
    content = model.bytes()
    ours = run_whence(content, feeds)
    compare(ours, run_litert(content, feeds, reference=reference), relative=relative, quanta=quanta)
    return ours

"""Reading an ONNX file into a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto

from whence.errors import InputError, ModelError, UnsupportedError
from whence.extent import is_symbolic, surely_equal
from whence.frontends.files import opened, without_collection
from whence.frontends.naming import check_texts, quoted
from whence.frontends.onnx.builder import OnnxReading, build_graph
from whence.frontends.onnx.control import add_control
from whence.frontends.onnx.large_tensors import LargeTensors
from whence.frontends.onnx.plan import Planner, default_domain
from whence.frontends.onnx.state import STATE, read_state, restore_state
from whence.frontends.onnx.types import TensorReader, TensorSource, value_type
from whence.frontends.onnx.upgrade import Upgrader
from whence.frontends.origin_metadata import (
    EARLIER_TOOL,
    HISTORY,
    SOURCES,
    TOMBSTONES,
    read_history,
    read_sources,
    read_tombstones,
)
from whence.graph.graph import Graph
from whence.graph.merge import without_shape
from whence.ops.binding import Port, disagreement, warn_of_disagreement
from whence.ops.types.inference import Inference
from whence.provenance import Ledger, Reason, Tombstone
from whence.types import UNKNOWN, Dim, TensorType, ValueType, as_dims


def read_onnx(
    source: str | os.PathLike[str] | bytes | ModelProto,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
) -> Graph:
    """The graph of an ONNX model, in operators of the newest opset, with every operator of the file
    in its ledger.

    `shapes` gives the shapes of inputs, by name, where the file leaves them open or others are
    wanted. An initializer that is also listed as an input is a constant, unless a shape is given
    for it: then it is an input. A file that cannot be read is a `ModelError`, one that asks for
    what whence does not have an `UnsupportedError`.
    """
    path = None if isinstance(source, (bytes, ModelProto)) else Path(source)
    try:
        with without_collection():
            if isinstance(source, ModelProto):
                return _read_scalars(source, TensorSource(), shapes or {})
            if isinstance(source, bytes):
                return _read_scalars(_parse(source, None), TensorSource(), shapes or {})
            with opened(Path(source)) as file, LargeTensors(file) as large:
                model = _parse(large.message(), path)
                return _read_scalars(model, TensorSource(path, large.data), shapes or {})
    except UnicodeDecodeError as error:
        raise ModelError(
            f"{_label(path)} has a name that is not UTF-8 text: {error.reason} at byte"
            f" {error.start}"
        ) from None


def _label(path: Path | None) -> str:
    return "the model" if path is None else quoted(str(path))


_OTHER_FORMATS = {b"TFL3": ("TFLite", ".tflite"), b"CIR0": ("Circle", ".circle")}
"""By what stands at byte 4 of their files."""


def _parse(content: bytes, path: Path | None) -> ModelProto:
    model, parsed = ModelProto(), True
    try:
        model.ParseFromString(content)
    except (DecodeError, ValueError):
        parsed = False
    if not (parsed and model.HasField("graph")) and (other := _OTHER_FORMATS.get(content[4:8])):
        raise ModelError(
            f"{_label(path)} is a {other[0]} model, not ONNX: give it a name that ends in"
            f" {other[1]}"
        )
    if not parsed:
        raise ModelError(f"{_label(path)} is not an ONNX model, or is cut off")
    return model


def _read_scalars(
    model: ModelProto, source: TensorSource, shapes: Mapping[str, Sequence[Dim]]
) -> Graph:
    """As `_read`. Some exporters (tf2onnx) declare inputs of unknown rank as scalars: what is wrong
    for scalars is read with their shapes open.
    """
    ports = [Port(value.name, value_type(value.type) or UNKNOWN) for value in model.graph.input]
    given = [_numbers(shapes.get(port.name)) for port in ports]
    wrong = disagreement(ports, given)
    if wrong is not None:
        warn_of_disagreement(ports, given)
    try:
        return _read(model, source, shapes)
    except ModelError as error:
        if wrong is not None:
            raise InputError(f"{wrong}, and the model cannot be run like that: {error}") from error
        scalars = frozenset(
            value.name
            for value in model.graph.input
            if value.name not in shapes
            and isinstance(known := value_type(value.type), TensorType)
            and known.shape == ()
        )
        if not scalars:
            raise
        try:
            return _read(model, source, shapes, scalars)
        except ModelError:
            # What is wrong is something else, said best of the model as it is.
            pass
        raise


def _numbers(shape: Sequence[Dim] | None) -> tuple[int, ...] | None:
    """A shape that is given in numbers; expressions over dimensions are not somebody's choice."""
    dims = () if shape is None else as_dims(shape)
    known = tuple(dim for dim in dims if isinstance(dim, int) and not is_symbolic(dim))
    return known if shape is not None and len(known) == len(dims) else None


def _read(
    model: ModelProto,
    source: TensorSource,
    shapes: Mapping[str, Sequence[Dim]],
    open_inputs: frozenset[str] = frozenset(),
) -> Graph:
    if not model.HasField("graph"):
        raise ModelError(
            f"{_label(source.path)} holds no graph: it is not an ONNX model, or is cut off"
        )
    upgrader = Upgrader(_opsets(model))
    properties = {entry.key: entry.value for entry in model.metadata_props}
    check_texts(
        (*properties, *properties.values(), *(entry.domain for entry in model.opset_import))
    )
    check_texts((model.producer_name, model.producer_version, model.domain, model.doc_string))
    sources = read_sources(properties[SOURCES]) if SOURCES in properties else []
    tensors = TensorReader(*source)
    planner = Planner(tensors, model.functions, sources, continues=SOURCES in properties)
    n_first = len(sources)
    planned = planner.graph(model.graph)
    ledger = Ledger(sources)
    history = read_history(properties[HISTORY], n_first) if HISTORY in properties else {}
    reading = OnnxReading(
        tensors, ledger, Inference(), add_control, n_earlier=n_first, history=history
    )
    graph = Graph(model.graph.name, ledger, reading.inference)
    state = read_state(properties[STATE], model) if STATE in properties else {}
    inputs = _inputs(model, reading, shapes, open_inputs, state)
    build_graph(reading, planned, upgrader, graph, inputs)
    _restore_tombstones(ledger, properties.get(TOMBSTONES), n_first)
    graph.metadata.update(_metadata(model, properties))
    if state:
        arrays = {
            tensor.name: tensors.read(tensor)
            for tensor in model.graph.initializer
            if tensor.name in state
        }
        restore_state(graph, state, arrays)
    graph.files = tensors.files
    graph.dimensions = {n: size for n, size in reading.symbols.items() if not is_symbolic(size)}
    if len(inputs) < len(model.graph.input):
        graph.listed_inputs = tuple(
            (value.name, inputs.get(value.name) or value_type(value.type) or UNKNOWN)
            for value in model.graph.input
            if value.name not in state
        )
    return graph


def _opsets(model: ModelProto) -> dict[str, int]:
    opsets = {default_domain(entry.domain): int(entry.version) for entry in model.opset_import}
    if any(not default_domain(node.domain) for node in model.graph.node):
        # The oldest files leave it out and mean the first opset.
        opsets.setdefault("", 1)
    return opsets


def _inputs(
    model: ModelProto,
    reading: OnnxReading,
    shapes: Mapping[str, Sequence[Dim]],
    open_inputs: frozenset[str],
    state: Mapping[str, str],
) -> dict[str, ValueType]:
    """The inputs that must be given, with their types; of `open_inputs` no shape is believed."""
    constants = {tensor.name for tensor in model.graph.initializer} | {
        tensor.values.name for tensor in model.graph.sparse_initializer
    }
    inputs: dict[str, ValueType] = {}
    for value in model.graph.input:
        if value.name in constants and value.name not in shapes and value.name not in state:
            continue
        if value.name in inputs:
            raise ModelError(f"the model has two inputs named {quoted(value.name)}")
        known = value_type(value.type)
        if known is None:
            raise ModelError(f"the model's input {quoted(value.name)} has no type")
        if value.type.WhichOneof("value") == "sparse_tensor_type":
            raise UnsupportedError(
                f"the model's input {quoted(value.name)} is a sparse tensor, which whence does not"
                " take"
            )
        inputs[value.name] = known
    reading.is_static = all(
        isinstance(kind, TensorType) and kind.is_static for kind in inputs.values()
    )
    if open_inputs:
        reading.trust_shapes = reading.trust_ranks = reading.is_static = False
    for name, shape in shapes.items():
        if name not in inputs:
            raise InputError(
                f"a shape is given for {quoted(name)}; the model's inputs are"
                f" {', '.join(quoted(known) for known in inputs)}"
            )
        inputs[name] = _with_shape(name, inputs[name], shape, reading)
    declared = reading.declared(model.graph.input)
    return {
        name: without_shape(known)
        if name in open_inputs
        else known
        if name in shapes or open_inputs
        else declared.get(name, known)
        for name, known in inputs.items()
    }


def _with_shape(
    name: str, known: ValueType, shape: Sequence[Dim], reading: OnnxReading
) -> ValueType:
    """An input's type with the given shape, which also fixes named dimensions."""
    if not isinstance(known, TensorType):
        raise InputError(
            f"a shape is given for input {quoted(name)}, which is not a tensor but {known}"
        )
    given = TensorType(known.dtype, as_dims(shape))
    if known.shape == () and shape:
        reading.trust_shapes = reading.trust_ranks = False
        return given
    if any(isinstance(dim, int) and dim < 0 for dim in given.shape or ()) or (
        known.shape is not None and len(known.shape) != len(shape)
    ):
        raise InputError(f"shape {list(shape)} is given for input {quoted(name)}, which is {known}")
    for declared, dim in zip(known.shape or (), given.shape or (), strict=False):
        if not isinstance(dim, int):
            continue
        if isinstance(declared, str):
            if not surely_equal(reading.symbols.setdefault(declared, dim), dim):
                reading.trust_shapes = False
        elif declared is not None and declared != dim:
            reading.trust_shapes = False
    return given


def _restore_tombstones(ledger: Ledger, text: str | None, n_first: int) -> None:
    """Enter what former runs removed, and what other tools dropped since."""
    for stone in read_tombstones(text, n_first) if text is not None else ():
        ledger.add_tombstone(stone)
    dropped = frozenset(source.id for source in ledger.lost() if source.id <= n_first)
    if dropped:
        rule = f"in {SOURCES}, but no operator of this file came from it"
        ledger.add_tombstone(Tombstone(0, dropped, Reason.EARLIER, EARLIER_TOOL, rule))


def _metadata(model: ModelProto, properties: Mapping[str, str]) -> dict[str, str]:
    """What the file says about itself, apart from what whence wrote for itself."""
    facts = {
        "onnx.producer_name": model.producer_name,
        "onnx.producer_version": model.producer_version,
        "onnx.domain": model.domain,
        "onnx.model_version": str(model.model_version) if model.model_version else "",
        "onnx.ir_version": str(model.ir_version),
        "onnx.opset": ",".join(
            f"{entry.domain or 'ai.onnx'}={entry.version}" for entry in model.opset_import
        ),
        "onnx.doc_string": model.doc_string,
    }
    own = {key: value for key, value in properties.items() if not key.startswith("whence.")}
    return own | {key: value for key, value in facts.items() if value}

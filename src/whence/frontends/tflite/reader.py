"""Reading a TFLite or Circle file into a graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from whence.errors import InputError, ModelError, UnsupportedError, WhenceError
from whence.frontends.files import content, without_collection
from whence.frontends.importer import OperatorOrigin, located
from whence.frontends.naming import UniqueNames, quoted
from whence.frontends.origin_metadata import LOAD
from whence.frontends.tflite.emitter import Emitter
from whence.frontends.tflite.mapping import OperatorCall
from whence.frontends.tflite.operators import MAPPINGS
from whence.frontends.tflite.records import (
    ModelRecord,
    OperatorRecord,
    SubgraphRecord,
    TensorRecord,
    read_records,
)
from whence.frontends.tflite.scope import GraphScope, SubgraphScope, TfliteReading
from whence.frontends.tflite.sources import TfliteSources, find_sources, metadata_of
from whence.frontends.tflite.tensors import declared_type, default_type
from whence.frontends.tflite.written_back import call_body, is_written_back
from whence.graph.graph import Graph
from whence.graph.node import Node
from whence.ops.types.inference import Inference
from whence.provenance import Ledger, Reason, Tombstone
from whence.types import Dim, TensorType, as_dims


def read_tflite(
    source: str | os.PathLike[str] | bytes, shapes: Mapping[str, Sequence[Dim]] | None = None
) -> Graph:
    """The graph of a TFLite or Circle model, in canonical operators, with every operator of the
    file in its ledger.

    Which of the two it is, the file itself says. The graph is that of the file's first subgraph;
    others are read where operators call them. Inputs have the shapes that LiteRT would allocate
    unless `shapes` gives others, by name; dimensions that the file calls open stay open only where
    the model cannot work on those. A file that cannot be read is a `ModelError`, one that asks for
    what whence does not have an `UnsupportedError`.
    """
    path = None if isinstance(source, bytes) else Path(source)
    label = "the model" if path is None else quoted(str(path))
    model = read_records(source if isinstance(source, bytes) else content(Path(source)), label)
    try:
        with without_collection():
            return _read(model, shapes or {})
    except RecursionError:
        raise UnsupportedError(f"{label}: its subgraphs are nested too deep") from None


def _read(model: ModelRecord, shapes: Mapping[str, Sequence[Dim]]) -> Graph:
    try:
        return _build(model, _inputs(model.subgraphs[0], shapes, default_type), shapes)
    except (ModelError, UnsupportedError):
        # The shape of an open input may be a mere placeholder that the model itself cannot work on.
        inputs = _inputs(model.subgraphs[0], shapes, declared_type)
        if all(kind.is_static for kind in inputs.values()):
            raise
        try:
            return _build(model, inputs, shapes)
        except (ModelError, UnsupportedError) as error:
            names = ", ".join(
                f"{quoted(name)} {kind}" for name, kind in inputs.items() if not kind.is_static
            )
            raise type(error)(
                f"{error} (the file leaves shapes open, give them: {names})"
            ) from error


def _build(
    model: ModelRecord, inputs: Mapping[str, TensorType], shapes: Mapping[str, Sequence[Dim]]
) -> Graph:
    sources = find_sources(model)
    main = model.subgraphs[0]
    ledger, inference = Ledger(sources.operators), Inference()
    graph = Graph(main.name, ledger, inference)
    trust = not any(
        name in shapes and kind.shape != main.tensors[t].shape
        for (name, kind), t in zip(inputs.items(), main.inputs, strict=True)
    )
    scope = GraphScope(
        TfliteReading(
            model, ledger, inference, sources.places, _add_operator, sources.history, trust
        ),
        graph,
    )
    arguments = [
        graph.append(Node(graph.new_id(), "Input", (), (kind,), name=name)).ref()
        for name, kind in inputs.items()
    ]
    results = scope.read(0, arguments)
    for name, ref in zip(_names(main, main.outputs, "output"), results, strict=True):
        graph.append(Node(graph.new_id(), "Output", (ref,), (), name=name))
    _assign(scope)
    _add_tombstones(sources, graph)
    graph.metadata.update(_metadata(model, sources))
    return graph


def _assign(scope: GraphScope) -> None:
    """What the operators of the file assigned last is what the next run begins with."""
    for key, each in scope.assigned.items():
        scope.declare(key)
        emitter = Emitter(scope, each.name, each.place, ())
        if key in scope.reading.names:
            emitter.finish_assignment(key, each)
        elif each.claims:
            emitter.add_tombstone(each.place, Reason.ABSORBED, "no run reads what another assigned")


def _add_operator(subgraph: SubgraphScope, record: OperatorRecord, place: OperatorOrigin) -> None:
    call = OperatorCall(subgraph, record, place)
    mapper = MAPPINGS.get(record.name)
    if mapper is None:
        _unknown(call)
        return
    try:
        if is_written_back(call):
            call_body(call, mapper)
        else:
            mapper(call)
        call.finish()
    except WhenceError as error:
        # What goes wrong inside a subgraph names an operator there already.
        raise located(error, str(call)) from error
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        # Mappings trust that an operator has the inputs it must have, of the shapes they must have;
        # in a malformed file it may not.
        raise ModelError(
            f"{call}: its inputs or options do not fit it: {' '.join(str(error).split())[:160]}"
        ) from error


def _unknown(call: OperatorCall) -> None:
    custom = call.name.removeprefix("CUSTOM:")
    if custom == call.name:
        call.unsupported("whence has no mapping for this operator")
    if custom.startswith("Flex"):
        call.unsupported(
            f"it is TensorFlow's own operator {custom[4:]}; convert the model with builtin"
            " operators only (no SELECT_TF_OPS)"
        )
    call.unsupported(
        "it is a custom operator, whose meaning is in the program that the model was made for and"
        " not in the file"
    )


def _inputs(
    main: SubgraphRecord,
    shapes: Mapping[str, Sequence[Dim]],
    kind_of: Callable[[TensorRecord], TensorType],
) -> dict[str, TensorType]:
    names = _names(main, main.inputs, "input")
    inputs = {
        name: kind_of(main.tensors[index]) for name, index in zip(names, main.inputs, strict=True)
    }
    if len(set(main.inputs)) != len(main.inputs):
        raise ModelError("the model has one tensor as two of its inputs")
    for name, shape in shapes.items():
        known = inputs.get(name)
        if known is None:
            raise InputError(
                f"a shape is given for {quoted(name)}; the model's inputs are"
                f" {', '.join(quoted(each) for each in inputs)}"
            )
        if any(isinstance(dim, int) and dim < 0 for dim in shape) or (
            known.shape and len(known.shape) != len(shape)
        ):
            raise InputError(
                f"shape {list(shape)} is given for input {quoted(name)}, which is {known}"
            )
        inputs[name] = TensorType(known.dtype, as_dims(shape))
    return inputs


def _names(main: SubgraphRecord, tensors: Sequence[int], what: str) -> list[str]:
    """What inputs or outputs are called, no two alike."""
    names = UniqueNames()
    return [
        names.take(main.tensors[index].name or f"{what}_{position}")
        for position, index in enumerate(tensors)
    ]


def _add_tombstones(sources: TfliteSources, graph: Graph) -> None:
    """Account for operators that former tools removed, and subgraphs that nothing calls."""
    ledger = graph.ledger
    for stone in sources.tombstones:
        ledger.add_tombstone(stone)
    left = frozenset(source.id for source in ledger.lost())
    if left:
        ledger.add_tombstone(
            Tombstone(0, left, Reason.DEAD, LOAD, "in a subgraph that nothing calls")
        )


def _metadata(model: ModelRecord, sources: TfliteSources) -> dict[str, str]:
    facts = {
        f"{model.format}.version": str(model.version),
        f"{model.format}.description": model.description,
        "luci.notes": "; ".join(sources.notes),
    }
    return metadata_of(sources) | {key: value for key, value in facts.items() if value}

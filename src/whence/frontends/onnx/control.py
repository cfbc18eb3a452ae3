"""Operators that hold graphs: `If`, `Loop`, `Scan`, `SequenceMap`.

A nested graph is closed. What it reads from outside becomes extra inputs of the operator and of
every graph it holds; outer constants are not passed in, each graph gets its own node for them,
sharing the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from whence.errors import ModelError, UnsupportedError, WhenceError
from whence.frontends.naming import quoted
from whence.frontends.onnx.builder import NodeBuilder, build_graph
from whence.frontends.onnx.flex_attention import PREVIEW, add_flex_attention
from whence.frontends.onnx.microsoft.search import (
    MICROSOFT,
    SEARCHES,
    decoder_inputs,
    search_graphs,
    search_types,
)
from whence.frontends.onnx.plan import PlannedGraph
from whence.frontends.onnx.record import OpRecord, Rewrite
from whence.frontends.origin_metadata import LOAD, OriginMetadata
from whence.graph.graph import Graph
from whence.graph.iterations import row_length, row_type, stacked_type
from whence.graph.merge import common, with_declared_elements, without_shapes
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.provenance import EdgeKind
from whence.types import UNKNOWN, DType, SequenceType, TensorType, ValueType


def add_control(
    build: NodeBuilder,
    record: OpRecord,
    bodies: Mapping[str, PlannedGraph],
    origins: OriginMetadata | None,
) -> None:
    """Make the node of an operator that holds graphs, and the graphs."""
    if (record.domain, record.op) == (PREVIEW, "FlexAttention"):
        add_flex_attention(build, record, bodies, origins)
        return
    if record.domain == MICROSOFT and record.op in SEARCHES:
        wanted, make = search_graphs(record, bodies), _search
    elif record.domain or record.op not in _KINDS:
        raise UnsupportedError(f"{record}: whence knows no operator of this type that holds graphs")
    else:
        batched = record.op == "Scan" and build.upgrader.opsets.get("", 1) < _SCAN_WITHOUT_BATCH
        make = _batched_scan if batched else _KINDS[record.op]
        (record,) = build.upgrader(record, build)
        wanted = ["then_branch", "else_branch"] if record.op == "If" else ["body"]
        missing = [name for name in wanted if name not in bodies]
        if missing:
            raise ModelError(f"{record} lacks its graph '{missing[0]}'")
    make(_Control(build, record, {name: bodies[name] for name in wanted}, origins))


class _Control:
    """One such operator while it is made."""

    def __init__(
        self,
        build: NodeBuilder,
        record: OpRecord,
        planned: Mapping[str, PlannedGraph],
        origins: OriginMetadata | None,
    ) -> None:
        self.build = build
        self.record = record
        self.planned = planned
        self._origins = origins
        self.captured, self._constants = _outer_values(build, record, planned.values())
        self.inputs = [build.type_of(name) or UNKNOWN for name in record.inputs]

    def body(self, name: str, given: Sequence[ValueType]) -> Graph:
        """Make one of the graphs; its own inputs have the given types."""
        planned, build = self.planned[name], self.build
        proto = planned.proto
        if len(proto.input) != len(given):
            raise ModelError(
                f"{self.record}: graph '{name}' has {len(proto.input)} inputs where {len(given)}"
                " are given"
            )
        declared = build.reading.declared(proto.input)
        inputs = {
            value.name: with_declared_elements(kind, declared.get(value.name))
            for value, kind in zip(proto.input, given, strict=True)
        }
        if len(inputs) != len(given):
            raise ModelError(f"{self.record}: graph '{name}' has two inputs of one name")
        for value, ref in self.captured.items():
            # A graph may use the name for a value of its own; then it does not read the outer one,
            # and any name will do.
            inputs[value if value in planned.free else f"{value}\0outer"] = build.graph.type_of(ref)
        graph = Graph(f"{self.record.name}/{name}", build.graph.ledger, build.graph.inference)
        outer = {value: array for value, array in self._constants.items() if value in planned.free}
        build.reading.attempt(self.record, len(planned.records))
        try:
            build_graph(build.reading, planned, build.upgrader, graph, inputs, outer)
        except WhenceError:
            # Another attempt must find the ledger as it was.
            graph.clear()
            raise
        return graph

    def loop_state(self) -> list[ValueType]:
        """The types of a loop's iteration number and condition: numbers, or lists of one number
        where the graph declares them so.
        """
        declared = self.build.reading.declared(self.planned["body"].proto.input[:2])
        ranks = [kind.rank for kind in declared.values() if isinstance(kind, TensorType)]
        ranks += [0] * (2 - len(ranks))
        return [
            TensorType(dtype, (1,) if rank == 1 else ())
            for dtype, rank in zip((DType.I64, DType.BOOL), ranks, strict=True)
        ]

    def finish(self, bodies: Mapping[str, Graph], types: Sequence[ValueType]) -> None:
        record, build = self.record, self.build
        if len(record.outputs) > len(types):
            raise ModelError(
                f"{record} has {len(record.outputs)} outputs, its graph makes {len(types)}"
            )
        # The number of outputs is part of the meaning here, so none is trimmed.
        names = [record.output(index) or build.fresh(record.name) for index in range(len(types))]
        full = record.with_(outputs=names)
        full.domain = record.domain
        main = record.source or build.graph.new_id()
        build.sign(main, self._origins)
        build.append(
            full,
            main,
            build.origin_of(record, self._origins),
            captures=list(self.captured.values()),
            bodies=bodies,
            types=types,
        )


def _outer_values(
    build: NodeBuilder, record: OpRecord, bodies: Iterable[PlannedGraph]
) -> tuple[dict[str, Ref], dict[str, np.ndarray]]:
    """What the graphs read from outside: computed values in order of first use, and constants."""
    captured: dict[str, Ref] = {}
    constants: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(name for body in bodies for name in body.free):
        ref = build.values.get(name)
        if ref is None:
            raise ModelError(
                f"{record}: its graph reads {quoted(name)}, which nothing before it makes"
            )
        value = build.graph.const_value(ref)
        if value is None:
            captured[name] = ref
        else:
            constants[name] = value
    return captured, constants


def _if(control: _Control) -> None:
    if len(control.record.inputs) != 1:
        raise ModelError(
            f"{control.record} has {len(control.record.inputs)} inputs; it takes a condition, and"
            " its branches read other values by their names"
        )
    bodies = {name: control.body(name, ()) for name in ("then_branch", "else_branch")}
    then, otherwise = (body.output_types for body in bodies.values())
    if len(then) != len(otherwise):
        raise ModelError(
            f"{control.record}: its branches have {len(then)} and {len(otherwise)} outputs"
        )
    control.finish(bodies, [common(a, b) for a, b in zip(then, otherwise, strict=True)])


def _loop(control: _Control) -> None:
    """Values carried from iteration to iteration keep their type; their shape may change unless the
    graph says otherwise.
    """
    record = control.record
    record.inputs.extend("" for _ in range(2 - len(record.inputs)))
    start = control.inputs[2:]
    body, kinds = _steady_body(control, start)
    carried, scanned = kinds[: len(start)], kinds[len(start) :]
    # A loop that never runs yields what it started with.
    types = [common(before, after) for before, after in zip(start, carried, strict=True)]
    control.finish({"body": body}, [*types, *(stacked_type(kind, None) for kind in scanned)])


def _steady_body(control: _Control, start: Sequence[ValueType]) -> tuple[Graph, list[ValueType]]:
    """The body for values that keep their shape; made again for any shape if they do not."""
    any_shape = [without_shapes(kind) for kind in start]
    ledger = control.build.graph.ledger
    graves = len(ledger.tombstones)
    try:
        body = control.body("body", [*control.loop_state(), *start])
        kinds = _carried_types(control, body, len(start))
        if start == any_shape or all(
            _keeps(before, after) for before, after in zip(start, kinds, strict=False)
        ):
            return body, kinds
        body.clear()
    except ModelError:
        if start == any_shape:
            raise
    del ledger.tombstones[graves:]
    body = control.body("body", [*control.loop_state(), *any_shape])
    return body, _carried_types(control, body, len(start))


def _carried_types(control: _Control, body: Graph, count: int) -> list[ValueType]:
    kinds = body.output_types[1:]
    if len(kinds) < count:
        raise ModelError(
            f"{control.record}: its graph makes {len(kinds)} values, it carries {count}"
        )
    return kinds


def _keeps(before: ValueType, after: ValueType) -> bool:
    """Is the value after an iteration surely of the type it had before?"""
    if not isinstance(before, TensorType) or not isinstance(after, TensorType):
        return before == after
    if before.shape is None or all(dim is None for dim in before.shape):
        return True
    return (
        after.shape is not None
        and len(after.shape) == len(before.shape)
        and all(
            old is None or old == new for old, new in zip(before.shape, after.shape, strict=True)
        )
    )


def _scan(control: _Control) -> None:
    record = control.record
    n_scans = record.integer("num_scan_inputs", 0)
    n_states = len(record.inputs) - n_scans
    if n_scans < 1 or n_states < 0:
        raise ModelError(f"{record} has {len(record.inputs)} inputs, of which it scans {n_scans}")
    kinds = control.inputs
    axes = record.integers("scan_input_axes") or (0,) * n_scans
    scans = list(zip(kinds[n_states:], axes, strict=False))
    rows = [row_type(*each) for each in scans]
    lengths = (row_length(*each) for each in scans)
    count = next((length for length in lengths if length is not None), None)
    body = control.body("body", [*kinds[:n_states], *rows])
    made = body.output_types
    out_axes = record.integers("scan_output_axes") or (0,) * (len(made) - n_states)
    scanned = [
        stacked_type(kind, count, axis)
        for kind, axis in zip(made[n_states:], out_axes, strict=False)
    ]
    control.finish(
        {"body": body},
        [*(common(a, b) for a, b in zip(kinds, made[:n_states], strict=False)), *scanned],
    )


def _batched_scan(control: _Control) -> None:
    """The Scan of opset 8, which scans every text of a batch: as a Scan over the batch whose body
    is a Scan as it is since opset 9.
    """
    record = control.record
    lengths, states, scans = _split_inputs(record)
    texts = [row_type(kind, 0) for kind in control.inputs[1:]]
    rows = [row_type(kind, 0) for kind in texts[len(states) :]]
    body = control.body("body", [*texts[: len(states)], *rows])
    made = body.output_types
    text = _scan_of_one_text(control, body, texts)
    batch, count = row_length(control.inputs[1], 0), row_length(texts[len(states)], 0)
    inputs = [*states, *scans, *([lengths] if lengths else [])]
    control.record = record.with_(inputs=inputs, attrs={"num_scan_inputs": len(inputs)})
    control.finish(
        {"body": text},
        [
            *(stacked_type(kind, batch) for kind in made[: len(states)]),
            *(stacked_type(stacked_type(kind, count), batch) for kind in made[len(states) :]),
        ],
    )


def _split_inputs(record: OpRecord) -> tuple[str, list[str], list[str]]:
    """The lengths of the texts, if given; the states; what is scanned."""
    n_scans, given = record.integer("num_scan_inputs", 0), record.inputs[1:]
    if not 1 <= n_scans <= len(given):
        raise ModelError(f"{record} has {len(record.inputs)} inputs, of which it scans {n_scans}")
    return record.inputs[0], given[:-n_scans], given[-n_scans:]


def _scan_of_one_text(control: _Control, body: Graph, types: Sequence[ValueType]) -> Graph:
    """The body that runs for every text: a Scan over its states and its rows, which the lengths cut
    short; results are filled up with zeros.
    """
    outer, record, captured = control.build, control.record, control.captured
    lengths, states, scans = _split_inputs(record)
    graph = Graph(f"{record.name}/text", outer.graph.ledger, outer.graph.inference)
    build = NodeBuilder(outer.reading, graph, outer.upgrader, nested=True)
    names = [
        f"{kind}_{index}"
        for kind, part in (("state", states), ("scan", scans))
        for index in range(len(part))
    ]
    for name, kind in zip(names, types, strict=True):
        build.add_input(name, kind)
    rows = names[len(states) :]
    results = [f"result_{index}" for index in range(len(body.outputs))]
    inner = results
    stage = Rewrite(record, build)
    if lengths:
        build.add_input("length", row_type(outer.type_of(lengths) or UNKNOWN, 0))
        zero = stage.ints(0)
        end = stage.op("Unsqueeze", "length", zero)
        rows = [stage.op("Slice", name, zero, end, zero) for name in rows]
        inner = [*results[: len(states)], *(f"{name}_cut" for name in results[len(states) :])]
    for name, ref in captured.items():
        build.add_input(f"{name}\0outer", outer.graph.type_of(ref))
    _append_helpers(build, stage)
    captures = [node.ref() for node in graph.inputs[len(graph.inputs) - len(captured) :]]
    attrs: dict[str, Attr] = {"num_scan_inputs": len(scans)}
    if (directions := record.integers("directions")) is not None:
        attrs["scan_input_directions"] = directions
    inner_types = body.output_types
    count = None if lengths else row_length(types[len(states)], 0)
    scan = record.with_(inputs=[*names[: len(states)], *rows], outputs=inner, attrs=attrs)
    helper = graph.new_id()
    build.append(
        scan,
        helper,
        frozenset((record.source,)),
        captures=captures,
        bodies={"body": body},
        types=[
            *inner_types[: len(states)],
            *(stacked_type(kind, count) for kind in inner_types[len(states) :]),
        ],
    )
    graph.ledger.record(helper, [(record.source, EdgeKind.LOWER)], LOAD, _BATCHED_RULE)
    if lengths:
        full = stage.op("Shape", names[len(states)], start=0, end=1)
        pads = stage.op("Concat", zero, stage.op("Sub", full, end), axis=0)
        for cut, name in zip(inner[len(states) :], results[len(states) :], strict=True):
            # Only the first axis is filled up, whatever the rank.
            stage.into([name], "Pad", cut, pads, "", zero)
        _append_helpers(build, stage)
    for name in results:
        build.add_output(name)
    return graph


def _append_helpers(build: NodeBuilder, stage: Rewrite) -> None:
    """Make the operators that help the one of the file."""
    source = stage.record.source
    build.append_all(stage.records, source, frozenset((source,)), _BATCHED_RULE)
    stage.records.clear()


def _search(control: _Control) -> None:
    """Generating text: the decoder is made for any number of tokens."""
    record = control.record
    graphs = {
        name: control.body(name, decoder_inputs(record, planned.proto))
        for name, planned in control.planned.items()
    }
    control.finish(graphs, search_types(record, control.inputs))


def _sequence_map(control: _Control) -> None:
    items = [kind.element if isinstance(kind, SequenceType) else kind for kind in control.inputs]
    body = control.body("body", items)
    control.finish({"body": body}, [SequenceType(kind) for kind in body.output_types])


_SCAN_WITHOUT_BATCH = 9
"""Since this opset, Scan knows no batch."""
_BATCHED_RULE = "Scan of opset 8 as a Scan of Scans"
_KINDS = {"If": _if, "Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}

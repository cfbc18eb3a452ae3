"""The Scan of opset 8, which scans every text of a batch: as a Scan over the batch whose body is a
Scan as it is since opset 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.errors import ModelError
from whence.frontends.onnx.builder import NodeBuilder
from whence.frontends.onnx.record import OpRecord, Rewrite
from whence.frontends.origin_metadata import LOAD
from whence.graph.graph import Graph
from whence.graph.iterations import row_length, row_type, stacked_type
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.provenance import EdgeKind
from whence.types import UNKNOWN, ValueType

_RULE = "Scan of opset 8 as a Scan of Scans"


def split_inputs(record: OpRecord) -> tuple[str, list[str], list[str]]:
    """The lengths of the texts, if given; the states; what is scanned."""
    n_scans, given = record.integer("num_scan_inputs", 0), record.inputs[1:]
    if not 1 <= n_scans <= len(given):
        raise ModelError(f"{record} has {len(record.inputs)} inputs, of which it scans {n_scans}")
    return record.inputs[0], given[:-n_scans], given[-n_scans:]


def scan_of_one_text(
    outer: NodeBuilder,
    record: OpRecord,
    body: Graph,
    types: Sequence[ValueType],
    captured: Mapping[str, Ref],
) -> Graph:
    """The body that runs for every text: a Scan over its states and its rows, which the lengths cut
    short; results are filled up with zeros.
    """
    lengths, states, scans = split_inputs(record)
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
    _append(build, stage)
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
    graph.ledger.record(helper, [(record.source, EdgeKind.LOWER)], LOAD, _RULE)
    if lengths:
        full = stage.op("Shape", names[len(states)], start=0, end=1)
        pads = stage.op("Concat", zero, stage.op("Sub", full, end), axis=0)
        for cut, name in zip(inner[len(states) :], results[len(states) :], strict=True):
            # Only the first axis is filled up, whatever the rank.
            stage.into([name], "Pad", cut, pads, "", zero)
        _append(build, stage)
    for name in results:
        build.add_output(name)
    return graph


def _append(build: NodeBuilder, stage: Rewrite) -> None:
    """Make the operators that help the one of the file."""
    source = stage.record.source
    build.append_all(stage.records, source, frozenset((source,)), _RULE)
    stage.records.clear()

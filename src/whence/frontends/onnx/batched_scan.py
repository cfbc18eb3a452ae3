"""The Scan of opset 8, which scans every text of a batch: as a Scan over the batch whose body is a
Scan as it is since opset 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from whence.errors import ModelError
from whence.frontends.onnx.builder import NodeBuilder
from whence.frontends.onnx.record import OpRecord
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
    types: tuple[Sequence[ValueType], Sequence[ValueType]],
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
    kinds = [*types[0], *types[1]]
    for name, kind in zip(names, kinds, strict=True):
        build.add_input(name, kind)
    rows = names[len(states) :]
    made = [ref for output in body.outputs if (ref := output.inputs[0]) is not None]
    results = [f"result_{index}" for index in range(len(made))]
    inner = results
    if lengths:
        build.add_input("length", row_type(outer.type_of(lengths) or UNKNOWN, 0))
        end = _add(build, record, "Unsqueeze", "length", build.constant(np.array([0])))
        zero = build.constant(np.array([0]))
        rows = [_add(build, record, "Slice", name, zero, end, zero) for name in rows]
        inner = [*results[: len(states)], *(f"{name}_cut" for name in results[len(states) :])]
    for name, ref in captured.items():
        build.add_input(f"{name}\0outer", outer.graph.type_of(ref))
    captures = [node.ref() for node in graph.inputs[len(graph.inputs) - len(captured) :]]
    attrs: dict[str, Attr] = {"num_scan_inputs": len(scans)}
    if (directions := record.integers("directions")) is not None:
        attrs["scan_input_directions"] = directions
    inner_types = [body.type_of(ref) for ref in made]
    count = None if lengths else row_length(types[1][0], 0)
    _append(
        build,
        OpRecord(
            "Scan", "", record.name, [*names[: len(states)], *rows], inner, attrs, {}, record.source
        ),
        captures=captures,
        bodies={"body": body},
        types=[
            *inner_types[: len(states)],
            *(stacked_type(kind, count) for kind in inner_types[len(states) :]),
        ],
    )
    if lengths:
        full = _add(build, record, "Shape", names[len(states)], start=0, end=1)
        missing = _add(build, record, "Sub", full, end)
        for cut, name in zip(inner[len(states) :], results[len(states) :], strict=True):
            # Only the first axis is filled up, whatever the rank.
            padded = OpRecord(
                "Pad",
                "",
                f"{record.name}/Pad",
                [cut, _pads(build, record, missing), "", zero],
                [name],
                {},
                {},
                record.source,
            )
            _append(build, padded)
    for name in results:
        build.add_output(name)
    return graph


def _pads(build: NodeBuilder, record: OpRecord, missing: str) -> str:
    return _add(build, record, "Concat", build.constant(np.array([0])), missing, axis=0)


def _add(build: NodeBuilder, record: OpRecord, op: str, *inputs: str, **attrs: Attr) -> str:
    name = build.fresh(f"{record.name}/{op}")
    _append(
        build,
        OpRecord(op, "", f"{record.name}/{op}", list(inputs), [name], attrs, {}, record.source),
    )
    return name


def _append(
    build: NodeBuilder,
    record: OpRecord,
    *,
    captures: Sequence[Ref] = (),
    bodies: Mapping[str, Graph] | None = None,
    types: Sequence[ValueType] | None = None,
) -> None:
    """An operator that helps the one of the file."""
    helper = build.graph.new_id()
    build.append(
        record,
        helper,
        frozenset((record.source,)),
        captures=captures,
        bodies=bodies,
        types=types,
    )
    build.graph.ledger.record(helper, [(record.source, EdgeKind.LOWER)], LOAD, _RULE)

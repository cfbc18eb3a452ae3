"""Operators that move elements or build shapes, and a few odd ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.frontends.naming import quoted
from whence.frontends.onnx.record import OpRecord, Restate, Rewrite, as_named
from whence.frontends.onnx.upgrades.attributes import grid_sample


def _range(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    step = record.input(2) or build.like(1, record.required(0))
    return build.result("Range", record.required(0), record.required(1), step)


def _expand_dims(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    return build.result(
        "Unsqueeze", record.required(0), build.op("Reshape", record.required(1), build.ints(-1))
    )


def _unique(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """The distinct values in the order of appearance, the index of each element, and counts."""
    build.into(
        [record.output(0), "", record.output(1), record.output(2)],
        "Unique",
        record.required(0),
        sorted=0,
    )
    return build.records


def _pairwise_distance(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """d(a, b)² = a·a - 2 a·b + b·b, never below zero"""
    metric = record.text("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise record.unsupported(f"the metric {quoted(metric)}")
    left, right = record.required(0), record.required(1)
    left_norm = build.op("ReduceSumSquare", left, build.ints(1), keepdims=1)
    right_norm = build.op(
        "Transpose", build.op("ReduceSumSquare", right, build.ints(1), keepdims=1), perm=(1, 0)
    )
    product = build.op("MatMul", left, build.op("Transpose", right, perm=(1, 0)))
    squared = build.op(
        "Add", build.op("Sub", left_norm, build.op("Mul", product, build.like(2, left))), right_norm
    )
    if metric == "sqeuclidean":
        return build.result("Max", squared, build.like(0, left))
    return build.result("Sqrt", build.op("Max", squared, build.like(0, left)))


RESTATEMENTS: Mapping[str, Restate] = {
    "Pad": as_named,
    "GatherND": as_named,
    "Trilu": as_named,
    "Range": _range,
    "ExpandDims": _expand_dims,
    "Unique": _unique,
    "CDist": _pairwise_distance,
    "GridSample": grid_sample,
}

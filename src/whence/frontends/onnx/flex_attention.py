"""FlexAttention of ONNX's preview domain: attention whose scores and probabilities pass through
graphs of the file, which become part of the graph around it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from whence.errors import ModelError
from whence.frontends.naming import quoted
from whence.frontends.onnx.builder import NodeBuilder
from whence.frontends.onnx.plan import PlannedGraph
from whence.frontends.onnx.record import OpRecord, Rewrite
from whence.frontends.origin_metadata import OriginMetadata
from whence.ops.operands.attribute_choices import check_type_number
from whence.types import DType

PREVIEW = "ai.onnx.preview"
_RULE = "FlexAttention as products and a softmax"


def add_flex_attention(
    build: NodeBuilder,
    record: OpRecord,
    bodies: Mapping[str, PlannedGraph],
    origins: OriginMetadata | None,
) -> None:
    """y = prob_mod(softmax(score_mod(q kᵀ * scale))) v, in the precision of the softmax."""
    unknown = sorted(set(bodies) - {"score_mod", "prob_mod"})
    if unknown:
        raise ModelError(f"{record} holds a graph {quoted(unknown[0])}, which it does not know")
    main = record.source or build.graph.new_id()
    build.sign(main, origins)
    stage = Rewrite(record, build)

    def flush(*, last: bool = False) -> None:
        """Append what is built so far. The operator that makes the result stands for the file's."""
        keeper = len(stage.records) - 1 if last else None
        origin = build.origin_of(record, origins)
        build.append_all(stage.records, main, origin, _RULE, keeper)
        stage.records.clear()

    def modified(name: str, data: str) -> str:
        if name not in bodies:
            return data
        flush()
        return _made_by(build, record, bodies[name], data)

    query, key, value = (record.required(index) for index in range(3))
    groups, shared = _heads(stage, query, key)
    dtype = stage.dtype(query) or DType.F32
    chosen = record.integer("softmax_precision", 0)
    check_type_number("FlexAttention", "softmax_precision", chosen)
    precision = DType(chosen or (DType.F64 if dtype is DType.F64 else DType.F32))
    grouped = shared > 1
    if grouped:
        query = stage.op("Reshape", query, _shape(stage, query, (0, groups, shared), 2))
        key, value = (stage.op("Unsqueeze", each, stage.ints(2)) for each in (key, value))
    perm = (0, 1, 2, 4, 3) if grouped else (0, 1, 3, 2)
    scores = stage.op("MatMul", query, stage.op("Transpose", key, perm=perm))
    scores = stage.op("Mul", scores, stage.like(_scale(stage), record.required(0)))
    if grouped:
        scores = stage.op("Reshape", scores, _shape(stage, scores, (0, groups * shared), 3))
    if precision is not dtype:
        scores = stage.cast(scores, precision)
        value = stage.cast(value, precision)
    scores = modified("score_mod", scores)
    weights = modified("prob_mod", stage.op("Softmax", scores, axis=-1))
    if grouped:
        weights = stage.op("Reshape", weights, _shape(stage, weights, (0, groups, shared), 2))
    result = stage.op("MatMul", weights, value)
    if grouped:
        result = stage.op("Reshape", result, _shape(stage, result, (0, groups * shared), 3))
    if precision is dtype:
        stage.result("Identity", result)
    else:
        stage.result("Cast", result, to=int(dtype))
    flush(last=True)


def _scale(stage: Rewrite) -> float:
    record = stage.record
    if "scale" in record.attrs:
        return record.number("scale", 1.0)
    size = stage.known_dim(record.required(0), -1, "the size of its heads")
    return 1 / math.sqrt(max(size, 1))


def _heads(stage: Rewrite, query: str, key: str) -> tuple[int, int]:
    """How many heads the keys have, and how many queries share each."""
    record = stage.record
    shapes = [stage.shape(name) for name in (query, key)]
    if any(shape is not None and len(shape) != 4 for shape in shapes):
        raise ModelError(f"{record}: queries and keys should have four dimensions")
    ours, theirs = (stage.known_dim(name, 1, "the number of its heads") for name in (query, key))
    if theirs <= 0 or ours % theirs:
        raise ModelError(f"{record}: {ours} heads of queries do not divide into {theirs} of keys")
    return theirs, ours // theirs


def _shape(stage: Rewrite, data: str, first: tuple[int, ...], rest: int) -> str:
    """A shape that begins with `first` and ends with the dimensions of `data` from `rest` on."""
    return stage.op("Concat", stage.ints(*first), stage.op("Shape", data, start=rest), axis=0)


def _made_by(build: NodeBuilder, record: OpRecord, graph: PlannedGraph, data: str) -> str:
    """What a graph of the file makes of a value: its operators take their place here."""
    proto = graph.proto
    if len(proto.input) != 1 or len(proto.output) != 1:
        raise ModelError(f"{record}: its graphs should have one input and one output")
    body = NodeBuilder(build.reading, build.graph, build.upgrader, nested=True)
    body.values = {name: build.values[name] for name in graph.free if name in build.values}
    for tensor in proto.initializer:
        body.values[tensor.name] = build.values[build.constant(build.reading.tensors.read(tensor))]
    body.values[proto.input[0].name] = build.values[data]
    body.given = set(body.values)
    body.add_constants(graph)
    body.add_operators(graph)
    made = body.values.get(proto.output[0].name)
    if made is None:
        raise ModelError(
            f"{record}: the output {quoted(proto.output[0].name)} is made by nothing in its graph"
        )
    name = build.fresh(f"{record.name}/modified")
    build.values[name] = made
    return name

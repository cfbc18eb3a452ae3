"""A function of one code of 8 bits has 256 values: it becomes a table. Costly ones of 16 bits do,
too.

1. q(f(dq(x))) = look_up(x, table), f being elementwise operators whose other operands are constant
   numbers
2. q(dq(x)), the two coded differently, = look_up(x, table)

The entries are computed as LiteRT or ONNX Runtime compute them.
"""

from __future__ import annotations

import numpy as np

from whence.errors import WhenceError
from whence.graph import Graph, Node, Ref, Rewriter
from whence.ops.definition import Call
from whence.ops.quantised.quantise import integer_range, is_fixed_point, round_away
from whence.ops.registry import REGISTRY, evaluate
from whence.passes.operands import BROADCASTING
from whence.passes.parameters import limits
from whence.passes.pattern import shape_of
from whence.passes.quantised.fixed_point import all_codes
from whence.passes.quantised.integer_functions import interpolated, litert_function
from whence.passes.quantised.quantised_op import (
    BYTES,
    Coding,
    QuantisedOperand,
    coding_of,
    limited_codes,
    operand_of,
)
from whence.types import DType

_MAX_NODES = 12
_LONG = 4


def rewrite_table(last: Node, rewriter: Rewriter) -> bool:
    """Both rules, at a QuantizeLinear. True when one applied."""
    graph = rewriter.graph
    result = coding_of(graph, last, last.ref())
    found = _region(graph, last)
    if result is None or not result.is_single or found is None:
        return False
    source, region = found
    # Of 16 bits a table has 65,536 entries: too many for what is little work, few enough for what
    # is much.
    is_wide = (
        source.coding.dtype is DType.I16
        and is_fixed_point(last.attrs)
        and any(_is_long(node) for node in region)
    )
    if (
        (source.coding.dtype not in BYTES and not is_wide)
        or not source.coding.is_single
        or source.value is not None
        or not result.dtype.is_integer
        or result.dtype is DType.I32
    ):
        return False
    table = _table(graph, source, region, last, result)
    if table is None:
        return False
    edit = rewriter.edit(source.node, *region, last, rule="quantise(f(dequantise(x))) = table of f")
    return edit.finish(
        last.ref(), edit.node("LookUp", [source.codes, edit.const(table)], types=last.outputs)
    )


def _region(graph: Graph, last: Node) -> tuple[QuantisedOperand, list[Node]] | None:
    """The dequantised value that everything before `last` is computed from, and the operators in
    between; a chain of them in order.
    """
    sources: dict[int, QuantisedOperand] = {}
    region: dict[int, Node] = {}
    waiting = [last.input(0)]
    while waiting:
        ref = waiting.pop()
        if ref is None or ref.node in region or ref.node in sources:
            continue
        node = graph.producer(ref)
        value = graph.const_value(ref)
        if value is not None and value.size == 1:
            continue
        if node.op == "DequantizeLinear":
            operand = operand_of(graph, ref)
            if operand is None:
                return None
            sources[node.id] = operand
            continue
        if not _is_elementwise(node) or len(region) >= _MAX_NODES:
            return None
        region[node.id] = node
        waiting.extend(node.inputs)
    if len(sources) != 1:
        return None
    (source,) = sources.values()
    kept = {*region, last.id}
    for node in region.values():
        shape = shape_of(graph, node.ref())
        if shape is None or shape != source.shape or any(user not in kept for user in node._uses):
            return None
    return source, list(region.values())[::-1]


def _is_long(node: Node) -> bool:
    """Is it more work than looking a result up?"""
    flops = REGISTRY[node.op].flops
    return isinstance(flops, int) and flops >= _LONG


def _is_elementwise(node: Node) -> bool:
    return node.op in BROADCASTING and not node.bodies and len(node.outputs) == 1


def _table(
    graph: Graph, source: QuantisedOperand, region: list[Node], last: Node, result: Coding
) -> np.ndarray | None:
    if is_fixed_point(last.attrs):
        return _litert_table(graph, source.coding, region, result)
    values = {source.codes: all_codes(source.coding.dtype).astype(source.coding.dtype.numpy)}
    try:
        return np.ascontiguousarray(_value(graph, last.ref(), values))
    except WhenceError:
        return None


def _value(graph: Graph, ref: Ref, values: dict[Ref, np.ndarray]) -> np.ndarray:
    """What is behind `ref` for every code, computed from what `values` holds already; it is added
    to that.
    """
    constant = graph.const_value(ref)
    if ref not in values:
        node = graph.producer(ref)
        if constant is None:
            inputs = tuple(
                None if each is None else _value(graph, each, values) for each in node.inputs
            )
            (constant,) = evaluate(Call(node.op, node.attrs, inputs, 1))
        # A single number broadcasts against the codes, whatever its rank.
        values[ref] = (
            constant
            if node.op != "Const" or constant.ndim <= 1
            else constant.reshape(-1)
            if constant.size > 1
            else constant.reshape(())
        )
    return values[ref]


def _litert_table(
    graph: Graph, source: Coding, region: list[Node], result: Coding
) -> np.ndarray | None:
    """The entries by the formula that LiteRT has for the operator: one operator, and limits after
    it.
    """
    function = region[0] if region else None
    low, high = integer_range(result.dtype)
    codes = litert_function(graph, function, source, result)
    # Where a function has no value, LiteRT's conversion to an integer gives the smallest.
    with np.errstate(all="ignore"):
        if codes is None:
            codes = _of_real_function(graph, function, source, result)
        if codes is None:
            return None
        codes = np.where(np.isnan(codes), low, codes)
    for clip in region[1:]:
        ends = limits(graph, clip) if clip.is_a("Relu", "Clip") else None
        if ends is None:
            return None
        low, high = limited_codes(low, high, ends, result, away=True)
    return np.asarray(np.clip(codes, low, high)).astype(result.dtype.numpy)


def _of_real_function(
    graph: Graph, function: Node | None, source: Coding, result: Coding
) -> np.ndarray | None:
    """What a function of real numbers is in codes: of 8 bits at every code, of 16 at every 128th,
    and straight lines between.
    """
    if source.dtype is DType.I16:
        # LiteRT has these for results of 16 bits between -1 and 1, and no others.
        if function is not None and function.is_a("Sigmoid", "Tanh"):
            return None
        return interpolated(lambda x: _numbers(graph, function, x), source, result)
    x = source.step * (all_codes(source.dtype) - source.zero).astype(np.float32)
    numbers = _numbers(graph, function, x)
    if numbers is None:
        return None
    # LiteRT multiplies by the inverse of the scale.
    return np.asarray(
        round_away(numbers * (np.float32(1) / result.step)).astype(np.float64) + result.zero
    )


def _numbers(graph: Graph, function: Node | None, x: np.ndarray) -> np.ndarray | None:
    """The operator's values at `x`, as float32."""
    if function is None:
        return x
    # C has these in float32 as near as float32 can be, which NumPy does not promise.
    if function.is_a("Exp", "Log"):
        x = x.astype(np.float64)
    constants = [(ref, graph.const_value(ref)) for ref in function.inputs]
    values = tuple(None if ref is None else x if each is None else each for ref, each in constants)
    try:
        (y,) = evaluate(Call(function.op, function.attrs, values, 1))
    except WhenceError:
        return None
    return np.asarray(y, np.float32)

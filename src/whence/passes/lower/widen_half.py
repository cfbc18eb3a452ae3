"""Models in half precision are computed in single, and rounded to half wherever the file says so.

1. f(x: half) = cast(round(f(cast(x))))    for every operator that computes; constants are widened once and for all
2. f(x: half) = cast(f(cast(x)))           for one that only chooses or moves values: what it gives are values in half already
3. cast(cast(x, half), single) = x         for what rules 1 and 2 made, which loses nothing; so values stay in single from one operator to the next

Processors do the arithmetic of half precision in single anyway, and every kernel there is for
single serves both. Half precision is kept where a value comes from, or goes to, an operator that is
not widened. A model that does no heavy work in half precision is left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from whence.graph import Edit, Graph, Node, Ref, Rewriter
from whence.ops.attributes import get_int, get_str
from whence.ops.definition import OpClass
from whence.ops.registry import classes_of, operators
from whence.ops.traits import Trait
from whence.passes.base import Pass
from whence.passes.origins import consts_with_origin
from whence.passes.simplify.remove_dead_nodes import remove_unread
from whence.provenance import EdgeKind, Reason
from whence.types import DType, TensorType, ValueType

HALF = frozenset({DType.F16, DType.BF16})
_HEAVY = OpClass.CONV | OpClass.MATMUL | OpClass.POOL | OpClass.NORM | OpClass.RECURRENT
_WIDENED = _HEAVY | OpClass.REDUCE | OpClass.ACTIVATION | OpClass.ELEMENTWISE | OpClass.MOVEMENT
# What these give depends on the very type they are given, or is random.
_NEVER = operators(Trait.READS_TYPE)
_EXACT = operators(Trait.EXACT)
_ADDS_UP = operators(Trait.SCATTERS)


@dataclass(frozen=True, slots=True)
class WidenHalf(Pass):
    name = "widen_half"
    summary = "compute half precision in single, and round where the file says so"
    classes = _HEAVY

    def run(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        if not any(_is_heavy(node) and _is_half(graph, node) for node in graph):
            return
        wide: dict[Ref, Ref] = {}
        for node in list(graph):
            if node.op == "Cast":
                _widen_cast(node, rewriter, wide)
            elif _is_half(graph, node) and _follows(graph, node):
                _widen(node, rewriter, wide)
        remove_unread(
            rewriter,
            list(wide),
            reason=Reason.CANCELLED,
            rule="nobody reads the value in half precision",
            into=None,
        )


def _is_heavy(node: Node) -> bool:
    return bool(classes_of(node.op) & _HEAVY)


def _is_half(graph: Graph, node: Node) -> bool:
    refs = [ref for ref in node.inputs if ref is not None]
    return any(_half_of(kind) for kind in (*(graph.type_of(ref) for ref in refs), *node.outputs))


def _half_of(kind: ValueType) -> TypeGuard[TensorType]:
    return isinstance(kind, TensorType) and kind.dtype in HALF


def _follows(graph: Graph, node: Node) -> bool:
    """Does the operator treat its operands by value, whatever float they are?"""
    classes = classes_of(node.op)
    if (
        node.op in _NEVER
        or node.bodies
        or not classes & _WIDENED
        or classes & (OpClass.QUANTISE | OpClass.RANDOM)
    ):
        return False
    if not all(
        isinstance(kind, TensorType)
        for kind in (*node.outputs, *(graph.type_of(ref) for ref in node.inputs if ref is not None))
    ):
        return False
    # A table is read in a few places: widening the rows that were read costs less than a table
    # twice as large.
    return not (
        node.op in operators(Trait.GATHERS) and graph.const_value(node.inputs[0]) is not None
    )


def _is_exact(node: Node) -> bool:
    """Are its results values that it was given?"""
    if node.is_a("Resize", "GridSample"):
        return get_str(
            node.attrs, "mode", "nearest" if node.op == "Resize" else "linear"
        ) == "nearest" and not get_int(node.attrs, "antialias", 0)
    if node.op in _ADDS_UP:
        return get_str(node.attrs, "reduction", "none") in {"none", "max", "min"}
    return node.op in _EXACT or (
        node.op != "Col2Im" and bool(classes_of(node.op) & OpClass.MOVEMENT)
    )


# 1. f(x: half) = cast(round(f(cast(x))))
def _widen(node: Node, rewriter: Rewriter, wide: dict[Ref, Ref]) -> None:
    graph = rewriter.graph
    exact = _is_exact(node)
    edit = rewriter.edit(
        node,
        rule="f(x: half) = cast(f(cast(x)))" if exact else "f(x: half) = cast(round(f(cast(x))))",
    )
    taken: dict[Ref, Ref] = {}
    inputs = [None if ref is None else _widened(edit, ref, wide, taken) for ref in node.inputs]
    types = [TensorType(DType.F32, kind.shape) if _half_of(kind) else kind for kind in node.outputs]
    parents = (*consts_with_origin(graph, node.inputs), node)
    inner = edit.node(
        node.op,
        inputs,
        node.attrs,
        types,
        of=parents,
        kind=EdgeKind.LOWER,
        flags=node.flags,
        name=node.name,
    )
    made: dict[Ref, Ref] = {}
    for index, kind in enumerate(node.outputs):
        result = inner.ref(index)
        if _half_of(kind):
            single = result if exact else _rounded(edit, result, kind)
            result = _narrowed(edit, single, kind)
            made[result] = single
        edit.replace(node.ref(index), result)
    edit.apply()
    wide.update({ref: twin for ref, twin in taken.items() if graph[ref.node].op != "Const"})
    # 3. values stay in single from one operator to the next
    wide.update(made)


def _widened(edit: Edit, ref: Ref, wide: dict[Ref, Ref], taken: dict[Ref, Ref]) -> Ref:
    kind = edit.graph.type_of(ref)
    if not _half_of(kind):
        return ref
    known = wide.get(ref) or taken.get(ref)
    if known is not None:
        return known
    value = edit.graph.const_value(ref)
    if value is not None:
        taken[ref] = edit.const(np.asarray(value).astype(np.float32))
    else:
        attrs, single = {"to": int(DType.F32)}, TensorType(DType.F32, kind.shape)
        taken[ref] = edit.node("Cast", [ref], attrs, single, kind=EdgeKind.INSERT).ref()
    return taken[ref]


def _rounded(edit: Edit, ref: Ref, half: TensorType) -> Ref:
    """A value in single as one that half precision has."""
    kind, attrs = TensorType(DType.F32, half.shape), {"to": int(half.dtype)}
    return edit.node("RoundTo", [ref], attrs, kind, kind=EdgeKind.LOWER).ref()


def _narrowed(edit: Edit, ref: Ref, half: TensorType) -> Ref:
    return edit.node("Cast", [ref], {"to": int(half.dtype)}, half, kind=EdgeKind.INSERT).ref()


# 3. cast(cast(x, half), single) = x for what rules 1 and 2 made
def _widen_cast(node: Node, rewriter: Rewriter, wide: dict[Ref, Ref]) -> None:
    """A cast of the file: one from a widened value starts from that value, one to half is a
    rounding for its consumers.
    """
    graph, source = rewriter.graph, node.first_input
    before, after = graph.tensor_type(source), graph.tensor_type(node.ref())
    if before is None or after is None or before.dtype is after.dtype:
        return
    if source in wide and after.dtype is DType.F32:
        rewriter.bypass(
            node,
            wide[source],
            reason=Reason.IDENTITY,
            rule="a cast to single of what is computed in single",
        )
    elif source in wide and after.dtype not in HALF:
        edit = rewriter.edit(node, rule="a cast of what is computed in single starts there")
        edit.finish(node, edit.node("Cast", [wide[source]], node.attrs, node.outputs))
    elif (
        before.dtype is DType.F32
        and after.dtype in HALF
        and any(_follows(graph, user) for user in graph.consumers(node))
    ):
        edit = rewriter.edit(node, rule="a cast to half is a rounding, for who computes in single")
        rounded = _rounded(edit, source, after)
        back = _narrowed(edit, rounded, after)
        edit.finish(node, back)
        wide[back] = rounded

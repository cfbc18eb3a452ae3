"""What has its size from the data is made as large as it can be, with a count of the rows that are
meant, so that kernels can make it and work on it.

1. NonZero(x) = Transpose(Prefix(places, count)), where `places, count = Places(x)`
   Unique(x) = Prefix(each, count) of the lists and the count that `Distinct(x)` gives
2. f(Prefix(x, count)) = Prefix(f(x), count), where f works row by row: elementwise, a reshape that
   keeps rows, a Gather or GatherND by rows or of columns
3. Shape(Prefix(x, count)) = count and the other sizes of x, if nothing else reads the rows; else
   it is one of the sizes that are known where they are read
4. ScatterND(data, Prefix(i, count), Prefix(x, count)) = ScatterND(data, i, x) unless none counts,
   for rows behind the count repeat the last

Only what is small: more rows than are meant cost less than a program of its own for what is behind
them, which is the other way (`passes/control/split_at_run_time_sizes.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whence.extent import estimate, surely_equal
from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.maker import Maker
from whence.graph.search import producer_of
from whence.ops.attributes import get_int, get_str
from whence.ops.registry import REGISTRY, one_of, operators
from whence.ops.tensor.counted import DISTINCT, PLACES, PREFIX
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.pattern import shape_of, static_shape_of
from whence.provenance import EdgeKind, Reason
from whence.types import DType, TensorType

_MOST = 1 << 16
"""Elements of a value that may have more rows than are meant: what takes about as long as entering
a program of its own.
"""
_DECIDING = one_of("NonZero", "Unique")
"""The operators that find out how large their results are."""
_VIEWS = operators(Trait.RESHAPE)
_MOVING = one_of("Transpose", "Gather", "GatherND", "ScatterND")
_BY_ELEMENT = frozenset(name for name, known in REGISTRY.items() if known.by_element)
_NONZERO = "places of what is not zero = the first rows of a list as long as can be"
_UNIQUE = "different elements = the first of a list as long as can be"
_INVERSE, _COUNT = 2, 4
"""Of the outputs of Distinct."""
_ROWS = "f(Prefix(x)) = Prefix(f(x)) row by row"
_SHAPE = "the shape of the first rows = their count and the other sizes"
_SCATTER = "writing the last row again changes nothing"
_TWICE = "a transpose back"


@dataclass(frozen=True, slots=True)
class BoundRunTimeSizes(RulePass):
    name = "bound_run_time_sizes"
    summary = "give outputs whose size depends on data the largest size they can have"
    anchors = _BY_ELEMENT | _VIEWS | _DECIDING | _MOVING

    def why_skip(self, graph: Graph) -> str:
        return "no NonZero, Unique" if _DECIDING.isdisjoint(graph.op_counts) else ""

    def run(self, rewriter: Rewriter) -> None:
        RulePass.run(self, rewriter)
        # When it is clear who reads the rows.
        for node in list(rewriter.graph):
            prefix = producer_of(rewriter.graph, node.inputs[0], PREFIX) if node.inputs else None
            if node.op == "Shape" and prefix is not None:
                _shape(node, prefix, rewriter)

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        if node.op in _DECIDING:
            _count(node, rewriter)
            return
        graph = rewriter.graph
        prefixes = [producer_of(graph, ref, PREFIX) for ref in node.inputs]
        if (node.op == "Transpose" or node.op in _VIEWS) and prefixes[0] is None:
            _undo(node, rewriter)
        elif not any(prefixes):
            return
        elif node.op == "ScatterND":
            _scatter(node, prefixes, rewriter)
        else:
            _postpone(node, prefixes, rewriter)


def _count(node: Node, rewriter: Rewriter) -> None:
    """Rule 1."""
    kind = rewriter.graph.tensor_type(node.inputs[0])
    if (
        kind is None
        or not kind.static_shape
        or kind.elements == 0
        or kind.dtype is DType.STRING
        or kind.dtype.bits < 8
    ):
        return
    if node.op == "Unique":
        _count_values(node, rewriter)
        return
    edit = rewriter.edit(node, rule=_NONZERO, kind=EdgeKind.LOWER)
    places = edit.node(PLACES, node.inputs, n_outputs=2)
    found = edit.node(PREFIX, (places.ref(0), places.ref(1)))
    edit.finish(node.ref(), edit.node("Transpose", (found.ref(),), {"perm": (1, 0)}).ref())


def _count_values(node: Node, rewriter: Rewriter) -> None:
    if "axis" in node.attrs:
        return
    edit = rewriter.edit(node, rule=_UNIQUE, kind=EdgeKind.LOWER)
    made = edit.node(DISTINCT, node.inputs, node.attrs, n_outputs=5)
    for slot in range(len(node.outputs)):
        if rewriter.graph.uses(node.ref(slot)):
            # There is a number for every element.
            whole = slot == _INVERSE
            first = made if whole else edit.node(PREFIX, (made.ref(slot), made.ref(_COUNT)))
            edit.replace(node.ref(slot), first.ref(slot if whole else 0))
    edit.apply()


def _undo(node: Node, rewriter: Rewriter) -> None:
    """Most want the places by rows: then nothing is left of the transpose, whether it is one or, of
    a single row, a reshape.
    """
    graph = rewriter.graph
    transposed = producer_of(graph, node.inputs[0], "Transpose")
    prefix = None if transposed is None else producer_of(graph, transposed.inputs[0], PREFIX)
    if transposed is None or prefix is None:
        return
    is_row = _rows(graph, prefix.ref())[1:] == (1,)
    if (node.op == "Transpose" and _is_swap(node) and _is_swap(transposed)) or (
        is_row and _rows(graph, node.ref())[1:] == (1,)
    ):
        rewriter.bypass(node, prefix.ref(), reason=Reason.CANCELLED, rule=_TWICE)
    elif is_row and node.op in _VIEWS and len(_rows(graph, node.ref())) == 1:
        # A row and a column have the same elements in the same order.
        edit = rewriter.edit(node, rule=_TWICE)
        edit.finish(node, edit.node("Reshape", (prefix.ref(), edit.sizes([-1]))))


def _is_swap(node: Node) -> bool:
    return node.attrs.get("perm", (1, 0)) == (1, 0)


def _rows(graph: Graph, ref: Ref | None) -> tuple[int | str | None, ...]:
    return shape_of(graph, ref) or ()


def _shape(node: Node, prefix: Node, rewriter: Rewriter) -> None:
    """Rule 3."""
    graph = rewriter.graph
    data = static_shape_of(graph, prefix.operand("data"))
    count = prefix.operand("count")
    if (
        node.attrs.get("start")
        or "end" in node.attrs
        or not data
        or any(_reads_rows(graph, each) for each in graph.consumers(prefix))
    ):
        return
    make = Maker(rewriter.edit(node, rule=_SHAPE))
    if len(data) == 1:
        made = make("Reshape", count, np.array([1]))
    else:
        made = make("Concat", count, make.edit.sizes(data[1:]), axis=0)
    make.edit.finish(node, made)


def _reads_rows(graph: Graph, node: Node) -> bool:
    """Does it read more than the shape, and does anybody read what it makes of it?"""
    return node.retained or (node.op != "Shape" and graph.use_count(node) > 0)


def _postpone(node: Node, prefixes: Sequence[Node | None], rewriter: Rewriter) -> None:
    """Rule 2."""
    found = [prefix for prefix in prefixes if prefix is not None]
    count = found[0].operand("count")
    if any(prefix.operand("count") != count for prefix in found) or count is None:
        return
    make = Maker(rewriter.edit(node, rule=_ROWS))
    inputs = [
        ref if prefix is None else prefix.operand("data")
        for ref, prefix in zip(node.inputs, prefixes, strict=True)
    ]
    made = _on_all_rows(make, node, inputs, prefixes, count)
    if made is not None:
        make.edit.finish(node, make(PREFIX, made, count))


def _on_all_rows(
    make: Maker,
    node: Node,
    inputs: list[Ref | None],
    prefixes: Sequence[Node | None],
    count: Ref,
) -> Ref | None:
    """The operator on all rows, those that are not meant included; `None` where it does not work
    row by row, or there are too many.
    """
    graph = make.edit.graph
    kinds = [graph.tensor_type(ref) for ref in inputs]
    if any(kind is not None and kind.static_shape is None for kind in kinds):
        return None
    shapes = [() if kind is None else kind.static_shape or () for kind in kinds]
    if node.op in _VIEWS:
        result = _rows(graph, node.ref())
        rest = [dim for dim in result[1:] if isinstance(dim, int)]
        if (
            prefixes[0] is None
            or not result
            or isinstance(result[0], int)
            or len(rest) != len(result) - 1
            or not surely_equal(math.prod(rest), math.prod(shapes[0][1:]))
        ):
            return None
        made = make("Reshape", inputs[0], make.edit.sizes([shapes[0][0], *rest]))
    elif node.is_a("Gather", "GatherND"):
        rows = _gathered(make, node, inputs, prefixes, count, shapes)
        if rows is None:
            return None
        made = make(node.op, *rows, **node.attrs)
    elif node.op in _BY_ELEMENT:
        rank = len(_rows(graph, node.ref()))
        lengths = [
            shape[0]
            for shape, prefix in zip(shapes, prefixes, strict=True)
            if prefix is not None and len(shape) == rank
        ]
        if (
            len(lengths) != sum(prefix is not None for prefix in prefixes)
            or not all(surely_equal(length, lengths[0]) for length in lengths)
            or not all(
                len(shape) < rank or surely_equal(shape[0], 1)
                for shape, prefix in zip(shapes, prefixes, strict=True)
                if prefix is None
            )
        ):
            return None
        made = make(node.op, *inputs, **node.attrs)
    else:
        return None
    kind = make.edit.type_of(made)
    if not isinstance(kind, TensorType) or kind.elements is None or estimate(kind.elements) > _MOST:
        return None
    return made


def _gathered(
    make: Maker,
    node: Node,
    inputs: Sequence[Ref | None],
    prefixes: Sequence[Node | None],
    count: Ref,
    shapes: Sequence[tuple[int, ...]],
) -> list[Ref | None] | None:
    """The operands of a gather whose result has a row for each row, else `None`."""
    data, indices = inputs
    axis = get_int(node.attrs, "axis", 0) if node.op == "Gather" else 0
    if prefixes[0] is not None:
        # Columns of the rows.
        by_column = node.op == "Gather" and axis % len(shapes[0]) != 0 and prefixes[1] is None
        return [data, indices] if by_column else None
    if axis % max(len(shapes[0]), 1) or get_int(node.attrs, "batch_dims", 0) or 0 in shapes[0]:
        return None
    return [data, _safe(make, indices, count)]


def _safe(make: Maker, indices: Ref | None, count: Ref) -> Ref | None:
    """Indices that lead into the data even where no row is meant: what they are computed from may
    be anything then. Places are zero themselves.
    """
    source = producer_of(make.edit.graph, indices, ("Reshape", PLACES))
    if source is not None and (
        source.op == PLACES or producer_of(make.edit.graph, source.inputs[0], PLACES) is not None
    ):
        return indices
    assert indices is not None
    kind = make.edit.type_of(indices)
    assert isinstance(kind, TensorType)
    return make("Where", _any(make, count), indices, np.zeros((), kind.dtype.numpy))


def _any(make: Maker, count: Ref) -> Ref:
    """Is any row meant?"""
    return make("Greater", count, np.int64(0))


def _scatter(node: Node, prefixes: Sequence[Node | None], rewriter: Rewriter) -> None:
    """Rule 4."""
    graph = rewriter.graph
    data, indices, updates = node.inputs[0], prefixes[1], prefixes[2]
    shape = static_shape_of(graph, data)
    if (
        prefixes[0] is not None
        or indices is None
        or updates is None
        or indices.operand("count") != updates.operand("count")
        or get_str(node.attrs, "reduction", "none") != "none"
        or not shape
        or 0 in shape
        or estimate(math.prod(shape)) > _MOST
    ):
        return
    count = indices.required("count")
    make = Maker(rewriter.edit(node, rule=_SCATTER))
    places = _safe(make, indices.operand("data"), count)
    written = make("ScatterND", data, places, updates.operand("data"), **node.attrs)
    make.edit.finish(node, make("Where", _any(make, count), written, data))

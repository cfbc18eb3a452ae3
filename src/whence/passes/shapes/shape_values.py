"""What is known of the elements of small integer tensors: the shapes, axes and indices that
exporters compute in the graph.

`ShapeValues` follows scalars and short lists of integers through the operators they are usually
made with, element by element, each a `Size` or unknown. [batch, 12, 64] of which only the first
element varies is known as exactly that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from whence.extent import is_symbolic
from whence.graph import Graph, Node, Ref
from whence.ops.attributes import get_int
from whence.ops.registry import one_of
from whence.passes.pattern import rank_of, shape_of, static_shape_of
from whence.passes.shapes import size_algebra
from whence.passes.shapes.size_algebra import Size, SizeTable, number
from whence.types import DType, TensorType

# Shapes are short. What is longer is data.
_MAX_ELEMENTS = 64
_TRACKED = frozenset({DType.I64, DType.I32, DType.BOOL})
_TRACKED_WHOLE = frozenset({DType.F32, DType.F64})
"""Types of which whole numbers are followed, through operators that leave them whole, where they
depend on the dimensions that a model is compiled for.
"""
_MOST_WHOLE = 1 << 24

Item: TypeAlias = Size | None
"""One element; truth values are 0 and 1. `None` is an element nothing is known of."""


@dataclass(frozen=True, slots=True)
class KnownElements:
    """A list, or a scalar, of which some elements are known."""

    items: tuple[Item, ...]
    scalar: bool = False

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """All elements as numbers; `None` unless every one is a known number."""
        found = self.sizes
        return None if found is None or any(map(is_symbolic, found)) else found

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """All elements, as numbers or expressions over the dimensions that the model is compiled
        for; `None` unless every one is known.
        """
        found = tuple(
            item.number for item in self.items if item is not None and item.number is not None
        )
        return found if len(found) == len(self.items) else None


class ShapeValues:
    """KnownElements by value, filled in while walking the list in order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.sizes = SizeTable()
        self._known: dict[Ref, KnownElements] = {}
        self._dims: dict[Ref, tuple[Item, ...]] = {}

    def of(self, ref: Ref | None) -> KnownElements | None:
        """What is known of a value's elements; `None` for anything but a followed scalar or
        list.
        """
        if ref is None:
            return None
        found = self._known.get(ref)
        if found is not None:
            return found
        value = self.graph.known_value(ref)
        if (
            value is None
            or value.ndim > 1
            or value.size > _MAX_ELEMENTS
            or value.dtype.kind not in "iubOf"
        ):
            return None
        items = value.reshape(-1).tolist()
        if value.dtype.kind == "f":
            if not all(item.is_integer() and abs(item) < _MOST_WHOLE for item in items):
                return None
            items = [int(item) for item in items]
        if not all(isinstance(item, int) for item in items):
            return None
        found = self._known[ref] = KnownElements(tuple(map(number, items)), value.ndim == 0)
        return found

    def dims(self, ref: Ref) -> tuple[Size, ...] | None:
        """The dimensions of a value; those that are unknown are sizes of their own. `None` when the
        rank is unknown.
        """
        shape = shape_of(self.graph, ref)
        if shape is None:
            return None
        noted = self._dims.get(ref, (None,) * len(shape))
        found = []
        for axis, dim in enumerate(shape):
            if dim is None:
                found.append(noted[axis] or self.sizes.of((ref, axis)))
            else:
                found.append(number(dim) if isinstance(dim, int) else self.sizes.named(dim))
        return tuple(found)

    def note_dims(self, ref: Ref, dims: Sequence[Item]) -> None:
        """Remember sizes of a value's dimensions that its type cannot express, such as batch ·
        length.
        """
        if rank_of(self.graph, ref) == len(dims):
            self._dims[ref] = tuple(dims)

    def follow(self, node: Node) -> KnownElements | None:
        """Work out the elements of a node's output, and remember them."""
        kind = node.outputs[0] if len(node.outputs) == 1 else None
        if not isinstance(kind, TensorType) or (kind.rank is not None and kind.rank > 1):
            return None
        is_whole = kind.dtype in _TRACKED_WHOLE
        rule = (_WHOLE_RULES if is_whole else _RULES).get(node.op)
        if rule is None or not (is_whole or kind.dtype in _TRACKED):
            return None
        found = rule(self, node)
        if (
            found is None
            or len(found.items) > _MAX_ELEMENTS
            or (kind.rank is not None and found.scalar != (kind.rank == 0))
        ):
            return None
        if is_whole and (found.sizes is None or not any(map(is_symbolic, found.sizes))):
            return None
        limit = 1 << (kind.dtype.bits - 1)
        found = KnownElements(
            tuple(item if _is_within(item, limit) else None for item in found.items), found.scalar
        )
        self._known[node.ref()] = found
        return found

    def inputs(self, node: Node) -> list[KnownElements] | None:
        """The elements of all inputs; `None` unless all are followed."""
        found = [elements for ref in node.inputs if (elements := self.of(ref)) is not None]
        return found if len(found) == len(node.inputs) else None

    def numbers(
        self, ref: Ref | None, absent: tuple[int, ...] | None = None
    ) -> tuple[int, ...] | None:
        """All elements as numbers, `absent` when there is no such value."""
        elements = self.of(ref)
        if elements is None:
            return absent if ref is None else None
        return elements.numbers


def _is_within(item: Item, limit: int) -> bool:
    """A number that its type does not hold wraps around, which is nobody's size."""
    known = None if item is None else item.number
    return known is None or is_symbolic(known) or -limit <= known < limit


# ---- how operators act on elements ----

_Rule: TypeAlias = Callable[[ShapeValues, Node], KnownElements | None]
_Choice: TypeAlias = Callable[[SizeTable], Callable[[Size, Size], Item]]
"""A function of two sizes, which may be one of the table's own."""


def _shape(values: ShapeValues, node: Node) -> KnownElements | None:
    dims = values.dims(node.first_input)
    if dims is None:
        return None
    rank = len(dims)
    # Both ends are clamped, as Python's slices are.
    return KnownElements(dims[get_int(node.attrs, "start", 0) : get_int(node.attrs, "end", rank)])


def _size(values: ShapeValues, node: Node) -> KnownElements | None:
    dims = values.dims(node.first_input)
    return None if dims is None else KnownElements((_product(dims),), scalar=True)


def _product(items: Sequence[Item]) -> Item:
    return reduce(_lift(size_algebra.multiply), (number(1), *items))


def _same(values: ShapeValues, node: Node) -> KnownElements | None:
    return values.of(node.inputs[0])


def _cast(values: ShapeValues, node: Node) -> KnownElements | None:
    found, kind = values.of(node.inputs[0]), node.outputs[0]
    if found is None or not isinstance(kind, TensorType) or kind.dtype is not DType.BOOL:
        return found
    return _of_numbers(found, lambda item: int(item != 0))


def _of_numbers(found: KnownElements, function: Callable[[int], int]) -> KnownElements:
    """A function of each element that is a number; nothing is known of what it makes of others."""
    return KnownElements(
        tuple(
            None if item is None or item.number is None else number(function(item.number))
            for item in found.items
        ),
        found.scalar,
    )


def _regrouped(values: ShapeValues, node: Node) -> KnownElements | None:
    """The same elements as a scalar or a list, whichever the output's type says."""
    found, kind = values.of(node.inputs[0]), node.outputs[0]
    if (
        found is None
        or not isinstance(kind, TensorType)
        or kind.rank is None
        or (kind.rank == 0 and len(found.items) != 1)
    ):
        return None
    return KnownElements(found.items, scalar=kind.rank == 0)


def _gather(values: ShapeValues, node: Node) -> KnownElements | None:
    data, chosen = values.of(node.inputs[0]), values.of(node.operand("indices"))
    places = None if chosen is None else chosen.numbers
    if (
        data is None
        or data.scalar
        or chosen is None
        or places is None
        or not all(-len(data.items) <= at < len(data.items) for at in places)
    ):
        return None
    return KnownElements(tuple(data.items[at] for at in places), chosen.scalar)


def _slice(values: ShapeValues, node: Node) -> KnownElements | None:
    data = values.of(node.inputs[0])
    start = values.numbers(node.operand("starts"))
    end = values.numbers(node.operand("ends"))
    step = values.numbers(node.operand("steps"), (1,))
    if (
        data is None
        or data.scalar
        or any(item is None or len(item) != 1 for item in (start, end, step))
        or step == (0,)
    ):
        return None
    first, last, stride = (item[0] for item in (start, end, step) if item is not None)
    return KnownElements(data.items[first:last:stride])


def _concat(values: ShapeValues, node: Node) -> KnownElements | None:
    """Parts of unknown content but known length leave gaps; a part of unknown length makes all
    unknown.
    """
    items: list[Item] = []
    for ref in node.inputs:
        part = values.of(ref)
        if part is not None:
            items.extend(part.items)
            continue
        shape = static_shape_of(values.graph, ref)
        if shape is None or len(shape) != 1 or shape[0] > _MAX_ELEMENTS:
            return None
        items.extend([None] * shape[0])
    return KnownElements(tuple(items))


def _lift(function: Callable[[Size, Size], Item]) -> Callable[[Item, Item], Item]:
    """A function of sizes as one of elements: an unknown argument gives an unknown result."""
    return lambda left, right: None if left is None or right is None else function(left, right)


def _truth(function: Callable[[Size, Size], bool | None]) -> Callable[[Size, Size], Item]:
    def lifted(left: Size, right: Size) -> Item:
        found = function(left, right)
        return None if found is None else number(int(found))

    return lifted


def _broadcast(parts: Sequence[KnownElements]) -> list[tuple[Item, ...]] | None:
    length = max(len(part.items) for part in parts)
    if any(len(part.items) not in (1, length) for part in parts) or any(
        not part.items for part in parts
    ):
        return None
    return [part.items * length if len(part.items) == 1 else part.items for part in parts]


def _elementwise(choose: _Choice) -> _Rule:
    """Two or more inputs, combined element by element from the left."""

    def rule(values: ShapeValues, node: Node) -> KnownElements | None:
        parts = values.inputs(node)
        columns = _broadcast(parts) if parts else None
        if parts is None or columns is None:
            return None
        function = _lift(choose(values.sizes))
        return KnownElements(
            tuple(reduce(function, row) for row in zip(*columns, strict=True)),
            all(part.scalar for part in parts),
        )

    return rule


def _mod(values: ShapeValues, node: Node) -> KnownElements | None:
    if get_int(node.attrs, "fmod", 0):
        return None
    return _elementwise(lambda sizes: sizes.remainder)(values, node)


def _not(values: ShapeValues, node: Node) -> KnownElements | None:
    found = values.of(node.inputs[0])
    return None if found is None else _of_numbers(found, lambda item: 1 - item)


def _where(values: ShapeValues, node: Node) -> KnownElements | None:
    parts = values.inputs(node)
    columns = _broadcast(parts) if parts is not None and len(parts) == 3 else None
    if parts is None or columns is None:
        return None

    def choose(condition: Item, yes: Item, no: Item) -> Item:
        if condition is None or condition.number is None:
            return yes if yes == no else None
        return yes if condition.number else no

    return KnownElements(tuple(map(choose, *columns)), all(part.scalar for part in parts))


def _reduced(choose: _Choice) -> _Rule:
    def rule(values: ShapeValues, node: Node) -> KnownElements | None:
        found = values.of(node.inputs[0])
        axes = values.numbers(node.operand("axes"), ())
        if found is None or found.scalar or not found.items or axes not in ((), (0,), (-1,)):
            return None
        if not axes and get_int(node.attrs, "noop_with_empty_axes", 0):
            return found
        return KnownElements(
            (reduce(_lift(choose(values.sizes)), found.items),),
            scalar=not get_int(node.attrs, "keepdims", 1),
        )

    return rule


def _range(values: ShapeValues, node: Node) -> KnownElements | None:
    bounds = [values.numbers(ref) for ref in node.inputs]
    if len(bounds) != 3 or any(bound is None or len(bound) != 1 for bound in bounds):
        return None
    start, limit, delta = (bound[0] for bound in bounds if bound is not None)
    if delta == 0 or len(range(start, limit, delta)) > _MAX_ELEMENTS:
        return None
    return KnownElements(tuple(number(item) for item in range(start, limit, delta)))


_RULES: Mapping[str, _Rule] = {
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Squeeze": _regrouped,
    "Unsqueeze": _regrouped,
    "Reshape": _regrouped,
    "Flatten": _regrouped,
    "Identity": _same,
    "Cast": _cast,
    "Add": _elementwise(lambda sizes: size_algebra.add),
    "Sub": _elementwise(lambda sizes: size_algebra.subtract),
    "Mul": _elementwise(lambda sizes: size_algebra.multiply),
    "Div": _elementwise(lambda sizes: sizes.divide),
    "Mod": _mod,
    "Min": _elementwise(lambda sizes: sizes.smaller),
    "Max": _elementwise(lambda sizes: sizes.larger),
    "Equal": _elementwise(lambda sizes: _truth(size_algebra.equal)),
    "Less": _elementwise(lambda sizes: _truth(size_algebra.less)),
    "Greater": _elementwise(
        lambda sizes: _truth(lambda left, right: size_algebra.less(right, left))
    ),
    "Not": _not,
    "Where": _where,
    "ReduceProd": _reduced(lambda sizes: size_algebra.multiply),
    "ReduceSum": _reduced(lambda sizes: size_algebra.add),
    "ReduceMax": _reduced(lambda sizes: sizes.larger),
    "ReduceMin": _reduced(lambda sizes: sizes.smaller),
    "Range": _range,
}
_WHOLE_RULES: Mapping[str, _Rule] = {
    **{op: _RULES[op] for op in one_of("Gather", "Slice", "Concat", "Squeeze", "Unsqueeze")},
    **{op: _RULES[op] for op in one_of("Reshape", "Identity", "Cast", "Add", "Sub", "Mul")},
    **dict.fromkeys(one_of("Floor", "Ceil", "Round"), _same),
}
"""The operators that make whole real numbers of such."""
FOLLOWED: frozenset[str] = frozenset(_RULES) | frozenset(_WHOLE_RULES)
"""The operators whose results may be known in part."""

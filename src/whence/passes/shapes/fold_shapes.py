"""Shapes that exporters compute in the graph become constants, wholly or in part.

1. The shape of a value whose dimensions are known is a constant; so is whatever is computed from
   known elements of it.
2. `Reshape` to sizes of which each is a number or the size its input has in that place copies the
   latter: [batch, 12, 64] becomes [0, 12, 64]. One further size follows from the others (-1),
   provided none of them can be 0.
3. `Expand` to the sizes its input has expands nothing there: such a size becomes 1.
4. `Slice` up to the length of its input is a slice to the end.
5. Two lists of the same sizes are one, wherever they were computed.
6. Where none of this applies, the output's type still learns the sizes that are known.
7. In a model that is compiled for more than one size (`whence.extent`), what is computed from sizes
   is a `DimensionValue`, and what cannot be is settled for the sizes at hand.

KnownElements are followed one by one through the operators shapes are made with (see
`shape_values`), as polynomials in the model's dimensions. A dimension's name stands for one size
throughout the model, as ONNX defines it. Constants are folded on the way and types follow, so that
one walk settles a whole model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whence.errors import WhenceError
from whence.extent import is_symbolic
from whence.graph import Node, Ref, Rewriter
from whence.graph.change import contradict
from whence.graph.edit import Edit
from whence.ops.operand import OperandKind
from whence.ops.registry import REGISTRY, one_of, operators
from whence.ops.traits import Trait
from whence.ops.types.type_rules import broadcast_shapes
from whence.passes.base import Pass
from whence.passes.fold.fold_constants import ConstantFolder, FoldConstants
from whence.passes.pattern import shape_of
from whence.passes.shapes.propagate_types import has_gap
from whence.passes.shapes.settled_values import settled_value
from whence.passes.shapes.shape_values import FOLLOWED, Item, KnownElements, ShapeValues
from whence.passes.shapes.size_algebra import Size, number
from whence.passes.simplify.remove_dead_nodes import remove_unread
from whence.provenance import Reason
from whence.types import Dim, TensorType, ValueType

_READS_SHAPE = one_of("Shape", "Size")
_TAKES_SIZES = operators(Trait.TAKES_SIZES)
_TO_THE_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class FoldShapes(Pass):
    name = "fold_shapes"
    summary = "fold shapes that are computed in the graph, wholly or in part"
    anchors = _READS_SHAPE | _TAKES_SIZES

    def run(self, rewriter: Rewriter) -> None:
        walk = _Walk(rewriter)
        for node in rewriter.graph:
            walk.visit(node)


class _Walk:
    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self.graph = rewriter.graph
        self.folder = ConstantFolder(rewriter, FoldConstants())
        self.types = self.folder.types
        self.values = ShapeValues(rewriter.graph)
        self.first: dict[tuple[ValueType, KnownElements], Node] = {}

    def visit(self, node: Node) -> None:
        for kind in node.outputs:
            if has_gap(kind):
                self.types.refresh(node)
                break
        if self.folder.visit(node):
            return
        if node.op in FOLLOWED:
            elements = self.values.follow(node)
            known = None if elements is None or node.retained else elements.sizes
            if elements is not None and known is not None:
                self._replace_by_constant(node, known, elements.scalar)
                return
            if (
                elements is not None
                and None not in elements.items
                and self._has_duplicate(node, elements)
            ):
                return
        if "DimensionValue" in self.graph.op_counts and self._settle_parameters(node):
            return
        if node.op in _TAKES_SIZES:
            self._take_sizes(node)

    # op(x, f(sizes)) = op(x, c) for the sizes that are compiled for
    def _settle_parameters(self, node: Node) -> bool:
        known = REGISTRY.get(node.op)
        if known is None or node.bodies or node.retained:
            return False
        for index, ref in enumerate(node.inputs):
            if (
                ref is None
                or known.operands.kind(index) is not OperandKind.PARAMETER
                or self.graph.known_value(ref) is not None
            ):
                continue
            value = settled_value(self.graph, ref)
            if value is None:
                continue
            producer = self.graph.producer(ref)
            rule = "what follows from the sizes that are compiled for is a constant"
            edit = self.rewriter.edit(rule=rule, folded=[producer])
            constant = edit.const(value, name=producer.name)
            edit.replace(ref, constant)
            self._apply(edit, constant)
            self._remove_unread(producer.inputs, Reason.FOLDED, rule, constant.node)
            self.visit(node)
            return True
        return False

    # Shape(x) = the dimensions of x
    def _replace_by_constant(self, node: Node, known: Sequence[int], scalar: bool) -> None:
        kind = node.outputs[0]
        if not node._uses or not isinstance(kind, TensorType):
            return
        rule = "what is computed from known sizes is a constant"
        if node.op in _READS_SHAPE:
            rule = "the shape of a value is known"
        if contradict(kind, TensorType(kind.dtype, () if scalar else (len(known),))):
            return
        edit = self.rewriter.edit(rule=rule, folded=[node])
        constant = edit.sizes(known, scalar=scalar, name=node.name, dtype=kind.dtype)
        edit.replace(node, constant)
        self._apply(edit, constant)
        if node.op not in _READS_SHAPE:
            self._remove_unread(node.inputs, Reason.FOLDED, rule, constant.node)

    # Shape(x) = Shape(y) when x and y have the same sizes
    def _has_duplicate(self, node: Node, elements: KnownElements) -> bool:
        key = node.outputs[0], elements
        twin = self.first.setdefault(key, node)
        if twin.graph is not self.graph:
            twin = self.first[key] = node
        if twin is node or node.retained:
            return False
        rule = "two lists of the same sizes are one"
        self.rewriter.bypass(node, twin.ref(), reason=Reason.CSE, rule=rule)
        self._remove_unread(node.inputs, Reason.CSE, rule, twin.id)
        return True

    def _apply(self, edit: Edit, constant: Ref) -> None:
        edit.apply()
        self.types.learnt.add(constant.node)

    def _remove_unread(
        self, refs: Sequence[Ref | None], reason: Reason, rule: str, into: int
    ) -> None:
        """Remove what nothing reads any more, back to where a shape is read."""
        remove_unread(self.rewriter, refs, reason=reason, rule=rule, into=into, last=_READS_SHAPE)

    def _take_sizes(self, node: Node) -> None:
        if node.op == "Slice":
            self._slice_to_the_end(node)
        elif node.op == "Range":
            self._type_of_range(node)
        else:
            wanted = self.values.of(node.inputs[0 if node.op == "ConstantOfShape" else 1])
            if wanted is not None and not self._with_known_sizes(node, wanted):
                self._type_from_sizes(node, wanted)

    def _with_known_sizes(self, node: Node, wanted: KnownElements) -> bool:
        """Say sizes that are not all known by those of the input, if they can be. True when done."""
        if wanted.numbers is not None or node.op == "ConstantOfShape" or node.retained:
            return False
        dims = self.values.dims(node.first_input)
        target = (
            _reshape_target(node, wanted, dims)
            if node.op == "Reshape"
            else _expand_target(wanted, dims)
        )
        if target is not None:
            self._with_constant(node, 1, target)
        return target is not None

    def _with_constant(self, node: Node, index: int, numbers: Sequence[int]) -> None:
        """Put a constant in the place of input `index`, whose operators are absorbed by that."""
        rule = "sizes that follow from the input's are constants"
        edit = self.rewriter.edit(node, rule=rule)
        constant = edit.const(np.array(numbers, np.int64))
        attrs = {key: value for key, value in node.attrs.items() if key != "allowzero"}
        try:
            new = edit.node(
                node.op, (*node.inputs[:index], constant, *node.inputs[index + 1 :]), attrs
            )
        except WhenceError:
            # The sizes do not fit the input. The run will say so, and name the operator.
            return
        if contradict(node.outputs[0], new.outputs[0]):
            return
        wanted, data = self.values.of(node.inputs[index]), node.first_input
        edit.finish(node, new)
        self.types.refine(new, node.outputs)
        self.types.learnt.add(new.id)
        if wanted is not None and node.op == "Reshape":
            self.values.note_dims(new.ref(), _sizes_after_reshape(wanted, self.values.dims(data)))
        self._remove_unread([node.inputs[index]], Reason.ABSORBED, rule, new.id)

    # x[a : length of x] = x[a:]
    def _slice_to_the_end(self, node: Node) -> None:
        ends = self.values.of(node.operand("ends"))
        starts = self.values.numbers(node.operand("starts"))
        dims = self.values.dims(node.first_input)
        if (
            ends is None
            or ends.numbers is not None
            or starts is None
            or dims is None
            or node.retained
        ):
            return
        axes = self.values.numbers(node.operand("axes"), tuple(range(len(starts))))
        steps = self.values.numbers(node.operand("steps"), (1,) * len(starts))
        if (
            axes is None
            or steps is None
            or not all(-len(dims) <= axis < len(dims) for axis in axes)
        ):
            return
        numbers = []
        for end, axis, step in zip(ends.items, axes, steps, strict=True):
            if end is not None and end.number is not None and not is_symbolic(end.number):
                numbers.append(end.number)
            elif end == dims[axis] and step > 0:
                numbers.append(_TO_THE_END)
            else:
                return
        self._with_constant(node, 2, numbers)

    def _type_from_sizes(self, node: Node, wanted: KnownElements) -> None:
        kind = node.outputs[0]
        if not isinstance(kind, TensorType):
            return
        data = node.first_input
        dims = None if node.op == "ConstantOfShape" else self.values.dims(data)
        sizes = _sizes_after_reshape(wanted, dims) if node.op == "Reshape" else wanted.items
        shape: tuple[Dim, ...] | None = tuple(map(self._dim, sizes))
        if node.op == "Expand":
            try:
                shape = broadcast_shapes("Expand", shape_of(self.graph, data), shape)
            except WhenceError:
                return
        self.types.refine(node, (TensorType(kind.dtype, shape),))
        if node.op != "Expand":
            self.values.note_dims(node.ref(), sizes)

    def _dim(self, size: Item) -> Dim:
        if size is None:
            return None
        if size.number is None:
            return self.values.sizes.name_of(size)
        if size.number >= 0:
            return size.number
        return None

    # the length of 0, 1, ..., n - 1 is n
    def _type_of_range(self, node: Node) -> None:
        kind = node.outputs[0]
        start, limit, delta = (self.values.of(ref) for ref in node.inputs)
        if (
            start is None
            or limit is None
            or delta is None
            or start.numbers != (0,)
            or delta.numbers != (1,)
            or not isinstance(kind, TensorType)
        ):
            return
        length = limit.items[0] if len(limit.items) == 1 else None
        if length is not None and length.least is not None and length.least >= 0:
            self.types.refine(node, (TensorType(kind.dtype, (self._dim(length),)),))
            self.values.note_dims(node.ref(), (length,))


# Reshape(x, sizes of x) = Reshape(x, 0 0 ...)
def _reshape_target(
    node: Node, wanted: KnownElements, dims: tuple[Size, ...] | None
) -> list[int] | None:
    """A constant to reshape to in place of `wanted`, in which 0 copies a size of the input and -1
    follows from the rest.
    """
    target: list[int] = []
    copied: list[Item] = []
    follows = False
    for at, item in enumerate(wanted.items):
        here = dims[at] if dims is not None and at < len(dims) else None
        known = None if item is None or is_symbolic(item.number) else item.number
        if known is not None and (known < -1 or (known == 0 and node.attrs.get("allowzero", 0))):
            return None
        if known is not None:
            target.append(known)
        elif item is not None and item == here:
            target.append(0)
        else:
            target.append(-1)
            follows = True
        if target[-1] == 0:
            copied.append(here)
    # Beside a copied 0, a size that follows from the others could be anything.
    certain = all(size is not None and size.least is not None and size.least > 0 for size in copied)
    return None if follows and (target.count(-1) > 1 or not certain) else target


# Expand(x, sizes of x) = Expand(x, 1 1 ...)
def _expand_target(wanted: KnownElements, dims: tuple[Size, ...] | None) -> list[int] | None:
    if dims is None:
        return None
    target = []
    for at, item in enumerate(wanted.items, len(dims) - len(wanted.items)):
        if item is not None and item.number is not None and not is_symbolic(item.number):
            target.append(item.number)
        elif item is not None and at >= 0 and item == dims[at]:
            target.append(1)
        else:
            return None
    return target


def _sizes_after_reshape(wanted: KnownElements, dims: tuple[Size, ...] | None) -> tuple[Item, ...]:
    def after(at: int, item: Item) -> Item:
        if item is not None and item.number == 0:
            # Where 0 is meant as 0, the result is empty and nobody asks for its sizes.
            return dims[at] if dims is not None and at < len(dims) else None
        return None if item == _FOLLOWS else item

    return tuple(after(at, item) for at, item in enumerate(wanted.items))


_FOLLOWS = number(-1)

"""How an operator reads when its data comes in another order of axes: f(transpose(x, p)) =
transpose(f'(x), p').

The result is f' with its attributes and small inputs rewritten, and p' for each output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from whence.graph import Graph, Node, Ref
from whence.ops.attributes import get_int, get_ints
from whence.ops.definition import Attr, Pattern
from whence.ops.registry import lookup
from whence.ops.tensor.shape import size_array
from whence.ops.traits import Trait
from whence.passes.const_values import const_ints
from whence.passes.layout.axes import Perm, inverse_perm
from whence.passes.parameters import axes_from_front, padding_of, reduced_axes
from whence.passes.pattern import same_dim, shape_of, static_shape_of


class Reshaped(NamedTuple):
    """A value with one axis that is longer than 1: transposed, it is only reshaped."""

    value: Ref
    shape: tuple[int, ...]


Input = Ref | np.ndarray | Reshaped | None
"""An input as it is, a constant to be made, a value to be reshaped, or an absent one."""


class Rewritten(NamedTuple):
    """f' and the permutation between its outputs and those of f."""

    inputs: tuple[Input, ...]
    attrs: Mapping[str, Attr]
    perm: Perm
    op: str = ""
    """Where f' is another operator than f."""


def rewritten(graph: Graph, node: Node, sources: Mapping[Ref, Ref], perm: Perm) -> Rewritten | None:
    """`node` on the untransposed `sources` of its inputs, all transposed by `perm`; `None` when the
    operator cannot be transposed like that.
    """
    definition = lookup(node.op)
    if node.bodies:
        return None
    if definition.by_element or node.op == "Where":
        inputs = _operands(graph, node.inputs, sources, perm)
        return None if inputs is None else Rewritten(inputs, node.attrs, perm)
    first = node.inputs[0]
    if node.op == "Concat":
        inputs = _operands(graph, node.inputs, sources, perm, broadcast=False)
        return None if inputs is None else Rewritten(inputs, _with_axis(node, 1, perm), perm)
    if first is None or first not in sources or any(ref in sources for ref in node.inputs[1:]):
        return None
    data, rest = sources[first], node.inputs[1:]
    if definition.is_(Trait.CODES):
        return _quantise(graph, node, data, perm)
    # A table has no axis in common with the data, a scale the last one.
    if node.is_a("LookUp", "FixedPointScale"):
        return _with_parameters(graph, node, data, perm)
    if node.op == "DynamicQuantizeLinear":
        return Rewritten((data,), node.attrs, perm)
    if definition.is_(Trait.SAME_AXIS):
        return Rewritten((data,), _with_axis(node, -1, perm), perm)
    if node.op == "Split":
        return Rewritten((data, *rest), _with_axis(node, 0, perm), perm)
    if node.is_a("ArgMax", "ArgMin"):
        axis = get_int(node.attrs, "axis", 0) % len(perm)
        return Rewritten((data,), _with_axis(node, 0, perm), _without(perm, {axis}, node))
    if definition.pattern is Pattern.COMM_REDUCE:
        return _reduce(graph, node, data, perm)
    if definition.over_space:
        # Pooling over all of an image is a reduction over its axes, wherever they are.
        return Rewritten(
            (data, size_array(sorted(perm[2:]))), {"keepdims": 1}, perm, definition.over_space
        )
    if node.op == "Pad":
        return _pad(graph, node, data, perm)
    if node.op == "Slice":
        return _slice(graph, node, data, perm)
    if node.op == "Resize":
        return _resize(graph, node, data, perm)
    return None


def _operands(
    graph: Graph,
    inputs: Sequence[Ref | None],
    sources: Mapping[Ref, Ref],
    perm: Perm,
    *,
    broadcast: bool = True,
) -> tuple[Input, ...] | None:
    """Untransposed operands: sources where they are known, constants transposed back, single
    numbers as they are.
    """
    result: list[Input] = []
    for ref in inputs:
        if ref is None or ref in sources:
            result.append(ref if ref is None else sources[ref])
            continue
        shape, value = shape_of(graph, ref), graph.const_value(ref)
        sizes = static_shape_of(graph, ref)
        if (
            shape is None
            or len(shape) > len(perm)
            or (not broadcast and (value is None or value.ndim != len(perm)))
        ):
            return None
        if all(same_dim(dim, 1) for dim in shape) and broadcast:
            result.append(ref)
        elif value is not None:
            padded = value.reshape((1,) * (len(perm) - value.ndim) + value.shape)
            result.append(np.ascontiguousarray(padded.transpose(inverse_perm(perm))))
        elif broadcast and sizes and sum(not same_dim(dim, 1) for dim in sizes) == 1:
            whole = (1,) * (len(perm) - len(sizes)) + sizes
            result.append(Reshaped(ref, tuple(whole[axis] for axis in inverse_perm(perm))))
        else:
            return None
    return tuple(result)


def _with_axis(node: Node, default: int, perm: Perm) -> dict[str, Attr]:
    return {**node.attrs, "axis": perm[get_int(node.attrs, "axis", default) % len(perm)]}


def _without(perm: Perm, gone: set[int], node: Node) -> Perm:
    """The permutation that is left after a reduction of the axes `gone`, counted behind the
    transpose.
    """
    if get_int(node.attrs, "keepdims", 1):
        return perm
    remaining = [perm[axis] for axis in range(len(perm)) if axis not in gone]
    return tuple(sorted(remaining).index(axis) for axis in remaining)


def _reduce(graph: Graph, node: Node, data: Ref, perm: Perm) -> Rewritten | None:
    gone = reduced_axes(graph, node, len(perm))
    if gone is None:
        return None
    rest: tuple[Input, ...] = node.inputs[1:]
    if const_ints(graph, node.operand("axes")):
        rest = (size_array(sorted(perm[axis] for axis in gone)),)
    return Rewritten((data, *rest), node.attrs, _without(perm, set(gone), node))


def _pad(graph: Graph, node: Node, data: Ref, perm: Perm) -> Rewritten | None:
    pads = padding_of(graph, node, len(perm))
    listed = const_ints(graph, node.operand("axes"))
    # A list of no axes pads nothing, and goes.
    if not pads or listed == ():
        return None
    axes = range(len(perm)) if listed is None else listed
    moved = sorted((perm[axis], *pads[axis]) for axis in axes)
    new_axes, begins, ends = zip(*moved, strict=True)
    new, value = size_array([*begins, *ends]), node.operand("constant_value")
    inputs = (data, new, value, None if listed is None else size_array(new_axes))
    return Rewritten(inputs, node.attrs, perm)


def _slice(graph: Graph, node: Node, data: Ref, perm: Perm) -> Rewritten | None:
    starts, ends, steps = (node.operand(name) for name in ("starts", "ends", "steps"))
    count = static_shape_of(graph, starts)
    listed = const_ints(graph, node.operand("axes"), tuple(range(count[0])) if count else None)
    axes = None if listed is None else axes_from_front(listed, len(perm))
    if axes is None:
        return None
    moved = size_array([perm[axis] for axis in axes])
    return Rewritten((data, starts, ends, moved, steps), node.attrs, perm)


def _resize(graph: Graph, node: Node, data: Ref, perm: Perm) -> Rewritten | None:
    """The axes that are named move; when none are, the scales or sizes of all do."""
    if node.operand("roi") is not None:
        return None
    axes = get_ints(node.attrs, "axes")
    if axes:
        return Rewritten(
            (data, *node.inputs[1:]),
            {**node.attrs, "axes": tuple(perm[axis % len(perm)] for axis in axes)},
            perm,
        )
    inputs: list[Input] = [data, None]
    for ref in node.inputs[2:]:
        value = graph.const_value(ref)
        if ref is not None and (value is None or value.shape != (len(perm),)):
            return None
        inputs.append(
            None if value is None else np.ascontiguousarray(value[list(inverse_perm(perm))])
        )
    return Rewritten(tuple(inputs), node.attrs, perm)


def _quantise(graph: Graph, node: Node, data: Ref, perm: Perm) -> Rewritten | None:
    """One scale for all, or one for each element of an axis; blocks stay where they are."""
    scale = shape_of(graph, node.operand("y_scale", "x_scale"))
    if scale is None or len(scale) > 1 or get_int(node.attrs, "block_size", 0):
        return None
    single = not scale or scale[0] == 1
    attrs = node.attrs if single else _with_axis(node, 1, perm)
    return Rewritten((data, *node.inputs[1:]), attrs, perm)


def _with_parameters(graph: Graph, node: Node, data: Ref, perm: Perm) -> Rewritten | None:
    shapes = [shape_of(graph, ref) for ref in node.inputs[1:]]
    if (
        node.op == "FixedPointScale"
        and perm[-1] != len(perm) - 1
        and any(shape is None or any(not same_dim(dim, 1) for dim in shape) for shape in shapes)
    ):
        return None
    return Rewritten((data, *node.inputs[1:]), node.attrs, perm)

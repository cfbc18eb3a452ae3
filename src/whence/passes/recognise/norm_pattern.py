"""What layer norm and RMS norm share: 1/√(mean(d²) + ε) over the last axes, and the scale, bias and
casts around a normalised value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from whence.graph import Edit, Graph, Node, Ref, Rewriter
from whence.graph.search import producer_of
from whence.ops.registry import one_of
from whence.passes.operands import FLOATS, other_operand
from whence.passes.parameters import reduced_axes
from whence.passes.pattern import (
    dtype_of,
    is_closed,
    is_open,
    only_user,
    same_dim,
    scalar,
    shape_of,
    with_scalar,
    without_casts,
)
from whence.types import Dim, TensorType

ROOTS = one_of("Sqrt", "Pow")
"""The operators at which the search for a norm begins."""


@dataclass(frozen=True, slots=True)
class InverseRoot:
    """√(mean(d²) + ε) or its inverse, the mean over the last axes."""

    squared: Ref
    """d, as it is squared."""
    axes: tuple[int, ...]
    epsilon: float
    last: Node
    """Makes the root, or its inverse when `inverted`."""
    inverted: bool
    nodes: tuple[Node, ...]
    """Everything from the square to `last`."""


@dataclass(slots=True)
class Norm:
    """A normalised value, grown by the scale and bias behind it. `out` is the last operator taken
    in.
    """

    x: Ref
    """What is normalised."""
    out: Node
    axes: tuple[int, ...]
    nodes: list[Node] = field(default_factory=list)
    scale: Ref | None = None
    bias: Ref | None = None

    def take(self, node: Node) -> None:
        self.out = node
        self.nodes.append(node)


def inverse_root(graph: Graph, node: Node) -> InverseRoot | None:
    """The root of a mean square that `node`, a Sqrt or a Pow by ±½, computes."""
    exponent = 0.5 if node.op == "Sqrt" else scalar(graph, node.operand("Y"))
    below = node.inputs[0]
    if exponent not in {0.5, -0.5} or below is None:
        return None
    nodes: list[Node] = []
    below = _through_casts(graph, below, nodes)
    epsilon = 0.0
    add = producer_of(graph, below, "Add")
    if add is not None:
        found = with_scalar(graph, add)
        if found is None:
            return None
        nodes.append(add)
        below, epsilon = _through_casts(graph, found[0], nodes), found[1]
    mean = graph.producer(below)
    axes = mean_axes(graph, mean)
    square = producer_of(graph, mean.input(0), one_of("Pow", "Mul"))
    if axes is None or epsilon < 0 or square is None:
        return None
    squared, exponent_or_twin = square.inputs[0], square.operand("Y", "B")
    if squared is None or (
        exponent_or_twin != squared if square.op == "Mul" else scalar(graph, exponent_or_twin) != 2
    ):
        return None
    nodes += [mean, square, node]
    last, inverted = node, exponent < 0
    user = only_user(graph, node, one_of("Reciprocal", "Div"))
    # 1/√v as an operator of its own.
    if (
        not inverted
        and user is not None
        and (
            user.op == "Reciprocal"
            or (user.operand("B") == node.ref() and scalar(graph, user.inputs[0]) == 1)
        )
    ):
        last, inverted = user, True
        nodes.append(user)
    cast = only_user(graph, last, "Cast")
    if cast is not None and dtype_of(graph, cast.ref()) in FLOATS:
        last = cast
        nodes.append(cast)
    return InverseRoot(squared, axes, epsilon, last, inverted, tuple(nodes))


def mean_axes(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """The axes of a mean over the last axes that keeps the rank, else `None`."""
    shape = shape_of(graph, node.input(0))
    if shape is None or dtype_of(graph, node.input(0)) not in FLOATS:
        return None
    if not node.is_a("ReduceMean", "GlobalAveragePool") or not node.attrs.get("keepdims", 1):
        return None
    rank = len(shape)
    axes = reduced_axes(graph, node, rank)
    return axes if axes and axes == tuple(range(rank - len(axes), rank)) else None


def _through_casts(graph: Graph, ref: Ref, nodes: list[Node]) -> Ref:
    ref, casts = without_casts(graph, ref)
    nodes += casts
    return ref


def settle_type(graph: Graph, norm: Norm) -> bool:
    """Choose the type of the norm: that of its result, or of the cast behind it, found among `x`
    and what `x` was cast from.

    False when none has it. To be called before scale and bias are taken in.
    """
    sources = [norm.x, *(cast.inputs[0] for cast in without_casts(graph, norm.x)[1])]
    by_type = {dtype_of(graph, ref): ref for ref in reversed(sources) if ref is not None}
    cast = only_user(graph, norm.out, "Cast")
    # Wide in between, narrow outside: the norm of the narrow type computes like that by itself.
    if cast is not None and norm.scale is None and dtype_of(graph, cast.ref()) in by_type:
        norm.take(cast)
    x = by_type.get(dtype_of(graph, norm.out.ref()))
    if x is not None:
        norm.x = x
    return x is not None


def take_in_scale(graph: Graph, norm: Norm) -> None:
    """Take in the product with a scale that follows."""
    if norm.scale is None:
        norm.scale = taken_parameter(graph, norm, "Mul")


def taken_parameter(graph: Graph, norm: Norm, op: str) -> Ref | None:
    """What the norm is combined with by the one operator that reads it, which is taken in, if that
    is a parameter of the normalised axes.
    """
    user = only_user(graph, norm.out, op)
    found = None if user is None else other_operand(user, norm.out.ref())
    if user is None or found is None or not is_parameter(graph, found, norm.x, norm.axes):
        return None
    norm.take(user)
    return found


def scaled_root(
    graph: Graph, root: InverseRoot, x: Ref, nodes: Iterable[Node]
) -> tuple[Norm, Node, Ref] | None:
    """The norm of `x` as far as the root, with a scale that is multiplied into it; the operator
    that then divides by the root, or multiplies by its inverse; and what that divides.
    """
    norm = Norm(x, root.last, root.axes, [*nodes, *root.nodes])
    if root.inverted:
        take_in_scale(graph, norm)
    factor = norm.out.ref()
    product = only_user(graph, norm.out, "Mul" if root.inverted else "Div")
    top = None if product is None else other_operand(product, factor)
    if product is None or top is None or (product.op == "Div" and product.operand("B") != factor):
        return None
    return norm, product, top


def become_one(
    rewriter: Rewriter, norm: Norm, epsilon: float, read: Iterable[Ref], op: str, rule: str
) -> None:
    """Put `op` in the place of the norm, whose nodes read `read`, if nobody else needs any of it."""
    nodes = _with_casts_in_front(rewriter.graph, norm.nodes, read, norm.x)
    if not is_closed(nodes, norm.out):
        return
    edit = rewriter.edit(*nodes, rule=rule)
    scale = _parameter(edit, norm.scale, norm)
    if scale is None:
        return
    bias = None if norm.bias is None else _parameter(edit, norm.bias, norm)
    attrs = {"axis": -len(norm.axes), "epsilon": epsilon, "stash_type": 1}
    edit.finish(norm.out, edit.node(op, [norm.x, scale, bias], attrs))


def _with_casts_in_front(
    graph: Graph, nodes: Iterable[Node], first_read: Iterable[Ref], x: Ref
) -> list[Node]:
    """`nodes`, and the casts between `x` and what they read, as far as nobody else reads those
    casts.
    """
    matched = {node.id: node for node in nodes}
    for ref in first_read:
        while ref != x:
            cast = graph.producer(ref)
            if (
                cast.op != "Cast"
                or len(cast._uses) > len(matched)
                or not matched.keys() >= cast._uses.keys()
            ):
                break
            matched[cast.id] = cast
            ref = cast.first_input
    return list(matched.values())


def is_parameter(graph: Graph, ref: Ref, x: Ref, axes: tuple[int, ...]) -> bool:
    """May `ref` be the scale or bias of a norm of `x` over `axes`?"""
    kind, shape = graph.tensor_type(ref), shape_of(graph, x)
    if kind is None or shape is None or kind.shape is None or kind.dtype != dtype_of(graph, x):
        return False
    wanted = shape[axes[0] :]
    value = graph.const_value(ref)
    if value is None:
        # A value of full rank is as likely a residual as a parameter.
        return (
            len(wanted) < len(shape)
            and len(kind.shape) == len(wanted)
            and all(map(same_dim, kind.shape, wanted))
        )
    if value.ndim > len(shape) or any(dim != 1 for dim in value.shape[: -len(wanted)]):
        return False
    return all(
        _fits(have, want) for have, want in zip(_last_dims(value, len(wanted)), wanted, strict=True)
    )


def _last_dims(value: np.ndarray, count: int) -> tuple[int, ...]:
    dims = value.shape[-count:]
    return (1,) * (count - len(dims)) + dims


def _fits(have: int, want: Dim) -> bool:
    """Does a parameter of this dimension broadcast to the normalised one? An open dimension takes
    its number from the parameter.
    """
    return have > 1 if is_open(want) else have in {1, want}


def _parameter(edit: Edit, ref: Ref | None, norm: Norm) -> Ref | None:
    """`ref`, spread over the normalised axes when it is a constant; all ones without `ref`. `None`
    when their size is not known.
    """
    kind = edit.type_of(norm.x)
    assert isinstance(kind, TensorType)
    assert kind.shape is not None
    wanted = kind.shape[norm.axes[0] :]
    if ref is None:
        sizes = tuple(dim for dim in wanted if isinstance(dim, int))
        return edit.const(np.ones(sizes, kind.dtype.numpy)) if len(sizes) == len(wanted) else None
    value = edit.value_of(ref)
    if value is None:
        return ref
    dims = _last_dims(value, len(wanted))
    sizes = tuple(
        want if isinstance(want, int) else have for have, want in zip(dims, wanted, strict=True)
    )
    if value.shape == sizes:
        return ref
    return edit.const(
        np.ascontiguousarray(np.broadcast_to(value.reshape(dims), sizes)),
        name=edit.graph.producer(ref).name,
    )

"""Activations written out in small operators: x · (a·f(p(x)) + b), where f is one operator and p a
polynomial.

GELU, SiLU and hard-swish are all of this form, and exporters write the products and sums in every
order there is. So the recognising passes do not list orders: they ask for a, b and p and compare
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from whence.graph import Graph, Node, Ref
from whence.graph.search import producer_of
from whence.ops.registry import one_of
from whence.passes.operands import FLOATS, other_operand
from whence.passes.pattern import (
    dtype_of,
    float_cast,
    near,
    only_user,
    rank_of,
    scalar,
    with_scalar,
)
from whence.types import DType

# Enough for every way of writing a cubic; a bound, so that a match costs the same in every graph.
_MAX_STEPS = 24
_MAX_DEGREE = 3
_MAX_AFFINE_USERS = 5
_MAX_DESCENT = 4


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A polynomial in one value of the graph: the coefficient of each power, and the nodes that
    compute it.
    """

    terms: Mapping[int, float]
    nodes: tuple[Node, ...]

    def is_near(self, terms: Mapping[int, float], dtype: DType) -> bool:
        """Are all coefficients as in `terms`?"""
        return all(
            near(self.terms.get(power, 0.0), terms.get(power, 0.0), dtype)
            for power in {*self.terms, *terms}
        )


_X = Polynomial({1: 1.0}, ())


@dataclass(frozen=True, slots=True)
class Gate:
    """`root` computes x · (slope·f(argument) + offset), or just the bracket; f is `middle`'s."""

    root: Node
    middle: Node
    x: Ref
    slope: float
    offset: float
    argument: Polynomial
    nodes: tuple[Node, ...]
    """All of the above, `root` last."""


def polynomial(graph: Graph, ref: Ref, base: Ref) -> Polynomial | None:
    """The value `ref` as a polynomial in `base` of degree up to 3, or `None`. Constants must not
    change the shape of `base`.
    """
    walk = _Walk(graph, base)
    terms = walk.terms(ref)
    return None if terms is None else Polynomial(terms, tuple(walk.nodes.values()))


def gates(graph: Graph, middle: Node, *, by_x: bool = True) -> Iterator[Gate]:
    """Every way to see `middle` as the f of a gate, the innermost `root` first; without `by_x` as
    that of the bracket alone, before a product with x.
    """
    below = middle.first_input
    for root, slope, offset, outer, above in _affine_users(graph, middle):
        if by_x != (outer is not None):
            continue
        for x in _bases(graph, below if outer is None else outer):
            factor = _X if outer is None else polynomial(graph, outer, x)
            argument = polynomial(graph, below, x)
            if (
                factor is None
                or argument is None
                or set(factor.terms) != {1}
                or not _same_float(graph, x, root)
            ):
                continue
            nodes = dict.fromkeys((*argument.nodes, *factor.nodes, middle, *above))
            yield Gate(
                root,
                middle,
                x,
                slope * factor.terms[1],
                offset * factor.terms[1],
                argument,
                tuple(nodes),
            )


def _affine_users(
    graph: Graph, middle: Node
) -> Iterator[tuple[Node, float, float, Ref | None, tuple[Node, ...]]]:
    """From `middle` along single users: (node, slope, offset, outer factor, nodes) with node =
    outer · (slope·f + offset). `middle` itself is the first.
    """
    slope, offset = 1.0, 0.0
    outer: Ref | None = None
    node, above = middle, list[Node]()
    yield node, slope, offset, outer, ()
    for _ in range(_MAX_AFFINE_USERS):
        user = only_user(graph, node, one_of("Add", "Sub", "Mul", "Div", "Cast"))
        if user is None:
            return
        if user.op == "Cast":
            if float_cast(graph, user.ref()) is None:
                return
        else:
            other = other_operand(user, node.ref())
            number = _number(graph, other, node.ref())
            if other is None:
                return
            if number is not None and user.op == "Mul":
                slope, offset = slope * number, offset * number
            elif number and user.op == "Div" and user.operand("B") == other:
                slope, offset = slope / number, offset / number
            elif number is not None and user.op == "Add" and outer is None:
                offset += number
            elif number is not None and user.op == "Sub" and outer is None:
                slope, offset = (
                    (slope, offset - number)
                    if user.operand("B") == other
                    else (-slope, number - offset)
                )
            elif number is None and user.op == "Mul" and outer is None:
                outer = other
            else:
                return
        node = user
        above.append(user)
        yield node, slope, offset, outer, tuple(above)


def _same_float(graph: Graph, x: Ref, root: Node) -> bool:
    return dtype_of(graph, x) == dtype_of(graph, root.ref()) and dtype_of(graph, x) in FLOATS


def _bases(graph: Graph, ref: Ref) -> Iterator[Ref]:
    """`ref`, and what it is a scaled or shifted copy of."""
    for _ in range(_MAX_DESCENT):
        yield ref
        node = graph.producer(ref)
        cast = float_cast(graph, ref)
        if cast is not None:
            ref = cast.first_input
            continue
        found = with_scalar(graph, node) if node.is_a("Add", "Mul") else None
        if found is not None:
            ref = found[0]
        elif node.is_a("Sub", "Div") and scalar(graph, node.operand("B")) is not None:
            ref = node.first_input
        else:
            return


def _number(graph: Graph, ref: Ref | None, beside: Ref) -> float | None:
    """The scalar behind `ref`, when combining it with `beside` leaves the shape of that alone."""
    number = scalar(graph, ref)
    if number is None:
        return None
    rank, whole = rank_of(graph, ref), rank_of(graph, beside)
    return number if rank == 0 or (rank and whole and rank <= whole) else None


class _Walk:
    """One descent from a value to the `base` it may be a polynomial in. It takes a bounded number
    of steps, then gives up.
    """

    def __init__(self, graph: Graph, base: Ref) -> None:
        self.graph = graph
        self.base = base
        self.nodes: dict[int, Node] = {}
        self._steps = _MAX_STEPS

    def terms(self, ref: Ref) -> dict[int, float] | None:
        if ref == self.base:
            return {1: 1.0}
        self._steps -= 1
        number = _number(self.graph, ref, self.base)
        if number is not None:
            return {0: number}
        node = producer_of(
            self.graph, ref, one_of("Add", "Sub", "Mul", "Div", "Neg", "Pow", "Cast")
        )
        if node is None or self._steps < 0 or dtype_of(self.graph, ref) not in FLOATS:
            return None
        parts: list[dict[int, float]] = []
        for operand in node.inputs:
            part = None if operand is None else self.terms(operand)
            if part is None:
                return None
            parts.append(part)
        self.nodes[node.id] = node
        return _combine(node.op, parts)


def _combine(op: str, parts: list[dict[int, float]]) -> dict[int, float] | None:
    left, right = parts[0], parts[-1]
    if op == "Cast":
        return left
    if op == "Neg":
        return {power: -value for power, value in left.items()}
    sign = 1 if op == "Add" else -1 if op == "Sub" else 0
    if sign:
        return {
            power: left.get(power, 0.0) + sign * right.get(power, 0.0) for power in {*left, *right}
        }
    if op == "Mul":
        return _product(left, right)
    if set(right) != {0}:
        return None
    number = right[0]
    if op == "Div":
        return None if number == 0 else {power: value / number for power, value in left.items()}
    # Pow
    if number not in {1.0, 2.0, 3.0}:
        return None
    result: dict[int, float] | None = {0: 1.0}
    for _ in range(int(number)):
        result = None if result is None else _product(result, left)
    return result


def _product(left: dict[int, float], right: dict[int, float]) -> dict[int, float] | None:
    terms: dict[int, float] = {}
    for i, a in left.items():
        for j, b in right.items():
            terms[i + j] = terms.get(i + j, 0.0) + a * b
    return terms if max(terms) <= _MAX_DEGREE else None

"""The element rule of RotaryEmbedding: pairs of elements rotated by an angle that depends on their
position in the sequence.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.errors import UnsupportedError
from whence.graph import Node, Ref
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import apply, below, cast, position, select
from whence.kernels.index import Index, of
from whence.kernels.ir import Expr, Fn, Literal
from whence.kernels.rules.elementwise import add, mul, sub
from whence.kernels.rules.movement import looked_up
from whence.ops.attributes import get_int
from whence.types import DType


def _rotary(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    # (a, b) rotated by t: (a · cos t - b · sin t, a · sin t + b · cos t)
    source, cosines, sines = (node.required(name) for name in ("X", "cos_cache", "sin_cache"))
    shape = elements.shape(source)
    packed = len(shape) == 3
    heads = get_int(node.attrs, "num_heads", 0) if packed else 1
    if packed and heads <= 0:
        raise UnsupportedError(f"RotaryEmbedding '{node.name}' does not say how many heads it has")
    size = shape[-1] // heads
    batch, row = index[0], index[1] if packed else index[2]
    at = index[-1] % size
    start = index[-1] - at
    rotated = get_int(node.attrs, "rotary_embedding_dim", 0) or size
    half = rotated // 2

    def x(place: Index) -> Expr:
        return elements.value(source, (*index[:-1], start + place))

    def rotate(pair: Index, first: Expr, second: Expr) -> tuple[Expr, Expr]:
        cosine, sine = (
            cast(_angle(elements, node, ref, batch, row, pair), first.dtype)
            for ref in (cosines, sines)
        )
        return sub(mul(cosine, first), mul(sine, second)), add(
            mul(sine, first), mul(cosine, second)
        )

    if node.attrs.get("interleaved", 0):
        pair = at // 2
        first, second = rotate(pair, x(pair * 2), x(pair * 2 + 1))
        value = select(apply(Fn.EQ, position(at % 2), Literal(0, DType.I64)), first, second)
    else:
        first, _ = rotate(at, x(at), x(at + half))
        _, second = rotate(at - half, x(at - half), x(at))
        value = select(below(at, half), first, second)
    return value if rotated == size else select(below(at, rotated), value, x(at))


def _angle(elements: Elements, node: Node, ref: Ref, batch: Index, row: Index, pair: Index) -> Expr:
    positions = node.operand("position_ids")
    if positions is None:
        return elements.value(ref, (of(0) if elements.shape(ref)[0] == 1 else batch, row, pair))
    shared = zip((batch, row), elements.shape(positions), strict=True)
    at = tuple(of(0) if extent == 1 else place for place, extent in shared)
    return elements.value(ref, (looked_up(elements, positions, at, elements.shape(ref)[0]), pair))


RULES: Mapping[str, Rule] = {"RotaryEmbedding": _rotary}

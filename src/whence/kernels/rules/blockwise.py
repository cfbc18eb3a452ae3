"""The element rule of GatherBlockQuantized: an element of a row is found in its byte, and becomes a
number by the scale of its block.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.graph import Node, Ref
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import apply, cast, position
from whence.kernels.index import Index
from whence.kernels.ir import Expr, Fn, Literal
from whence.kernels.rules.elementwise import mul, sub
from whence.kernels.rules.movement import looked_up
from whence.ops.attributes import get_int
from whence.ops.quantised.blockwise import GATHER
from whence.types import DType


def _gather(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    data, indices, scales = (node.required(name) for name in ("data", "indices", "scales"))
    bits, block = get_int(node.attrs, "bits", 4), get_int(node.attrs, "block_size", 128)
    rank = len(elements.shape(indices))
    row = looked_up(elements, indices, index[:rank], elements.shape(data)[0])
    inner, column = index[rank:-1], index[-1]
    of_block = column // block
    zeros = node.operand("zero_points")
    zero = (
        Literal(1 << (bits - 1), DType.I32)
        if zeros is None
        else _code(elements, zeros, (row, *inner), of_block, bits)
    )
    centred = sub(_code(elements, data, (row, *inner), column, bits), zero)
    scale = elements.value(scales, (row, *inner, of_block))
    return mul(cast(centred, DType.F32), cast(scale, DType.F32))


def _code(elements: Elements, ref: Ref, row: Indices, place: Index, bits: int) -> Expr:
    """Number `place` of a row of packed ones."""
    each = 8 // bits
    byte = cast(elements.value(ref, (*row, place // each)), DType.I32)
    if each == 1:
        return byte
    shift = position((place % each) * bits, DType.I32)
    return apply(
        Fn.BIT_AND, apply(Fn.SHIFT_RIGHT, byte, shift), Literal((1 << bits) - 1, DType.I32)
    )


RULES: Mapping[str, Rule] = {GATHER: _gather}

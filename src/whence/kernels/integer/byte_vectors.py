"""What integer kernels do with vectors of bytes; `codegen/integer_vectors.py` has the functions."""

from __future__ import annotations

from collections.abc import Sequence

from whence.kernels.builder import Builder
from whence.kernels.ir import Bits, Expr, Fn, Literal, Primitive, lanewise
from whence.types import DType

ONES = Literal(0x01010101, DType.I32)
"""A byte of 1 in each of four places."""


def words(value: Expr) -> Expr:
    """Bytes, four at a time, as int32."""
    return Bits(value, DType.I32)


def dot(total: Expr, unsigned: Expr, signed: Expr) -> Expr:
    """The sum with the four products of each lane's bytes added, exactly."""
    return Primitive(f"dot_x{total.lanes}", (total, unsigned, signed), DType.I32, total.lanes)


def quads(rows: Sequence[Expr], order: Expr) -> Expr:
    """The bytes of four vectors side by side: lane i holds byte i of each."""
    unsigned = tuple(Bits(row, DType.U8) if row.dtype is DType.I8 else row for row in rows)
    return Primitive(f"quads_x{order.lanes}", (*unsigned, order), DType.I32, order.lanes)


def quad_order(build: Builder, lanes: int) -> Expr:
    """What `quads` wants to be given, from outside all loops."""
    return build.let("order", Primitive(f"quad_order_x{lanes}", (), DType.I32, lanes))


def flipped(value: Expr) -> Expr:
    """Signed bytes from unsigned ones that are 128 larger, and back, four to an int32."""
    return lanewise(Fn.BIT_XOR, value, Literal(0x80808080 - 2**32, DType.I32))


def unsigned_zero(build: Builder, x_zero: Expr, dtype: DType) -> Expr:
    """The zero point of bytes of this type that are made unsigned."""
    if dtype is DType.I8 and isinstance(x_zero, Literal):
        x_zero = Literal(x_zero.value + 128, DType.I32)
    elif dtype is DType.I8:
        x_zero = x_zero + Literal(128, DType.I32)
    return build.let("zero", x_zero)

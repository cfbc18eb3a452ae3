"""Codes of 2, 4 or 8 bits out of 32-bit words: code j of *quad* q, four codes that follow each
other, is

    (word >> bits · q) & mask, byte j
"""

from __future__ import annotations

from whence.kernels.ir import Expr, Fn, Literal, Op, lanewise
from whence.types import DType


def quad_of(bits: int, word: Expr, quad: int) -> Expr:
    """Four codes of each column, one in each byte."""
    if bits == 8:
        return word
    mask = ((1 << bits) - 1) * 0x01010101
    return lanewise(Fn.BIT_AND, _shifted(word, bits * quad), Literal(mask, DType.I32))


def code_of(bits: int, word: Expr, quad: int, byte: int) -> Expr:
    """One code of each column, as float32."""
    mask = (1 << bits) - 1
    shifted = _shifted(word, 8 * byte + bits * quad)
    code = lanewise(Fn.BIT_AND, shifted, Literal(mask, DType.I32))
    return Op(Fn.CAST, (code,), DType.F32, word.lanes)


def _shifted(word: Expr, bits: int) -> Expr:
    return lanewise(Fn.SHIFT_RIGHT, word, Literal(bits, DType.I32)) if bits else word

"""Weights quantised to a few bits in blocks along a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.errors import ModelError
from whence.frontends.onnx.record import EVERY_OPSET, Adapter, OpRecord, Rewrite, Scope
from whence.types import DType

_DTYPES = {2: DType.U2, 4: DType.U4, 8: DType.U8}


def unpack(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The first `count` unsigned numbers of each row of bytes, lowest bits first, one to a byte."""
    lanes = 8 // bits
    shifts = np.arange(lanes, dtype=np.uint8) * bits
    numbers = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], packed.shape[-1] * lanes)[..., :count]


def _mat_mul_n_bits(record: OpRecord, scope: Scope) -> Sequence[OpRecord]:
    """a @ dequantised(b)ᵀ + bias. Row n of b holds column n of the weight: blocks of numbers with a
    scale and a zero point each.
    """
    bits, depth, columns, block = (
        record.integer(name, default)
        for name, default in (("bits", 4), ("K", 0), ("N", 0), ("block_size", 32))
    )
    if bits not in _DTYPES or block <= 0 or depth <= 0 or columns <= 0:
        raise record.unsupported(f"{bits}-bit weights of {columns} x {depth} in blocks of {block}")
    if record.input(4):
        raise record.unsupported("weights regrouped by an index (g_idx)")
    packed, scales = scope.value_of(record.required(1)), scope.value_of(record.required(2))
    if packed is None or scales is None:
        raise record.unsupported("weights that are not constants")
    blocks = -(-depth // block)
    if packed.size * 8 != columns * blocks * block * bits or scales.size != columns * blocks:
        raise ModelError(
            f"{record}: the weights do not hold {columns} rows of {blocks} blocks of {block}"
            " numbers"
        )
    build = Rewrite(record, scope)
    dtype = _DTYPES[bits]
    numbers = unpack(packed.view(np.uint8).reshape(columns, -1), bits, depth)
    scale = build.constant(np.ascontiguousarray(scales.reshape(columns, blocks)))
    weight = build.constant(numbers.astype(dtype.numpy))
    zeros = _zero_points(record, scope, bits, columns, blocks)
    if zeros.dtype.kind == "f":
        # The zero point is a real number, which DequantizeLinear cannot take: (q - z) * s.
        real = np.repeat(zeros, block, axis=1)[:, :depth]
        scale_each = np.repeat(scales.reshape(columns, blocks), block, axis=1)[:, :depth]
        matrix = build.constant(((numbers.astype(real.dtype) - real) * scale_each).T.copy())
    else:
        zero = build.constant(zeros.astype(dtype.numpy))
        matrix = build.op(
            "Transpose",
            build.op("DequantizeLinear", weight, scale, zero, axis=1, block_size=block),
            perm=(1, 0),
        )
    if not record.input(5):
        return build.result("MatMul", record.required(0), matrix)
    return build.result("Add", build.op("MatMul", record.required(0), matrix), record.input(5))


def _zero_points(
    record: OpRecord, scope: Scope, bits: int, columns: int, blocks: int
) -> np.ndarray:
    if not record.input(3):
        return np.full((columns, blocks), 1 << (bits - 1), np.uint8)
    given = scope.value_of(record.input(3))
    if given is None:
        raise record.unsupported("zero points that are not constants")
    if given.dtype.kind == "f":
        return given.reshape(columns, blocks)
    packed = given.view(np.uint8).reshape(columns, -1)
    if packed.shape[1] * 8 < blocks * bits:
        raise ModelError(f"{record}: too few zero points for {columns} rows of {blocks} blocks")
    return unpack(packed, bits, blocks)


def _gather_block_quantised(record: OpRecord, scope: Scope) -> Sequence[OpRecord]:
    """Rows of a quantised table: the numbers, scales and zero points of the rows wanted are
    gathered first, then put together.
    """
    table, scales = scope.value_of(record.required(0)), scope.value_of(record.required(2))
    if (
        table is None
        or scales is None
        or (record.input(3) and scope.value_of(record.input(3)) is None)
    ):
        raise record.unsupported("a table that is not constant")
    bits, last = record.integer("bits", 4), table.ndim - 1
    gather_axis, block_axis = (
        record.integer("gather_axis", 0) % table.ndim,
        record.integer("quantize_axis", 1) % table.ndim,
    )
    if gather_axis != 0 or block_axis != last or last == 0 or bits not in _DTYPES:
        raise record.unsupported("a table that is not gathered by row and quantised along the row")
    packed = table.dtype == np.uint8
    zeros = scope.value_of(record.input(3)) if record.input(3) else None
    if packed:
        numbers = unpack(table, bits, table.shape[-1] * 8 // bits)
        zeros = (
            np.full(scales.shape, 1 << (bits - 1), np.uint8)
            if zeros is None
            else unpack(zeros, bits, scales.shape[-1])
        )
    else:
        kind = np.int8 if DType.of(table) in (DType.I4, DType.I8) else np.uint8
        numbers = table.astype(kind)
        zeros = np.zeros(scales.shape, kind) if zeros is None else zeros.astype(kind)
    build = Rewrite(record, scope)
    rows, row_scales, row_zeros = (
        build.op("Gather", build.constant(part), record.required(1), axis=0)
        for part in (numbers, np.ascontiguousarray(scales), zeros)
    )
    return build.result(
        "DequantizeLinear",
        rows,
        row_scales,
        row_zeros,
        axis=-1,
        block_size=record.integer("block_size", 128),
    )


BLOCKWISE: tuple[Adapter, ...] = (
    Adapter("GatherBlockQuantized", EVERY_OPSET, _gather_block_quantised),
    Adapter("MatMulNBits", EVERY_OPSET, _mat_mul_n_bits),
)

"""Weights quantised to a few bits in blocks along a row.

Operators of single precision on bytes stay what they are (`ops/quantised/blockwise.py`), packed
weights included. The rest (half precision, zero points that are real numbers, tables of int4
elements, other axes) is said in operators of ONNX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from whence.errors import ModelError
from whence.frontends.onnx.record import OpRecord, Restate, Rewrite
from whence.ops.definition import Attr
from whence.ops.quantised.blockwise import unpack
from whence.types import DType

_DTYPES = {2: DType.U2, 4: DType.U4, 8: DType.U8}


def _mat_mul_n_bits(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """a @ dequantised(b)ᵀ + bias. Row n of b holds column n of the weight: blocks of numbers with a
    scale and a zero point each.
    """
    bits, depth, columns, block = (
        record.integer(name, default)
        for name, default in (("bits", 4), ("K", 0), ("N", 0), ("block_size", 32))
    )
    if bits not in _DTYPES or block <= 0 or depth <= 0 or columns <= 0:
        raise record.unsupported(f"{bits}-bit weights of {columns} x {depth} in blocks of {block}")
    *_, zero_points, regrouping, bias = record.operands(6)
    if regrouping:
        raise record.unsupported("weights regrouped by an index (g_idx)")
    packed, scales = (build.scope.value_of(record.required(index)) for index in (1, 2))
    if packed is None or scales is None:
        raise record.unsupported("weights that are not constants")
    blocks = -(-depth // block)
    if packed.size * 8 != columns * blocks * block * bits or scales.size != columns * blocks:
        raise ModelError(
            f"{record}: the weights do not hold {columns} rows of {blocks} blocks of {block}"
            " numbers"
        )
    if _is_single(build, record.required(0), scales) and _are_codes(build, zero_points):
        return [record]
    dtype = _DTYPES[bits]
    numbers = unpack(packed.view(np.uint8).reshape(columns, -1), bits, depth)
    scale = build.constant(np.ascontiguousarray(scales.reshape(columns, blocks)))
    weight = build.constant(numbers.astype(dtype.numpy))
    zeros = _zero_points(record, build, zero_points, bits, columns, blocks)
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
    if not bias:
        return build.result("MatMul", record.required(0), matrix)
    return build.result("Add", build.op("MatMul", record.required(0), matrix), bias)


def _is_single(build: Rewrite, data: str, scales: np.ndarray) -> bool:
    return build.dtype(data) is DType.F32 and scales.dtype == np.float32


def _are_codes(build: Rewrite, zeros: str) -> bool:
    """Are the zero points packed like the numbers, or absent?"""
    return not zeros or build.dtype(zeros) is DType.U8


def _zero_points(
    record: OpRecord, build: Rewrite, name: str, bits: int, columns: int, blocks: int
) -> np.ndarray:
    if not name:
        return np.full((columns, blocks), 1 << (bits - 1), np.uint8)
    given = build.scope.value_of(name)
    if given is None:
        raise record.unsupported("zero points that are not constants")
    if given.dtype.kind == "f":
        return given.reshape(columns, blocks)
    packed = given.view(np.uint8).reshape(columns, -1)
    if packed.shape[1] * 8 < blocks * bits:
        raise ModelError(f"{record}: too few zero points for {columns} rows of {blocks} blocks")
    return unpack(packed, bits, blocks)


def _gather_block_quantised(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """Rows of a quantised table: the numbers, scales and zero points of the rows wanted are
    gathered first, then put together. A table that is gathered or quantised along another axis is
    put together as a whole.
    """
    table, indices, scales = (record.required(index) for index in range(3))
    dtype, rank, bits = build.dtype(table), build.known_rank(table), record.integer("bits", 4)
    if dtype is None or bits not in _DTYPES:
        raise record.unsupported(f"a table of {bits}-bit numbers, or of unknown element type")
    block = record.integer("block_size", 128)
    gather_axis = record.integer("gather_axis", 0) % rank
    block_axis = record.integer("quantize_axis", 1) % rank
    zero_points = record.input(3)
    parts = [table, scales, zero_points] if zero_points else [table, scales]
    by_row = gather_axis == 0 and block_axis == rank - 1 and rank > 1
    is_single = build.dtype(scales) is DType.F32
    if by_row and dtype is DType.U8 and is_single and _are_codes(build, zero_points):
        return [record]
    if by_row:
        parts = [build.op("Gather", _plain(build, part), indices, axis=0) for part in parts]
    is_packed = dtype is DType.U8 and bits < 8
    if dtype is DType.U8:
        if block_axis != rank - 1:
            raise record.unsupported("numbers packed along another axis than the last")
        numbers = _unpacked(build, parts[0], bits) if is_packed else parts[0]
        if len(parts) == 3:
            # A row of zero points is filled up to whole bytes.
            blocks = build.op("Shape", parts[1], start=-1)
            zeros = _unpacked(build, parts[2], bits) if is_packed else parts[2]
            zeros = build.op("Slice", zeros, build.ints(0), blocks, build.ints(-1))
        else:
            zeros = build.constant(np.array(1 << (bits - 1), np.uint8))
            zeros = build.op("Expand", zeros, build.op("Shape", parts[1]))
    else:
        numbers = parts[0]
        zeros = parts[2] if len(parts) == 3 else ""
    axis = -1 if by_row else block_axis
    attrs: dict[str, Attr] = {"axis": axis, "block_size": block}
    if by_row:
        return build.result("DequantizeLinear", numbers, parts[1], zeros, **attrs)
    whole = build.op("DequantizeLinear", numbers, parts[1], zeros, **attrs)
    return build.result("Gather", whole, indices, axis=gather_axis)


def _plain(build: Rewrite, part: str) -> str:
    """A constant of numbers smaller than a byte with one to a byte, in which rows can be found."""
    value = build.scope.value_of(part)
    kind = build.dtype(part)
    if kind is None or kind.bits >= 8:
        return part
    wide = DType.I8 if kind in (DType.I2, DType.I4) else DType.U8
    if value is None:
        return build.cast(part, wide)
    return build.constant(value.astype(wide.numpy))


def _unpacked(build: Rewrite, packed: str, bits: int) -> str:
    """The unsigned numbers of each row of bytes, lowest bits first, one to a byte."""
    mask = build.constant(np.array((1 << bits) - 1, np.uint8))
    lanes = [
        build.op(
            "Unsqueeze",
            build.op(
                "BitwiseAnd",
                build.op(
                    "BitShift", packed, build.constant(np.array(shift, np.uint8)), direction="RIGHT"
                ),
                mask,
            ),
            build.ints(-1),
        )
        for shift in range(0, 8, bits)
    ]
    shape = build.op("Concat", build.op("Shape", packed, end=-1), build.ints(-1), axis=0)
    return build.op("Reshape", build.op("Concat", *lanes, axis=-1), shape)


RESTATEMENTS: Mapping[str, Restate] = {
    "GatherBlockQuantized": _gather_block_quantised,
    "MatMulNBits": _mat_mul_n_bits,
}

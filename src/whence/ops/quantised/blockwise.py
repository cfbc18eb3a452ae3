"""Weights of 2, 4 or 8 bits that stay packed: each row of numbers is divided into blocks, which
have a scale and a zero point each.

A byte holds its numbers lowest bits first. Without zero points, the middle of the range stands for
zero: 8 of 0 to 15. As `com.microsoft` defines them, so that files are read and written as they are.
"""

from __future__ import annotations

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int
from whence.ops.definition import (
    Attrs,
    Call,
    IndexedAxes,
    Indexing,
    OpClass,
    OpDef,
    Pattern,
    TypeQuery,
    Value,
    count,
)
from whence.ops.operand import CODING, DATA, INDEX, named, with_optional
from whence.ops.operands.checks import count_of, demand, demand_elements
from whence.ops.precision import narrow, optional_tensor, tensor, widen
from whence.ops.traits import Trait
from whence.ops.types.type_rules import is_absent, tensor_type
from whence.types import Dim, DType, TensorType

MATMUL = "com.microsoft::MatMulNBits"
GATHER = "com.microsoft::GatherBlockQuantized"
BITS = (2, 4, 8)


def unpack(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The first `count` unsigned numbers of each row of bytes, lowest bits first, one to a byte."""
    lanes = 8 // bits
    shifts = np.arange(lanes, dtype=np.uint8) * bits
    numbers = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], packed.shape[-1] * lanes)[..., :count]


def block_count(attrs: Attrs) -> int:
    """The blocks of a row of a MatMulNBits."""
    return -(-get_int(attrs, "K", 0) // get_int(attrs, "block_size", 32))


def weight_codes(attrs: Attrs, packed: np.ndarray) -> np.ndarray:
    """The codes of a MatMulNBits' weights, [N, blocks · block_size], one to a byte."""
    columns, block = get_int(attrs, "N", 0), get_int(attrs, "block_size", 32)
    return unpack(
        packed.view(np.uint8).reshape(columns, -1),
        get_int(attrs, "bits", 4),
        block_count(attrs) * block,
    )


def zero_points(attrs: Attrs, packed: np.ndarray | None) -> np.ndarray:
    """The zero points of a MatMulNBits' weights, [N, blocks], one to a byte."""
    columns, bits, blocks = get_int(attrs, "N", 0), get_int(attrs, "bits", 4), block_count(attrs)
    if packed is None:
        return np.full((columns, blocks), 1 << (bits - 1), np.uint8)
    return unpack(packed.view(np.uint8).reshape(columns, -1), bits, blocks)


def _matmul(call: Call) -> Value:
    """A · dequantised(B)ᵀ + bias: row n of B holds column n of the weights."""
    a, packed, scales = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    depth, columns = get_int(call.attrs, "K", 0), get_int(call.attrs, "N", 0)
    block, bias = get_int(call.attrs, "block_size", 32), optional_tensor(call, 5)
    if optional_tensor(call, 4) is not None:
        raise ModelError("weights regrouped by an index (g_idx) are not known")
    zeros = zero_points(call.attrs, optional_tensor(call, 3))
    scale = widen(scales).reshape(columns, -1)
    numbers = weight_codes(call.attrs, packed).reshape(columns, -1, block)
    centred = numbers.astype(np.float32) - zeros.astype(np.float32)[..., np.newaxis]
    weights = (centred * scale[..., np.newaxis]).reshape(columns, -1)[:, :depth]
    result = widen(a) @ weights.T
    return narrow(result if bias is None else result + widen(bias), a.dtype)


def _infer_matmul(query: TypeQuery) -> TensorType:
    a, columns = tensor_type(query, 0), get_int(query.attrs, "N", 0)
    if a.shape is None:
        return TensorType(a.dtype)
    if not a.shape:
        raise ModelError(f"A is {a}, and should have an axis")
    return TensorType(a.dtype, (*a.shape[:-1], columns))


def _check_packing(bits: int, block: int) -> None:
    if bits not in BITS or block < 16 or block & (block - 1):
        raise ModelError(
            f"{bits}-bit numbers in blocks of {block}; it takes 2, 4 or 8 bits and"
            " blocks of 16, 32, 64, ..."
        )


def _demand_bytes(query: TypeQuery, index: int, wanted: int, what: str) -> None:
    if is_absent(query, index):
        return
    kind = tensor_type(query, index)
    found = count_of(kind.shape)
    if kind.dtype not in (DType.U8, DType.UNDEFINED) or (found is not None and found != wanted):
        raise ModelError(f"{what} are {kind}, and should be {wanted} bytes")


def _check_matmul(query: TypeQuery) -> None:
    """Kernels read as many bytes as K, N, bits and block_size say."""
    bits, block, depth, columns = (
        get_int(query.attrs, name, default)
        for name, default in (("bits", 4), ("block_size", 32), ("K", 0), ("N", 0))
    )
    _check_packing(bits, block)
    for name, size in (("K", depth), ("N", columns)):
        if size < 1:
            raise ModelError(f"{name} is {size}")
    blocks = block_count(query.attrs)
    a = tensor_type(query, 0)
    if a.shape and isinstance(a.shape[-1], int) and a.shape[-1] != depth:
        raise ModelError(f"A is {a}, and its rows should have {depth} elements")
    _demand_bytes(query, 1, columns * blocks * block * bits // 8, "the weights")
    _demand_bytes(query, 3, columns * -(-blocks * bits // 8), "the zero points")
    for index, wanted, what in ((2, columns * blocks, "scales"), (5, columns, "elements of bias")):
        if not is_absent(query, index):
            kind = tensor_type(query, index)
            found = count_of(kind.shape)
            if found is not None and found != wanted:
                raise ModelError(f"{kind} has {found} {what}, and should have {wanted}")
            if DType.UNDEFINED not in (kind.dtype, a.dtype) and kind.dtype is not a.dtype:
                raise ModelError(f"{what} are {kind}, and A is {a}")


def _gather(call: Call) -> Value:
    """Rows of the table, dequantised."""
    table, indices, scales = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    bits, block = get_int(call.attrs, "bits", 4), get_int(call.attrs, "block_size", 128)
    zeros = optional_tensor(call, 3)
    scale = np.take(widen(scales), indices, axis=0)
    rows = np.take(table, indices, axis=0)
    numbers = unpack(rows, bits, rows.shape[-1] * (8 // bits)).astype(np.float32)
    if zeros is None:
        centred = numbers - np.float32(1 << (bits - 1))
    else:
        found = unpack(np.take(zeros, indices, axis=0), bits, scale.shape[-1])
        centred = numbers - np.repeat(found, block, axis=-1)[..., : numbers.shape[-1]]
    spread = np.repeat(scale, block, axis=-1)[..., : numbers.shape[-1]]
    return narrow(centred * spread, scales.dtype)


def _infer_gather(query: TypeQuery) -> TensorType:
    table, indices, scales = (tensor_type(query, index) for index in range(3))
    if table.shape is None or indices.shape is None:
        return TensorType(scales.dtype)
    last = table.shape[-1] if table.shape else None
    each = 8 // get_int(query.attrs, "bits", 4)
    width: Dim = last * each if isinstance(last, int) else None
    return TensorType(scales.dtype, (*indices.shape, *table.shape[1:-1], width))


def _check_gather(query: TypeQuery) -> None:
    """The table has rows of whole bytes, and a scale for each block of them."""
    block, bits = get_int(query.attrs, "block_size", 128), get_int(query.attrs, "bits", 4)
    table, scales = tensor_type(query, 0), tensor_type(query, 2)
    _check_packing(bits, block)
    if table.dtype not in (DType.U8, DType.UNDEFINED):
        raise ModelError(f"the table is {table}, and should be bytes")
    demand_elements(query, 1, (DType.I32, DType.I64), "indices of 32 or 64 bits")
    if table.shape is None:
        return
    if len(table.shape) < 2:
        raise ModelError(f"the table is {table}, and should have two axes or more")
    last = table.shape[-1]
    blocks = -(-last * (8 // bits) // block) if isinstance(last, int) else None
    packed = -(-blocks * bits // 8) if blocks is not None else None
    demand(query, 2, (*table.shape[:-1], blocks), "scales")
    demand(query, 3, (*table.shape[:-1], packed), "zero_points")
    if scales.dtype is not DType.UNDEFINED and not scales.dtype.is_float:
        raise ModelError(f"the scales are {scales}, and should be real numbers")


OPS: tuple[OpDef, ...] = (
    OpDef(
        MATMUL,
        Pattern.OUT_ELEMWISE_FUSABLE,
        OpClass.MATMUL | OpClass.QUANTISE,
        infer=_infer_matmul,
        reference=_matmul,
        flops=lambda query, outputs: 2 * count(outputs[0]) * get_int(query.attrs, "K", 0),
        operands=with_optional(
            3, named("A", B=DATA, scales=CODING, zero_points=CODING, g_idx=INDEX, bias=DATA)
        ),
        check=_check_matmul,
        traits=Trait.ROW_WISE,
    ),
    OpDef(
        GATHER,
        Pattern.INJECTIVE,
        OpClass.MOVEMENT | OpClass.QUANTISE,
        infer=_infer_gather,
        reference=_gather,
        flops=2,
        operands=with_optional(1, named("data", indices=INDEX, scales=CODING, zero_points=CODING)),
        check=_check_gather,
        traits=Trait.READS_PART | Trait.CHECKS_INDICES,
        indexing=Indexing("data", "indices", IndexedAxes.ATTRIBUTE),
    ),
)

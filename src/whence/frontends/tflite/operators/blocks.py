"""Blocks of space moved into batches or channels and back: reshape, transpose, reshape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.graph.node import Ref


def _known(call: OperatorCall, ref: Ref) -> tuple[int, ...]:
    shape = call.tensor_type_of(ref).static_shape
    if shape is None:
        call.unsupported(f"the shape of its input, {call.tensor_type_of(ref)}, is not known")
    return shape


def _block_shape(call: OperatorCall) -> tuple[int, ...]:
    block = call.numbers(1, "block sizes")
    if not block or min(block) < 1 or call.rank(0) < len(block) + 1:
        call.fail(f"blocks of {list(block)} do not fit an input {call.type(0)}")
    return block


def _space_to_batch(call: OperatorCall) -> None:
    """Border first, then (N, H·b, W·b, C) → (N, H, b, W, b, C) → (b, b, N, H, W, C)."""
    block = _block_shape(call)
    n, rank = len(block), call.rank(0)
    found = call.quantisation(0)
    zero = np.array(0 if found is None else int(found.zero_points[0]), call.type(0).dtype.numpy)
    border = np.array(call.numbers(2, "paddings")).reshape(-1, 2)
    if border.shape[0] != n or border.min() < 0:
        call.fail(f"paddings {border.tolist()} do not fit blocks of {list(block)}")
    full = np.zeros((rank, 2), np.int64)
    full[1 : n + 1] = border
    x = call.needed(0)
    if full.any():
        x = call.op(
            "Pad", x, call.const(np.ascontiguousarray(full.T).reshape(-1)), call.const(zero)
        )
    shape = _known(call, x)
    if any(size % by for size, by in zip(shape[1:], block, strict=False)):
        call.fail(f"{list(shape)} does not divide into blocks of {list(block)}")
    counts = [size // by for size, by in zip(shape[1:], block, strict=False)]
    cut = [shape[0]]
    for count, by in zip(counts, block, strict=True):
        cut += [count, by]
    cut += shape[n + 1 :]
    order = (
        *(2 * axis + 2 for axis in range(n)),
        0,
        *(2 * axis + 1 for axis in range(n)),
        *range(2 * n + 1, len(cut)),
    )
    joined = (shape[0] * math.prod(block), *counts, *shape[n + 1 :])
    call.output_codes(0, _cut_and_join(call, x, cut, order, joined))


def _batch_to_space(call: OperatorCall) -> None:
    """(b·b·N, H, W, C) → (b, b, N, H, W, C) → (N, H, b, W, b, C), then the border off."""
    block = _block_shape(call)
    n, x = len(block), call.needed(0)
    shape = _known(call, x)
    batch, rest = divmod(shape[0], math.prod(block))
    if rest:
        call.fail(f"a batch of {shape[0]} does not come from blocks of {list(block)}")
    cut = [*block, batch, *shape[1:]]
    order = [n]
    for axis in range(n):
        order += [n + 1 + axis, axis]
    order += range(2 * n + 1, len(cut))
    joined = (
        batch,
        *(size * by for size, by in zip(shape[1:], block, strict=False)),
        *shape[n + 1 :],
    )
    x = _cut_and_join(call, x, cut, order, joined)
    crops = np.array(call.numbers(2, "crops")).reshape(-1, 2)
    if (
        crops.shape[0] != n
        or crops.min() < 0
        or any(sum(crop) > size for crop, size in zip(crops.tolist(), joined[1:], strict=False))
    ):
        call.fail(f"crops {crops.tolist()} do not fit {list(joined)}")
    if crops.any():
        ends = [size - after for size, (_, after) in zip(joined[1:], crops.tolist(), strict=False)]
        x = call.op(
            "Slice",
            x,
            call.ints(*(before for before, _ in crops.tolist())),
            call.ints(*ends),
            call.ints(*range(1, n + 1)),
        )
    call.output_codes(0, x)


_DEPTH = (0, 1, 3, 2, 4, 5)


def _depth_block(call: OperatorCall) -> tuple[int, tuple[int, ...]]:
    block = call.integer("block_size")
    if call.rank(0) != 4 or block < 1:
        call.fail(f"blocks of {block} do not fit an input {call.type(0)}")
    return block, call.shape(0)


def _space_to_depth(call: OperatorCall) -> None:
    """(N, H·b, W·b, C) → (N, H, b, W, b, C) → (N, H, W, b·b·C)."""
    b, (n, h, w, c) = _depth_block(call)
    if h % b or w % b:
        call.fail(f"{[n, h, w, c]} does not divide into blocks of {b}")
    h, w = h // b, w // b
    cut, joined = (n, h, b, w, b, c), (n, h, w, b * b * c)
    call.output_codes(0, _cut_and_join(call, call.needed(0), cut, _DEPTH, joined))


def _depth_to_space(call: OperatorCall) -> None:
    """(N, H, W, b·b·C) → (N, H, W, b, b, C) → (N, H·b, W·b, C)."""
    b, (n, h, w, c) = _depth_block(call)
    if c % (b * b):
        call.fail(f"{c} channels do not divide into blocks of {b}")
    c //= b * b
    cut, joined = (n, h, w, b, b, c), (n, h * b, w * b, c)
    call.output_codes(0, _cut_and_join(call, call.needed(0), cut, _DEPTH, joined))


def _cut_and_join(
    call: OperatorCall, x: Ref, cut: Sequence[int], order: Sequence[int], joined: Sequence[int]
) -> Ref:
    transposed = call.op("Transpose", call.op("Reshape", x, call.ints(*cut)), perm=tuple(order))
    return call.op("Reshape", transposed, call.ints(*joined))


MAPPINGS: Mappings = {
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "DEPTH_TO_SPACE": _depth_to_space,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPACE_TO_DEPTH": _space_to_depth,
}

"""Operators that only Circle has: normalisations, rotary embeddings, and weights in binary codes.
(Its GRU is with the recurrent layers.)

`ATTENTION` and `RUN_MODEL` are not here: the schema names them, but no published runtime says what
they compute.
"""

from __future__ import annotations

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.graph.node import Ref
from whence.types import DType

_NEOX = 0
_WORD = 32


def _instance_norm(call: OperatorCall) -> None:
    """Each channel, the last axis, of each sample by itself. ONNX's has channels second."""
    rank = call.rank(0)
    if rank < 3:
        call.fail(f"its input has {rank} dimensions, fewer than 3")
    transposed = call.op("Transpose", call.real(0), perm=(0, rank - 1, *range(1, rank - 1)))
    scale, shift = (
        (
            call.op("Reshape", call.real(index), call.ints(-1))
            if call.rank(index) != 1
            else call.real(index)
        )
        for index in (1, 2)
    )
    epsilon = call.number("epsilon", 1e-5)
    normal = call.op("InstanceNormalization", transposed, scale, shift, epsilon=epsilon)
    back = call.op("Transpose", normal, perm=(0, *range(2, rank), 1))
    call.output(0, call.activate(back))


def _rms_norm(call: OperatorCall) -> None:
    x = call.real(0)
    width = call.shape(0)[-1]
    scale = call.real(1) if call.has(1) else call.const(call.row([1], width))
    made = call.op("RMSNormalization", x, scale, axis=-1, epsilon=call.number("epsilon", 1e-6))
    call.output(0, made)


def _rope(call: OperatorCall) -> None:
    """x · cos + r(x) · sin, where r maps the two halves of the last axis, (a, b), to (-b, a)."""
    if call.integer("mode", _NEOX) != _NEOX:
        call.unsupported(
            "rotary embedding in GPT-J's mode, which no published runtime of Circle has"
        )
    width = call.type(0).shape
    size = width[-1] if width else None
    if not isinstance(size, int) or size % 2:
        call.fail(f"the last dimension of its input, {call.type(0)}, has no halves")
    x, sine, cosine = call.real(0), call.real(1), call.real(2)
    half = size // 2
    first, second = call.emit("Split", [x, call.ints(half, half)], {"axis": -1}, outputs=2)
    rotated = call.op("Concat", call.op("Neg", second), first, axis=-1)
    call.output(0, call.op("Add", call.op("Mul", x, cosine), call.op("Mul", rotated, sine)))


def decode_binary(
    call: OperatorCall, scales: int, binary: int, clusters: int, width: int
) -> np.ndarray:
    """Weights of sums of scaled signs: w = Σ α·b, with b = ±1 a bit of a word and an α for each row
    of bits.

    Rows come in clusters, each with its number of bits. A cluster of s rows with q bits has q·s
    rows of words: first those of the first bit of all its rows, then those of the second, and so
    on. The lowest bit of a word is the first element.
    """
    alphas, words, sizes = (call.constant_codes(index) for index in (scales, binary, clusters))
    if alphas is None or words is None or sizes is None:
        call.unsupported("binary codes that are not stored in the file")
    if (
        sizes.ndim != 2
        or sizes.shape[1] != 2
        or words.ndim != 2
        or words.dtype != np.int32
        or alphas.dtype != np.float32
    ):
        call.fail(
            f"its binary codes of shape {list(words.shape)} in clusters {list(sizes.shape)} are"
            " malformed"
        )
    alphas = alphas.reshape(-1)
    if not 0 < width <= words.shape[1] * _WORD:
        call.fail(f"rows of {words.shape[1]} words do not hold {width} elements")
    if (
        alphas.size != words.shape[0]
        or np.any(sizes < 0)
        or int(np.sum(sizes.astype(object)[:, 0] * sizes.astype(object)[:, 1])) != alphas.size
    ):
        call.fail(
            f"{alphas.size} scales, {words.shape[0]} rows of bits and clusters {sizes.tolist()[:4]}"
            " do not fit"
        )
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")[
        :, :width
    ]
    signed = np.where(bits != 0, alphas[:, None], -alphas[:, None])
    rows, first = [], 0
    for count, size in sizes.tolist():
        if count:
            rows.append(
                signed[first : first + count * size].reshape(count, size, width).sum(axis=0)
            )
        first += count * size
    if not rows:
        call.fail("its weights have no rows")
    return np.concatenate(rows, axis=0)


def _bcq_fully_connected(call: OperatorCall) -> None:
    """Weights times the input, whose samples stand side by side."""
    weights = decode_binary(call, 1, 2, 4, call.integer("weights_hidden_size"))
    made = call.op("MatMul", call.const(weights), call.real(0))
    if call.has(3):
        made = call.op("Add", made, call.op("Unsqueeze", call.real(3), call.ints(-1)))
    call.output(0, call.activate(made))


def _bcq_gather(call: OperatorCall) -> None:
    table: Ref = call.const(decode_binary(call, 0, 1, 3, call.integer("input_hidden_size")))
    indices = call.cast(call.needed(2), DType.I64)
    call.output(0, call.op("Gather", table, indices, axis=call.integer("axis")))


MAPPINGS: Mappings = {
    "BCQ_FULLY_CONNECTED": _bcq_fully_connected,
    "BCQ_GATHER": _bcq_gather,
    "INSTANCE_NORM": _instance_norm,
    "RMS_NORM": _rms_norm,
    "ROPE": _rope,
}

"""Attention, said in products and a softmax."""

from __future__ import annotations

import math

import numpy as np

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.types import DType, TensorType

_HIDDEN = -1e9
"""The score of a hidden key. Minus infinity would make NaN of a row without keys."""


def _attention(call: ExportCall) -> None:
    """softmax(scale · q · kᵀ + mask) · v over (batch, heads, sequence, size)."""
    others = range(1, len(call.node.outputs))
    if any(call.has(index) for index in (4, 5, 6)) or any(map(call.is_used, others)):
        call.unsupported("keys and values of former runs")
    if (
        call.rank(0) != 4
        or call.number("softcap", 0.0)
        or any(call.integer(f"{side}_window_size", -1) >= 0 for side in ("left", "right"))
    ):
        call.unsupported("packed heads, a limit on scores, or a window")
    batch, heads, queries, size = call.shape(0)
    keys = call.shape(1)[2]
    if call.shape(1)[1] != heads or call.shape(2)[1] != heads:
        call.unsupported("heads that share their keys")
    kind = call.type(0)
    scores_kind = TensorType(kind.dtype, (batch, heads, queries, keys))
    scaled = call.step(
        "MUL",
        [call.input(0), call.scalar(call.number("scale", 1 / math.sqrt(size)), kind)],
        kind,
    )
    scores = call.step(
        "BATCH_MATMUL", [scaled, call.input(1)], scores_kind, {"adj_x": False, "adj_y": True}
    )
    for mask in _masks(call, queries, keys):
        scores = call.step("ADD", [scores, mask], scores_kind)
    weights = call.step("SOFTMAX", [scores], scores_kind, {"beta": 1.0})
    call.emit(
        "BATCH_MATMUL",
        [weights, call.input(2)],
        {"adj_x": False, "adj_y": False},
        outputs=[call.output(0)],
    )


def _masks(call: ExportCall, queries: int, keys: int) -> list[int]:
    """What is added to the scores."""
    found = []
    if call.integer("is_causal"):
        found.append(call.const(np.triu(np.full((queries, keys), _HIDDEN, np.float32), 1)))
    if not call.has(3):
        return found
    kind = call.type(3)
    if call.shape(3)[-1] != keys:
        call.unsupported(f"a mask for {call.shape(3)[-1]} of {keys} keys")
    mask = call.input(3)
    if kind.dtype is DType.BOOL:
        numbers = TensorType(DType.F32, kind.shape)
        mask = call.step(
            "SELECT_V2", [mask, call.scalar(0, numbers), call.scalar(_HIDDEN, numbers)], numbers
        )
    return [*found, mask]


EXPORTS: Exports = {"Attention": _attention}

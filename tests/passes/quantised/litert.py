"""Quantised operators as TFLite models of one operator, run by LiteRT and by whence's passes and
interpreter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.frontends.tflite.making import Model, Quantised, read, run_litert
from whence.graph import Graph
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.pipeline import PREPARE

ACTIVATIONS = {"NONE": 0, "RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}
SAME, VALID = 0, 1


def codes(rng: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def coding(dtype: Any, scale: float, zero: int = 3) -> Quantised:
    """A coding that LiteRT takes for the type: 16 bits have no zero point, and zero points of 8
    bits are shifted with the type.
    """
    return Quantised(scale, 0 if dtype is np.int16 else zero + 128 if dtype is np.uint8 else zero)


def prepared(model: Model) -> Graph:
    """The graph after all passes."""
    graph = read(model)
    run_passes(graph, PREPARE, check=CheckLevel.INVARIANTS)
    assert graph.ledger.lost() == []
    return graph


def operators(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph if node.op not in {"Input", "Const", "Output"})


def check(
    model: Model,
    feeds: Sequence[np.ndarray],
    *,
    quanta: int = 0,
    integers_only: bool = True,
    reference: bool = True,
) -> Counter[str]:
    """LiteRT's kernels and the prepared graph agree; by default in every bit, with nothing
    dequantised. Returns what is in the graph.
    """
    graph = prepared(model)
    ours, theirs = graph.run(list(feeds)), run_litert(model, feeds, reference=reference)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype
        assert mine.shape == other.shape
        apart = np.abs(mine.astype(np.float64) - other.astype(np.float64)).max(initial=0)
        assert apart <= quanta, f"{apart} quanta apart"
        # A result that is all one code tests nothing.
        assert mine.size < 8 or len(np.unique(mine)) > 1
    found = operators(graph)
    if integers_only:
        assert not {"DequantizeLinear", "QuantizeLinear"} & set(found)
    return found

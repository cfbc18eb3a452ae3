"""Matrix units are used where the model's outputs do not show it.

Their float32 products are less exact (`kernels/halves.py`): three times the error of a layer's sums. Most models do not notice. Some amplify what
rounding leaves, and those are found by trying: such a model is built both ways, runs both ways once, on made-up inputs, and is left with
float32 products if that changes its outputs by more than a small part of what people compare engines by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whence.graph import Graph
from whence.ops.definition import Value
from whence.runtime.build import Progress, build_program
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.runtime.engine import CpuEngine
    from whence.runtime.program import Program

LIMIT = 3e-5
"""Of the largest number of an output. Engines are held to agree within 1e-4, and differ by some of that as it is."""


def build_checked(graph: Graph, engine: CpuEngine, *, fusion: str, progress: Progress | None) -> Program:
    """A prepared graph as a program, by matrix units if there are any and the outputs do not show it."""
    choices = engine.tuned.choices
    fast = build_program(graph, engine.toolchain, fusion=fusion, choices=choices, progress=progress, halves=True)
    if not fast.details.rounds_early:
        return fast
    exact = build_program(graph, engine.toolchain, fusion=fusion, choices=choices, progress=progress)
    inputs = _made_up(graph)
    return fast if inputs is not None and _agree(engine, fast, exact, inputs) else exact


def _made_up(graph: Graph) -> list[np.ndarray] | None:
    """Numbers of middling size, and 0 or 1 where they may be indices or masks; `None` where an input is no tensor of numbers."""
    rng = np.random.default_rng(0)
    found = []
    for node in graph.inputs:
        kind = node.type
        if not isinstance(kind, TensorType) or kind.static_shape is None or kind.dtype.numpy.kind == "O":
            return None
        numbers = rng.standard_normal(kind.static_shape) if kind.dtype.is_float else rng.integers(0, 2, kind.static_shape)
        found.append(np.asarray(numbers).astype(kind.dtype.numpy))
    return found


def _agree(engine: CpuEngine, one: Program, other: Program, inputs: Sequence[Value]) -> bool:
    try:
        pairs = zip(engine.instance(one).run(inputs), engine.instance(other).run(inputs), strict=True)
        return all(difference(np.asarray(a), np.asarray(b)) <= LIMIT for a, b in pairs)
    except Exception:
        # Inputs that make no sense to the model tell nothing: it is left as exact as it can be.
        return False


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """The largest, relative to the largest number; infinite where they are not of the same kind, or not numbers in the same places."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return np.inf
    if one.dtype.kind != "f":
        return 0.0 if np.array_equal(one, other) else np.inf
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True) or not np.isfinite(other[finite]).all():
        return np.inf
    largest = float(np.abs(other[finite]).max(initial=0.0))
    return float(np.abs(one[finite].astype(np.float64) - other[finite]).max(initial=0.0)) / largest if largest else float(np.any(one[finite]))

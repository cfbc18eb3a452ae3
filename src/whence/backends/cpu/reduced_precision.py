"""Matrix units are used where the model's outputs do not show it.

Their float32 products are less exact (`kernels/bf16x2.py`): three times the error of a layer's
sums. Most models do not notice. Some amplify what rounding leaves, and those are found by trying:
such a model is built both ways, runs both ways once, on made-up inputs, and is left with float32
products if that changes its outputs by more than a small part of what people compare engines by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from whence.building.backend import CodeGenerator
from whence.graph import Graph
from whence.ops.definition import Value
from whence.passes.equivalence import difference, random_inputs

if TYPE_CHECKING:
    from whence.backends.cpu.backend import CpuBackend
    from whence.building.program import Program

LIMIT = 3e-5
"""Of the largest number of an output. Engines are held to agree within 1e-4, and differ by some of
that as it is.
"""


def try_reduced_precision(
    graph: Graph, engine: CpuBackend, build: Callable[[CodeGenerator], Program]
) -> Program:
    """A prepared graph as a program, by matrix units if there are any and the outputs do not show
    it.
    """
    fast = build(engine.generator(bf16x2=True))
    if not fast.details.reduced_precision:
        return fast
    exact = build(engine.generator())
    return fast if _agree(engine, fast, exact, list(random_inputs(graph).values())) else exact


def _agree(engine: CpuBackend, one: Program, other: Program, inputs: Sequence[Value]) -> bool:
    try:
        return (
            difference(engine.instance(other).run(inputs), engine.instance(one).run(inputs))
            <= LIMIT
        )
    except Exception:
        # Inputs that make no sense to the model tell nothing: it is left as exact as it can be.
        return False

"""Kernels with sizes as arguments touch nothing outside of their values, whatever the sizes are:
compiled with checked addresses and run for random ones, in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.building.test_program_template import GRAPHS, INPUT
from tests.mutation import sanitizer
from tests.passes.shapes.test_extents import decoder, shapes_at
from tests.runtime.models import parsed
from tests.runtime.run_time_sizes import CASES
from tests.runtime.windows import MODELS, tolerance
from whence import api
from whence.codegen.toolchain import Toolchain
from whence.graph import Graph
from whence.graph.parse import parse_graph
from whence.runtime.engine import Engine
from whence.types import DType, TensorType

_SHAPES = 6
_CHECKED = ("products of two that are open", "rows", "concatenation")
_RUN_TIME_SIZES = ("NonZero", "Slice", "open sizes behind it")
"""Of the models with sizes that only a run knows."""
_MOST = {"sequence": 32, "height": 20, "width": 30, "batch": 6}
"""No more positions than the models have tables for, and images that are convolved soon."""


def _named(text: str) -> Graph:
    return parse_graph(INPUT.replace("?,?", '"batch","sequence"') + text)


def _dimensions(graph: Graph) -> list[str]:
    kinds = [node.type for node in graph.inputs if isinstance(node.type, TensorType)]
    return sorted({dim for kind in kinds for dim in kind.shape or () if isinstance(dim, str)})


def _inputs(
    graph: Graph, sizes: dict[str, int], dice: np.random.Generator
) -> dict[str, np.ndarray]:
    shapes, found = shapes_at(graph, sizes), {}
    for node in graph.inputs:
        assert isinstance(node.type, TensorType)
        shape = shapes[node.name]
        is_whole = node.type.dtype is DType.I64
        # As a mask wants it: more would make scores so large that their last digits decide.
        found[node.name] = (
            dice.integers(0, 2, shape) if is_whole else dice.standard_normal(shape, np.float32)
        )
    return found


def main() -> None:
    """What the process does."""
    engine = Engine(threads=2, toolchain=Toolchain(sanitize=True))
    dice = np.random.default_rng(int(sys.argv[1]))
    graphs = {"decoder": decoder(), **{name: _named(GRAPHS[name]) for name in _CHECKED}}
    for name, graph in (graphs | {name: make() for name, make in MODELS.items()}).items():
        model = api.compile_model(graph, engine=engine)
        for _ in range(_SHAPES):
            sizes = {
                each: int(dice.integers(2, _MOST.get(each, 60))) for each in _dimensions(graph)
            }
            given = _inputs(graph, sizes, dice)
            made = model(**given)
            wanted = graph.run(given)
            for got, want in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=tolerance(name))
        assert model.compilations == 1, model
    for name in _RUN_TIME_SIZES:
        graph = parsed(CASES[name].model)
        model = api.compile_model(graph, engine=engine)
        for given in CASES[name].calls:
            made = model(**given)
            wanted = graph.run(given)
            for got, want in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    print("all shapes ran")


@pytest.mark.skipif(sanitizer.runtime() is None, reason="no runtime of AddressSanitizer here")
def test_random_shapes_with_checked_addresses() -> None:
    library = sanitizer.runtime()
    assert library is not None
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.test_open_shapes_sanitized", "7"],
        capture_output=True,
        text=True,
        check=False,
        env=sanitizer.environment(library),
    )
    assert done.stdout.endswith("all shapes ran\n"), done.stderr[-4000:]


if __name__ == "__main__":
    main()

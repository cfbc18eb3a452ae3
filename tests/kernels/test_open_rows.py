"""Matrix products whose number of rows is open: one program for all of them."""

from __future__ import annotations

import numpy as np
import pytest

import whence
from whence.extent import Dimensions
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.kernels.index import Var, of
from whence.kernels.ir import Kernel, Name, Store
from whence.kernels.product.gemm_program import Gemm, Matrix
from whence.kernels.tile import Tile
from whence.types import DType

_MOST_ROWS = 61
_DEPTH, _COLUMNS = 24, 40


def _product(weights: np.ndarray) -> Graph:
    build = GraphBuilder("product")
    x = build.input("x", DType.F32, ["rows", _DEPTH])
    build.output("y", build.op("Relu", build.op("MatMul", x, build.const(weights))))
    return build.finish()


@pytest.mark.parametrize("first", [1, 5, 16, 40])
def test_any_number_of_rows_whatever_was_compiled_for(first: int) -> None:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((_DEPTH, _COLUMNS)).astype(np.float32)
    model = whence.compile(_product(weights), threads=1, specialise=False)
    x = rng.standard_normal((_MOST_ROWS, _DEPTH)).astype(np.float32)
    expected = np.maximum(x @ weights, 0)
    for rows in (first, *range(2, _MOST_ROWS + 1)):
        made = model(x[:rows])
        np.testing.assert_allclose(made, expected[:rows], rtol=1e-4, atol=1e-5)
    assert model.compilations <= 2, "a single row may have a program of its own"


def test_tiles_of_open_rows_are_evened_out() -> None:
    rows, tile = Dimensions({"rows": 16})["rows"], Tile(14, 2, 16, 1 << 20)
    whole = of(0)
    product = Gemm(
        1,
        rows,
        64,
        96,
        Matrix("in0", whole, 96, 1),
        Matrix("in1", whole, 64, 1),
        True,
        tile,
        4 * tile.rows,
        96,
        Store("out0", of(Var("n", 64)), Name("acc", DType.F32)),
    )
    program = repr(product.program(Kernel("product", (), 2, (product,))))
    # Sixteen rows are 8 + 8, not 14 + 2: where a tile begins follows from how many there are.
    assert "'tiles'" in program
    assert program.count("name='height'") >= tile.rows, "each height has code of its own"

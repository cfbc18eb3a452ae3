"""Tensors without elements are tensors: what moves, gathers, reduces or multiplies them gives what
NumPy gives, in native code or through the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whence.api import compile_model
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.types import DType


def f(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def i(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int64)


CASES: dict[str, tuple[str, list[np.ndarray], list[Any], dict[str, Any], np.ndarray]] = {
    "transposed": ("Transpose", [f(2, 0, 3)], [], {"perm": (2, 0, 1)}, f(3, 2, 0)),
    "reshaped": ("Reshape", [f(2, 0, 3)], [np.array([0, 0, 6])], {"allowzero": 1}, f(0, 0, 6)),
    "sliced to nothing": ("Slice", [f(4, 3)], [np.array([2]), np.array([2])], {}, f(0, 3)),
    "tiled": ("Tile", [f(0, 3)], [np.array([2, 2])], {}, f(0, 6)),
    "padded": ("Pad", [f(0, 2)], [np.array([1, 0, 1, 0]), np.float32(1)], {}, f(2, 2)),
    "expanded": ("Expand", [f(1, 3)], [np.array([0, 3])], {}, f(0, 3)),
    "gathered": ("Gather", [f(4, 3), i(0)], [], {}, f(0, 3)),
    "gathered by no index": ("GatherND", [f(2, 3), i(2, 4, 0)], [], {"batch_dims": 1}, f(2, 4, 3)),
    "gathered from no batch": ("GatherND", [f(0, 3), i(0, 4, 1)], [], {"batch_dims": 1}, f(0, 4)),
    "scattered": ("ScatterElements", [f(2, 3), i(0, 3), f(0, 3)], [], {}, f(2, 3)),
    "reversed": (
        "ReverseSequence",
        [f(0, 4), i(0)],
        [],
        {"time_axis": 1, "batch_axis": 0},
        f(0, 4),
    ),
    "multiplied over nothing": ("MatMul", [f(3, 0), f(0, 5)], [], {}, 0 * f(3, 5)),
    "only the addend": ("Gemm", [f(3, 0), f(0, 5), f(5)], [], {"beta": 0.5}, f(3, 5) / 2),
    "summed": ("ReduceSum", [f(2, 0, 3)], [np.array([1])], {"keepdims": 0}, 0 * f(2, 3)),
    "multiplied up": ("ReduceProd", [f(2, 0)], [np.array([1])], {"keepdims": 0}, f(2)),
    "softmax": ("Softmax", [f(0, 3)], [], {}, f(0, 3)),
    "layer norm": ("LayerNormalization", [f(0, 3), f(3)], [], {}, f(0, 3)),
    "convolved": ("Conv", [f(0, 2, 4, 4), f(3, 2, 3, 3)], [], {}, f(0, 3, 2, 2)),
    "pooled": ("MaxPool", [f(0, 2, 4, 4)], [], {"kernel_shape": (2, 2)}, f(0, 2, 3, 3)),
    "top": ("TopK", [f(0, 4)], [np.array([2])], {}, f(0, 2)),
    "largest": ("ArgMax", [f(0, 4)], [], {"axis": 1, "keepdims": 0}, i(0)),
    "largest of nothing": ("ArgMax", [f(0, 0)], [], {"axis": 1}, i(0, 1)),
    "convolved to no channels": ("Conv", [f(1, 2, 4, 4), f(0, 2, 3, 3)], [], {}, f(1, 0, 2, 2)),
    "no steps of a layer": (
        "LSTM",
        [f(0, 1, 3), f(1, 8, 3), f(1, 8, 2)],
        [],
        {"hidden_size": 2},
        f(0, 1, 1, 2),
    ),
    "running": ("CumSum", [f(0, 4)], [np.array(1)], {}, f(0, 4)),
    "where": ("Where", [np.ones((0, 1), np.bool_), f(1, 4), f(1, 4)], [], {}, f(0, 4)),
}


@pytest.mark.parametrize("what", CASES)
def test_nothing_gives_what_it_gives(what: str, engine: Engine) -> None:
    op, given, constants, attrs, wanted = CASES[what]
    build = GraphBuilder()
    inputs = [
        build.input(f"x{number}", DType.of(value), value.shape)
        for number, value in enumerate(given)
    ]
    made = build.op(op, *inputs, *map(build.const, constants), **attrs)
    build.output("y", build.op("Identity", made))
    found = compile_model(build.finish(), engine=engine)(*given)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)

"""Types with expressions in them are those that the numbers they stand for would give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from whence.extent import Dimensions
from whence.graph.copying import type_with_sizes
from whence.ops.definition import TypeQuery
from whence.ops.tensor.shape import size_array
from whence.ops.types.inference import infer
from whence.types import DType, TensorType

FIRST = {"b": 3, "s": 12, "h": 40}
OTHER = {"b": 5, "s": 16, "h": 72}
"""Sizes of one parity, so that what is asked about that has one answer."""


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


Case = tuple[str, Sequence[Sequence[Any]], dict[int, Any], dict[str, Any]]
CASES: list[Case] = [
    ("Add", [["b", 1, "s"], ["s"]], {}, {}),
    ("MatMul", [["b", "s", 8], [8, 4]], {}, {}),
    ("Concat", [["b", "s"], ["b", "h"]], {}, {"axis": 1}),
    ("Reshape", [["b", "s", 8], [2]], {1: i64(-1, 8)}, {}),
    ("Reshape", [["b", "s", 8], [4]], {1: ["b", "s", 2, 4]}, {}),
    ("Expand", [["b", 1], [2]], {1: ["b", "s"]}, {}),
    ("Tile", [["b", 2], [2]], {1: [1, "s"]}, {}),
    ("Slice", [["b", "h"], [1], [1], [1]], {1: i64(2), 2: i64(-3), 3: i64(1)}, {}),
    ("Slice", [["b", 64], [1], [1], [1]], {1: i64(0), 2: ["s"], 3: i64(1)}, {}),
    ("Slice", [["b", "h"], [1], [1], [1]], {1: i64(-1), 2: i64(-100), 3: i64(1)}, {}),
    ("Range", [[], [], []], {0: i64(1).reshape(()), 1: ["s"], 2: i64(3).reshape(())}, {}),
    ("ConstantOfShape", [[2]], {0: ["b", "s"]}, {}),
    ("Pad", [["b", "s"], [4]], {1: i64(0, 1, 0, 2)}, {}),
    ("Pad", [["b", "s"], [2], [], [1]], {1: i64(-1, 2), 3: i64(1)}, {}),
    ("DepthToSpace", [["b", 16, "s", "h"]], {}, {"blocksize": 2}),
    ("SpaceToDepth", [["b", 16, "s", "h"]], {}, {"blocksize": 4}),
    ("GatherND", [["b", "s", 4], ["h", 2]], {}, {}),
    ("OneHot", [["b", "s"], [], [2]], {1: i64(7).reshape(())}, {"axis": 1}),
    ("Conv", [["b", 3, "h", "s"], [8, 3, 3, 3]], {}, {"pads": (1,) * 4, "strides": (2, 2)}),
    ("Conv", [["b", 3, "h"], [8, 3, 3]], {}, {"auto_pad": "SAME_UPPER", "strides": (2,)}),
    ("ConvTranspose", [["b", 3, "h"], [3, 8, 3]], {}, {"strides": (2,)}),
    ("MaxPool", [["b", 3, "h"]], {}, {"kernel_shape": (3,), "strides": (2,), "ceil_mode": 1}),
    ("Resize", [["b", 3, "h"], [0], [3]], {2: np.array([1, 1, 0.5], np.float32)}, {}),
    ("Attention", [["b", 2, "s", 4]] * 3 + [[], ["b", 2, "h", 4], ["b", 2, "h", 4]], {}, {}),
    ("Split", [["b", "h"]], {}, {"axis": 1, "num_outputs": 2}),
]


def query(case: Case, sizes: dict[str, int] | Dimensions) -> TypeQuery:
    op, shapes, values, attrs = case

    def sized(items: Sequence[Any]) -> tuple[int, ...]:
        return tuple(sizes[item] if isinstance(item, str) else item for item in items)

    dtypes = [
        DType.I64 if at in values and not _is_real(values[at]) else DType.F32
        for at in range(len(shapes))
    ]
    if op == "GatherND":
        dtypes[1] = DType.I64
    if op == "OneHot":
        dtypes[0] = DType.I64
    known: list[Any] = [None] * len(shapes)
    for at, value in values.items():
        known[at] = value if isinstance(value, np.ndarray) else size_array(sized(value))
        if op == "Range" and known[at].ndim:
            known[at] = known[at].reshape(())
    types = tuple(
        None if op == "Attention" and at == 3 else TensorType(dtype, sized(shape))
        for at, (dtype, shape) in enumerate(zip(dtypes, shapes, strict=True))
    )
    outputs = {"Attention": 3, "Split": 2}.get(op, 1)
    return TypeQuery(op, attrs, types, tuple(known), outputs)


def _is_real(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


@pytest.mark.parametrize("case", CASES, ids=[f"{at}-{case[0]}" for at, case in enumerate(CASES)])
def test_types_of_expressions(case: Case) -> None:
    dimensions = Dimensions(FIRST)
    found = infer(query(case, dimensions))
    assert dimensions.hold(OTHER), [str(guard) for guard in dimensions.guards]
    for sizes in (FIRST, OTHER):
        assert tuple(type_with_sizes(kind, sizes) for kind in found) == infer(query(case, sizes))


def test_operators_without_a_rule_are_inferred_for_the_sizes_at_hand() -> None:
    dimensions = Dimensions({"s": 5})
    kinds = (TensorType(DType.F32, (1, 4, 2)), TensorType(DType.I64, (2,)))
    known = (None, size_array([dimensions["s"], 7]))
    (found,) = infer(TypeQuery("CenterCropPad", {"axes": (1, 2)}, kinds, known, 1))
    assert found == TensorType(DType.F32, (1, 5, 7))
    assert [str(guard) for guard in dimensions.guards] == ["s == 5"]

"""Casts after casts become one or none, but never where the first loses something."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from tests.passes.rewriting import buried, edges_into, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.ops.tensor.cast import cast
from whence.passes.simplify.merge_casts import MergeCasts, is_lossless
from whence.provenance import Reason
from whence.types import DType

F16, F32, F64, BF16 = DType.F16, DType.F32, DType.F64, DType.BF16
I8, I32, I64, U8, BOOL = DType.I8, DType.I32, DType.I64, DType.U8, DType.BOOL


def casts(first: DType, *others: DType) -> Graph:
    build = GraphBuilder()
    value = build.input("x", first, [4])
    for number, dtype in enumerate(others, 1):
        value = build.op("Cast", value, to=int(dtype), name=f"cast{number}")
    build.output("y", value)
    return build.finish()


@pytest.mark.parametrize(
    "there", [(F16, F32), (U8, I32), (I32, F64), (BOOL, F16), (I8, I64), (BF16, F64)]
)
def test_there_and_back_cancels(there: tuple[DType, DType]) -> None:
    graph = casts(there[0], there[1], there[0])
    assert rewrite(graph, MergeCasts()) == {"casts there and back cancel": 1}
    assert operators(graph) == []
    assert buried(graph) == {"cast1": Reason.CANCELLED, "cast2": Reason.CANCELLED}


@pytest.mark.parametrize(
    "path", [(F16, F32, I64), (U8, I64, F32), (BOOL, I32, F32), (I8, I32, U8), (F32, F64, F16)]
)
def test_a_cast_after_a_widening_one_starts_from_the_original(path: tuple[DType, ...]) -> None:
    graph = casts(*path)
    rewrite(graph, MergeCasts())
    assert operators(graph) == ["Cast"]
    node = only(graph, "Cast")
    assert node.attrs["to"] == int(path[2])
    assert node.origin == {1, 2}
    assert edges_into(graph, node) == {"cast1": "fuse", "cast2": "fuse"}


@pytest.mark.parametrize(
    "path",
    [
        (F32, F16, F32),
        (I64, I32, I64),
        (F32, I32, F32),
        (I32, F32, I32),
        (I64, F64, I64),
        (F32, BOOL, F32),
        (I8, U8, I8),
        (I32, F64, I8),
    ],
)
def test_what_loses_something_stays(path: tuple[DType, ...]) -> None:
    assert is_left_alone(casts(*path), MergeCasts())


def test_a_long_chain() -> None:
    graph = casts(U8, I32, I64, F64, I64, U8, I32)
    rewrite(graph, MergeCasts())
    assert operators(graph) == ["Cast"]


def test_the_first_cast_stays_when_it_has_other_readers() -> None:
    build = GraphBuilder()
    wide = build.op("Cast", build.input("x", F16, [4]), to=int(F32), name="wide")
    build.output("wide", wide)
    build.output("back", build.op("Cast", wide, to=int(F16), name="back"))
    graph = build.finish()
    rewrite(graph, MergeCasts())
    assert operators(graph) == ["Cast"]
    assert buried(graph) == {"back": Reason.CANCELLED}


def test_cast_like_becomes_a_cast() -> None:
    build = GraphBuilder()
    x, like = build.input("x", F32, [4]), build.input("like", F64, [1])
    build.output("y", build.op("CastLike", x, like, name="like"))
    graph = build.finish()
    assert rewrite(graph, MergeCasts()) == {"CastLike is a Cast to the type of its second input": 1}
    assert only(graph, "Cast").attrs == {"to": int(F64)}
    assert only(graph, "Cast").inputs == (graph.inputs[0].ref(),)
    assert edges_into(graph, only(graph, "Cast")) == {"like": "copy"}


def values_of(dtype: DType) -> np.ndarray:
    """The values at which a type ends, and some between."""
    if dtype is BOOL:
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy.name)
        return np.array(sorted({info.min, info.min + 1, 0, 1, info.max - 1, info.max}), dtype.numpy)
    tiny = ml_dtypes.finfo(dtype.numpy).tiny
    return np.array([0.0, -0.0, 1 / 3, 1e-3, tiny, np.inf, -np.inf, np.nan]).astype(dtype.numpy)


def is_nan(values: np.ndarray) -> np.ndarray:
    return np.isnan(values.astype(np.float64))


@pytest.mark.parametrize(
    ("narrow", "wide"),
    list(
        itertools.permutations(
            [BOOL, U8, I8, DType.U16, I32, I64, DType.U64, F16, BF16, F32, F64], 2
        )
    ),
)
def test_lossless_means_that_every_value_comes_back(narrow: DType, wide: DType) -> None:
    values = values_of(narrow)
    back = cast(cast(values, wide), narrow)
    same = back.tolist() == values.tolist() or bool(
        np.all((back == values) | (is_nan(back) & is_nan(values)))
    )
    if is_lossless(narrow, wide):
        assert same
    elif wide.is_float or wide is BOOL or narrow.is_float:
        assert not same

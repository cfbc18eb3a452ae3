"""The block of weights: every constant in it, equal ones once."""

from __future__ import annotations

import numpy as np

from whence.building.aligned_memory import ALIGNMENT
from whence.building.location import Location
from whence.building.weights import Weights
from whence.graph import Graph, Node
from whence.graph.builder import GraphBuilder
from whence.types import DType

SOME = np.arange(6000, dtype=np.float32)


def constants(*values: np.ndarray) -> list[Node]:
    build = GraphBuilder("constants")
    x = build.input("x", DType.F32, [1])
    for number, value in enumerate(values):
        build.output(f"y{number}", build.op("Add", x, build.const(value)))
    graph: Graph = build.finish()
    return [node for node in graph if node.is_const]


def read(block: np.ndarray, place: Location, like: np.ndarray) -> np.ndarray:
    return block[place.offset : place.offset + like.nbytes].view(like.dtype).reshape(like.shape)


def test_every_constant_is_there_aligned() -> None:
    values = [
        SOME,
        np.array([3], np.float32),
        SOME.reshape(60, 100) + 1,
        np.zeros((0, 3), np.float32),
    ]
    weights = Weights()
    places = [weights.place(node) for node in constants(*values)]
    block = weights.finish().block
    for place, value in zip(places, values, strict=True):
        assert place.offset % ALIGNMENT == 0
        assert np.array_equal(read(block, place, value), value)


def test_a_packing_is_another_content() -> None:
    (node,) = constants(SOME.reshape(60, 100))
    weights = Weights()
    plain, turned = weights.place(node), weights.place(node, np.transpose)
    assert weights.place(node) == plain
    assert plain != turned
    assert np.array_equal(
        read(weights.finish().block, turned, SOME.reshape(100, 60)), SOME.reshape(60, 100).T
    )


def test_equal_constants_lie_once() -> None:
    weights = Weights()
    first, second, third = (
        weights.place(node) for node in constants(SOME, SOME.copy(), SOME.reshape(60, 100).copy())
    )
    assert first == second == third
    assert weights.finish().nbytes < SOME.nbytes + ALIGNMENT


def test_constants_that_only_begin_alike_are_both_there() -> None:
    other = SOME.copy()
    other[-1] = -1
    weights = Weights()
    first, second, again = (weights.place(node) for node in constants(SOME, other, SOME.copy()))
    block = weights.finish().block
    assert first == again
    assert np.array_equal(read(block, first, SOME), SOME)
    assert np.array_equal(read(block, second, other), other)


def test_signs_of_zero_are_told_apart() -> None:
    weights = Weights()
    first, second = (
        weights.place(node)
        for node in constants(np.array([0.0], np.float32), np.array([-0.0], np.float32))
    )
    assert first != second

"""GELU is found in every order its factors are written in, and nowhere else."""

from __future__ import annotations

from tests.passes.rewriting import is_left_alone
from whence.graph.builder import GraphBuilder
from whence.passes.recognise.recognise_gelu import RecogniseGelu
from whence.types import DType


def test_long_chains_of_arithmetic_cost_little() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    y = x
    for _ in range(3000):
        y = build.op("Add", y, x)
    build.output("y", build.op("Mul", y, build.op("Tanh", y)))
    assert is_left_alone(build.finish(), RecogniseGelu())

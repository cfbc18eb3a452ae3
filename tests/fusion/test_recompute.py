"""What a group would compute too often is stored instead."""

from __future__ import annotations

import numpy as np

from whence.fusion import Limits, MissReason, check_fused, find_dominator_groups, fuse
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.types import DType


def members(graph: Graph, limits: Limits | None = None) -> list[list[str]]:
    fused = fuse(graph, find_dominator_groups(graph, limits=limits))
    check_fused(fused)
    return [[node.op for node in entry.members] for entry in fused]


def gate(side: int, *, cheap: bool) -> Graph:
    """One number for each channel, applied to the channel's whole plane."""
    build = GraphBuilder()
    x, scale = (
        build.input("x", DType.F32, [1, 8, side, side]),
        build.input("scale", DType.F32, [1, 8, 1, 1]),
    )
    build.output("y", build.op("Mul", x, build.op("Identity" if cheap else "Sigmoid", scale)))
    return build.finish()


def test_an_expensive_value_is_not_computed_for_every_element_it_is_broadcast_to() -> None:
    graph = gate(64, cheap=False)
    assert members(graph) == [["Sigmoid"], ["Mul"]]
    (missed,) = find_dominator_groups(graph).missed
    assert missed.reason is MissReason.RECOMPUTED
    assert missed.text == "Sigmoid would be computed many times over, for every element of Mul"


def test_what_costs_nothing_or_little_is_computed_again() -> None:
    assert members(gate(64, cheap=True)) == [["Identity", "Mul"]]
    assert members(gate(2, cheap=False)) == [["Sigmoid", "Mul"]]


def test_a_single_element_is_computed_outside_the_loop_anyway() -> None:
    build = GraphBuilder()
    x, scale = build.input("x", DType.F32, [256, 256]), build.input("scale", DType.F32, [])
    build.output("y", build.op("Mul", x, build.op("Tanh", scale)))
    assert members(build.finish()) == [["Tanh", "Mul"]]


def test_copies_that_breed_copies_are_stopped() -> None:
    # x + x' doubles the places where x is computed; forty in a row would be 2^40.
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4, 4])
    for _ in range(40):
        x = build.op("Add", x, build.op("Transpose", x, perm=(1, 0)))
    build.output("y", x)
    graph = build.finish()
    groups = members(graph)
    assert all(len(group) <= 8 for group in groups)
    assert any(len(group) > 2 for group in groups)
    assert members(graph, Limits(copies=1)) == [["Transpose", "Add"]] * 40


def test_reading_through_one_index_is_no_copy() -> None:
    build = GraphBuilder()
    x = build.op("Transpose", build.input("x", DType.F32, [4, 4]), perm=(1, 0))
    for _ in range(10):
        x = build.op("Mul", x, build.op("Sigmoid", x))
    build.output("y", x)
    assert len(members(build.finish())) == 1


def test_halves_that_are_read_once_each_are_no_repetition() -> None:
    build = GraphBuilder()
    x = build.op("Exp", build.input("x", DType.F32, [64, 256]))
    halves = build.op("Split", x, n_outputs=2, axis=1, num_outputs=2)
    build.output("y", build.op("Mul", halves, halves[1]))
    assert members(build.finish()) == [["Exp", "Split", "Mul"]]


def test_a_gather_may_read_one_row_many_times() -> None:
    build = GraphBuilder()
    table, rows = build.input("table", DType.F32, [16, 64]), build.input("rows", DType.I64, [512])
    build.output("y", build.op("Gather", build.op("Tanh", table), rows))
    assert members(build.finish()) == [["Tanh"], ["Gather"]]


def test_the_limit_is_on_the_whole_chain() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [256, 256])
    y = x
    for _ in range(20):
        y = build.op("Add", y, build.const(np.float32(1)))
    build.output("y", build.op("Add", y, build.op("Transpose", y, perm=(1, 0))))
    groups = members(build.finish())
    assert groups == [["Add"] * 20, ["Transpose", "Add"]]

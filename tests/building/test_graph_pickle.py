"""What explains a program, as bytes."""

from __future__ import annotations

import os
import pickle
from typing import Any

import pytest

from tests.attribution.harness import conv_bn_relu
from whence.api import prepare
from whence.building.graph_pickle import dump
from whence.building.restricted_unpickler import load
from whence.graph import print_graph
from whence.graph.builder import GraphBuilder
from whence.types import DType


def test_a_graph_comes_back_as_it_was() -> None:
    graph = prepare(conv_bn_relu(""))
    again, node = load(dump((graph, graph.outputs[0])))
    assert print_graph(again) == print_graph(graph)
    assert again.ledger.edges == graph.ledger.edges
    assert node is again.outputs[0]
    assert [again.use_count(each) for each in again] == [graph.use_count(each) for each in graph]


def test_a_long_graph() -> None:
    build = GraphBuilder("long")
    value = build.input("x", DType.F32, [1])
    for _ in range(5000):
        value = build.op("Neg", value)
    build.output("y", value)
    assert len(load(dump(build.finish()))) == 5002


def test_only_parts_of_programs_are_read() -> None:
    class Bad:
        def __reduce__(self) -> Any:
            return os.system, ("true",)

    with pytest.raises(pickle.UnpicklingError, match=r"posix\.system is no part of a program"):
        load(pickle.dumps(Bad()))

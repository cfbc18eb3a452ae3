"""Models with state, fifty calls one after the other, against LiteRT."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import whence
from tests.frontends.tflite.making import compare, read
from tests.frontends.tflite.stateful import (
    MODELS,
)
from whence.api import prepare
from whence.graph import Graph
from whence.graph.state import initial_state
from whence.types import TensorType

CALLS = 50


def litert(content: bytes, calls: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """What LiteRT gives for calls that follow each other."""
    kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(
        model_content=content, experimental_op_resolver_type=kind, num_threads=1
    )
    interpreter.allocate_tensors()
    found = []
    for given in calls:
        for each, value in zip(interpreter.get_input_details(), given, strict=True):
            interpreter.set_tensor(each["index"], value)
        interpreter.invoke()
        found.append(
            [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]
        )
    return found


def feeds(graph: Graph) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(11)

    def value(kind: TensorType) -> np.ndarray:
        if kind.dtype.is_float:
            return rng.normal(size=kind.static_shape).astype(np.float32)
        return rng.integers(-128, 128, kind.static_shape).astype(np.int8)

    kinds = [node.type for node in graph.inputs if isinstance(node.type, TensorType)]
    return [[value(kind) for kind in kinds] for _ in range(CALLS)]


def as_list(made: object) -> list[np.ndarray]:
    return [np.asarray(each) for each in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("name", MODELS)
def test_calls_equal_litert(name: str) -> None:
    content = MODELS[name]().bytes()
    graph = read(content)
    assert graph.ledger.lost() == []
    calls = feeds(graph)
    expected = litert(content, calls)
    model = whence.compile(graph, threads=1)
    prepare(graph)
    state = initial_state(graph)
    for given, theirs in zip(calls, expected, strict=True):
        compare([np.asarray(each) for each in graph.run(given, state=state)], theirs, quanta=0)
        compare(as_list(model(*given)), theirs, relative=2e-5, quanta=0)

"""Models with state, fifty calls one after the other, against LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import whence
from tests.frontends.tflite.making import compare, read
from tests.frontends.tflite.runtimes import convert
from tests.frontends.tflite.stateful import MODELS
from whence.api import prepare, save
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.graph.outcomes import outcomes
from whence.graph.state import initial_state
from whence.types import DType, TensorType

CALLS = 50


def litert(
    content: bytes, calls: Sequence[Sequence[np.ndarray]], *, reference: bool = False
) -> list[list[np.ndarray]]:
    """What LiteRT gives for calls that follow each other, by one of its two sets of kernels."""
    interpreter = Interpreter(
        model_content=content,
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF
        if reference
        else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        num_threads=1,
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


Expected = Sequence[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]


def both_sets(content: bytes, calls: Sequence[Sequence[np.ndarray]]) -> Expected:
    """What LiteRT gives, by its reference kernels and by those it uses normally."""
    sets = (litert(content, calls, reference=True), litert(content, calls))
    return list(zip(*sets, strict=True))


def agree(
    ours: Sequence[np.ndarray], theirs: tuple[Sequence[np.ndarray], Sequence[np.ndarray]]
) -> None:
    """Real numbers are close; whole ones are equal where LiteRT's kernels agree on them."""
    compare(ours, theirs[0], relative=2e-5)
    for mine, one, other in zip(ours, *theirs, strict=True):
        if mine.dtype.kind in "iu":
            np.testing.assert_array_equal(mine[one == other], one[one == other])


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
    expected = both_sets(content, calls)
    model = whence.compile(graph, threads=1)
    prepare(graph)
    state = initial_state(graph)
    for given, theirs in zip(calls, expected, strict=True):
        agree([np.asarray(each) for each in graph.run(given, state=state)], theirs)
        agree(as_list(model(*given)), theirs)


@pytest.mark.parametrize("suffix", [".tflite", ".circle"])
@pytest.mark.parametrize("name", MODELS)
def test_state_survives_a_conversion(name: str, suffix: str, tmp_path: Path) -> None:
    content = MODELS[name]().bytes()
    graph = read(content)
    calls = feeds(graph)
    expected = both_sets(content, calls)
    file = tmp_path / f"converted{suffix}"
    convert(content, file)
    again = whence.load(file)
    assert again.ledger.lost() == []
    assert len(again.variables) == len(graph.variables)
    prepare(again)
    state = initial_state(again)
    for given, theirs in zip(calls, expected, strict=True):
        ours = [np.asarray(each) for each in again.run(given, state=state)]
        agree(ours, theirs)
    if suffix == ".tflite":
        for theirs, now in zip(expected, both_sets(file.read_bytes(), calls), strict=True):
            for before, after in zip(theirs, now, strict=True):
                compare(after, before, relative=2e-5, quanta=0)


def test_a_variable_without_dimensions_keeps_having_none(tmp_path: Path) -> None:
    build = GraphBuilder()
    total = build.op("Add", build.variable("total", np.float32(2)), build.input("x", DType.F32, ()))
    build.assign("total", total)
    build.output("y", total)
    graph = build.finish()
    path = tmp_path / "total.tflite"
    save(graph, path)
    (variable,) = read(path.read_bytes()).variables
    assert variable.type == TensorType(DType.F32, ())
    calls = [[np.array(each, np.float32)] for each in (1, 3)]
    assert [made[0].tolist() for made in litert(path.read_bytes(), calls)] == [3, 6]


def test_the_operators_of_state_say_what_became_of_them() -> None:
    graph = prepare(read(MODELS["streaming"]().bytes()))
    found = [
        (source.op, fate.value)
        for source, fate in zip(graph.ledger.sources, outcomes(graph), strict=True)
        if source.op in ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
    ]
    assert found == [
        ("CALL_ONCE", "folded"),
        ("VAR_HANDLE", "removed"),
        ("READ_VARIABLE", "live"),
        ("VAR_HANDLE", "removed"),
        ("ASSIGN_VARIABLE", "live"),
        # Of the subgraph that gives the variable its initial value:
        ("VAR_HANDLE", "removed"),
        ("ASSIGN_VARIABLE", "folded"),
    ]

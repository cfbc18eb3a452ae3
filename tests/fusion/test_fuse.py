"""Fused operators: what they read, make and are called, and when they are the same code."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import pytest

from whence.errors import GraphError
from whence.fusion import FusedGraph, check_fused, find_groups, fuse, subgraph
from whence.fusion.groups import Decision, make_groups
from whence.fusion.naming import readable_name
from whence.graph import Graph, Node
from whence.graph.builder import GraphBuilder, Symbol
from whence.ops.definition import Pattern
from whence.types import DType


def fused(graph: Graph) -> FusedGraph:
    result = fuse(graph, find_groups(graph))
    check_fused(result)
    return result


def layers(
    *make: Callable[[GraphBuilder, Symbol], Symbol], shape: tuple[int, ...] = (4, 4)
) -> FusedGraph:
    """One layer after the other, kept apart by an opaque operator."""
    build = GraphBuilder()
    x = build.input("x", DType.F32, shape)
    for number, layer in enumerate(make):
        x = build.op("Softmax", layer(build, x), axis=-1, name=f"between{number}")
    build.output("y", x)
    return fused(build.finish())


def keys(result: FusedGraph) -> list[str]:
    return [entry.key for entry in result if entry.root.op != "Softmax"]


def dense(value: float, name: str = "") -> Callable[[GraphBuilder, Symbol], Symbol]:
    def layer(build: GraphBuilder, x: Symbol) -> Symbol:
        return build.op(
            "Relu",
            build.op("MatMul", x, build.const(np.full((4, 4), value, np.float32), name)),
            name=name,
        )

    return layer


def plus(value: float) -> Callable[[GraphBuilder, Symbol], Symbol]:
    return lambda build, x: build.op("Add", x, build.const(np.float32(value)))


def leaky(alpha: float) -> Callable[[GraphBuilder, Symbol], Symbol]:
    return lambda build, x: build.op("LeakyRelu", x, alpha=alpha)


def power(size: int) -> Callable[[GraphBuilder, Symbol], Symbol]:
    def layer(build: GraphBuilder, x: Symbol) -> Symbol:
        known = build.op("DimensionValue", value=(size,), scalar=1, to=int(DType.I64))
        return build.op("Pow", x, known)

    return layer


def test_equal_layers_share_code_and_keep_their_identity() -> None:
    result = layers(dense(1, "first"), dense(2, "second"))
    first, _, second, _ = result.entries
    assert first.key == second.key
    assert first.name == second.name == "fuse_matmul_relu"
    assert (first.id, second.id) == (1, 3)
    assert first.origin == {1, 2}
    assert second.origin == {4, 5}
    assert first.root.name == "first"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(plus(1), plus(2), id="scalar values are code"),
        pytest.param(power(3), power(4), id="values of the dimensions"),
        pytest.param(leaky(0.1), leaky(0.1 + 1e-12), id="attributes to the last bit"),
        pytest.param(
            lambda b, x: b.op(
                "Slice", x, b.const(np.array([0])), b.const(np.array([2])), b.const(np.array([1]))
            ),
            lambda b, x: b.op(
                "Slice", x, b.const(np.array([2])), b.const(np.array([4])), b.const(np.array([1]))
            ),
            id="parameters",
        ),
        pytest.param(
            lambda b, x: b.op("Sub", x, b.op("Exp", x)),
            lambda b, x: b.op("Sub", b.op("Exp", x), x),
            id="wiring",
        ),
        pytest.param(lambda b, x: b.op("Exp", x), lambda b, x: b.op("Tanh", x), id="operators"),
        pytest.param(
            lambda b, x: b.op("MatMul", x, b.const(np.ones((4, 4), np.float32))),
            lambda b, x: b.op("MatMul", x, x),
            id="stored or computed",
        ),
    ],
)
def test_what_is_code_tells_keys_apart(one, other) -> None:
    found = [entry for entry in layers(one, other) if entry.root.op != "Softmax"]
    assert found[0].key != found[-1].key
    assert found[0].name != found[-1].name


def test_what_is_around_is_not_code() -> None:
    first, *_, last = keys(
        layers(dense(1), lambda build, x: build.op("Transpose", x, perm=(1, 0)), dense(2))
    )
    assert first == last


def test_types_are_code() -> None:
    assert keys(layers(dense(1), shape=(4, 4))) != keys(layers(dense(1), shape=(2, 4)))


def test_names_are_identifiers_whatever_operators_are_called() -> None:
    strange = [
        Node(1, 'evil*/"; system("x")\n'),
        Node(2, "my.domain::Größe"),
        Node(3, "::"),
        Node(4, "Conv"),
    ]
    name = readable_name(strange)
    assert re.fullmatch(r"[a-z_][a-z0-9_]*", name)
    assert name == "fuse_evil_system_x_gr_e_op_conv"
    long = [Node(number, "Relu") for number in range(1, 60)]
    assert len(readable_name(long)) <= 90
    assert readable_name(long) != readable_name(long[1:])


def test_different_code_of_one_name_is_numbered() -> None:
    result = layers(plus(1), plus(2), plus(1), plus(3))
    assert [entry.name for entry in result if entry.root.op == "Add"] == [
        "fuse_add",
        "fuse_add_1",
        "fuse_add",
        "fuse_add_2",
    ]


def test_inputs_are_in_the_order_of_first_use_and_told_apart_by_output() -> None:
    build = GraphBuilder()
    a, b = build.input("a", DType.F32, [4]), build.input("b", DType.F32, [4])
    pair = build.op("TopK", build.op("Softmax", a, axis=0), build.const(np.array([4])), n_outputs=2)
    build.output(
        "y",
        build.op(
            "Add",
            build.op("Sub", b, pair),
            build.op("Mul", build.op("Cast", pair[1], to=int(DType.F32)), b),
        ),
    )
    result = fused(build.finish())
    entry = result.entry_of(6)
    assert entry is not None
    b_node, top = result.graph.inputs[1], result.graph[2]
    assert entry.inputs == (b_node.ref(), top.ref(0), top.ref(1))


def test_all_outputs_of_the_root_are_outputs() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    build.output("y", build.op("TopK", x, build.const(np.array([2])), n_outputs=2))
    (entry,) = fused(build.finish())
    assert entry.outputs == (entry.root.ref(0), entry.root.ref(1))


def test_a_subgraph_runs_alone() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    build.output("y", build.op("Mul", build.op("Relu", x), build.const(np.float32(3))))
    result = fused(build.finish())
    alone = subgraph(result, result.entries[0])
    assert [node.name for node in (*alone.inputs, *alone.outputs)] == ["input0", "output0"]
    (y,) = alone.run([np.array([-1, 0, 1, 2], np.float32)])
    np.testing.assert_array_equal(y, [0, 0, 3, 6])
    assert result.graph.ledger.n_sources == 2


def test_a_graph_without_operators_has_no_entries() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    build.output("y", x)
    result = fused(build.finish())
    assert len(result) == 0
    assert result.outputs == (result.graph.inputs[0].ref(),)


def test_groups_that_wait_for_each_other_are_refused() -> None:
    build = GraphBuilder()
    x = build.op("Relu", build.input("x", DType.F32, [4, 4]))
    build.output("y", build.op("Add", x, build.op("Softmax", x)))
    graph = build.finish()
    together = {
        1: Decision(3, 3, Pattern.ELEMWISE),
        2: Decision(2, 2, Pattern.OPAQUE),
        3: Decision(3, 3, Pattern.ELEMWISE),
    }
    with pytest.raises(GraphError, match="would have to wait for itself"):
        fuse(graph, make_groups("test", graph, together, ()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 7}, "it stands at place 1"),
        ({"members": ()}, "it has no members"),
        ({"origin": frozenset({1})}, "its origin"),
        ({"inputs": ()}, "its inputs are not what its members read"),
        ({"outputs": ()}, "its outputs are not what others read of it"),
        ({"name": "fuse_softmax"}, "names and keys do not correspond"),
    ],
)
def test_check_finds_what_is_wrong(change, message: str) -> None:
    result = layers(dense(1))
    broken = dataclasses.replace(result.entries[0], **change)
    with pytest.raises(GraphError, match=message):
        check_fused(dataclasses.replace(result, entries=(broken, *result.entries[1:])))


def test_check_finds_a_missing_entry_a_foreign_master_and_a_missing_reason() -> None:
    result = layers(dense(1))
    first, second = result.entries
    with pytest.raises(GraphError, match="is not a member"):
        check_fused(
            dataclasses.replace(
                result, entries=(dataclasses.replace(first, anchor=second.root), second)
            )
        )
    with pytest.raises(GraphError, match="is in no fused group"):
        check_fused(dataclasses.replace(result, entries=(first,)))
    with pytest.raises(GraphError, match="not complete and unique"):
        check_fused(
            dataclasses.replace(result, groups=dataclasses.replace(result.groups, missed=()))
        )

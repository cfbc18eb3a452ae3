"""Constants: shared scalars, constants of any shape, without data, and with data to come."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.making import assert_sound, chain, fresh
from whence.errors import GraphError
from whence.graph import Graph, print_node
from whence.graph.consts import (
    float_const,
    infinity_const,
    int32_const,
    minus_infinity_const,
    prepend_const,
    prepend_shape_only_const,
    prepend_uninitialised_const,
    purge_const_cache,
    scalar_const,
    zero_const,
)
from whence.types import DType, TensorType


def consts(graph: Graph) -> int:
    return graph.op_counts.get("Const", 0)


class TestScalars:
    def test_equal_values_share_a_node(self) -> None:
        graph = chain("Relu")
        assert float_const(graph, 1.5) == float_const(graph, 1.5)
        assert int32_const(graph, 7) == int32_const(graph, 7)
        assert consts(graph) == 2
        node = graph[float_const(graph, 1.5)]
        assert node.type == TensorType(DType.F32, ())
        assert node.value is not None
        assert node.value.item() == 1.5
        assert graph.first is not None
        assert graph.first.is_const
        assert_sound(graph)

    def test_the_element_type_is_part_of_the_value(self) -> None:
        # The original shares 1.0 and 0x3F800000; here they have different types.
        graph = chain("Relu")
        assert float_const(graph, 1.0) != int32_const(graph, 0x3F800000)
        assert zero_const(graph) != int32_const(graph, 0)
        assert scalar_const(graph, 0, DType.I32) != scalar_const(graph, 0, DType.I64)

    def test_bit_patterns_decide(self) -> None:
        graph = chain("Relu")
        assert float_const(graph, -0.0) != float_const(graph, 0.0)
        assert float_const(graph, float("nan")) == float_const(graph, float("nan"))

    def test_named_values(self) -> None:
        graph = chain("Relu")
        assert zero_const(graph) == float_const(graph, 0.0)
        assert infinity_const(graph) == float_const(graph, float("inf"))
        assert minus_infinity_const(graph) == float_const(graph, float("-inf"))
        assert len({zero_const(graph), infinity_const(graph), minus_infinity_const(graph)}) == 3

    @pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16, DType.F64])
    def test_pinned_values_outlive_any_number_of_others(self, dtype: DType) -> None:
        graph = chain("Relu")
        pinned = [scalar_const(graph, value, dtype) for value in (0.0, float("inf"), float("-inf"))]
        ordinary = scalar_const(graph, 0.5, dtype)
        for value in range(1, 100):
            scalar_const(graph, value, DType.I32)
        assert [
            scalar_const(graph, value, dtype) for value in (0.0, float("inf"), float("-inf"))
        ] == pinned
        assert scalar_const(graph, 0.5, dtype) != ordinary

    def test_recently_used_values_stay(self) -> None:
        graph = chain("Relu")
        kept = float_const(graph, 0.5)
        for value in range(1, 200):
            int32_const(graph, value)
            assert float_const(graph, 0.5) == kept

    def test_32_other_values_are_remembered(self) -> None:
        graph = chain("Relu")
        ids = [int32_const(graph, value) for value in range(1, 33)]
        assert [int32_const(graph, value) for value in range(1, 33)] == ids
        int32_const(graph, 33)
        assert int32_const(graph, 2) == ids[1]
        assert int32_const(graph, 1) != ids[0]

    def test_strings_and_booleans(self) -> None:
        graph = chain("Relu")
        assert scalar_const(graph, "".join(("a", "b")), DType.STRING) == scalar_const(
            graph, "ab", DType.STRING
        )
        assert scalar_const(graph, "ab", DType.STRING) != scalar_const(graph, "ac", DType.STRING)
        assert scalar_const(graph, False, DType.BOOL) != scalar_const(graph, True, DType.BOOL)

    def test_a_removed_constant_is_made_again(self) -> None:
        graph = chain("Relu")
        gone = zero_const(graph)
        graph.remove(graph[gone])
        assert zero_const(graph) != gone
        assert zero_const(graph) in {node.id for node in graph}
        assert_sound(graph)

    def test_another_node_with_a_remembered_id_is_not_taken_for_the_constant(self) -> None:
        graph = chain("Relu")
        gone = float_const(graph, 2.5)
        graph.remove(graph[gone])
        graph.append(fresh(graph, "Neg", graph[1], node_id=gone))
        again = float_const(graph, 2.5)
        assert again != gone
        assert graph[again].is_const

    def test_purge(self) -> None:
        graph = chain("Relu")
        node = graph[float_const(graph, 1.5)]
        value = node.value
        assert value is not None
        purge_const_cache(graph, node.id)
        value[...] = 9.0
        assert float_const(graph, 1.5) != node.id
        purge_const_cache(graph, 12345)  # an id nobody remembers

    def test_purge_forgets_pinned_values_too(self) -> None:
        graph = chain("Relu")
        first = zero_const(graph)
        purge_const_cache(graph, first)
        assert zero_const(graph) != first

    def test_a_value_changed_without_purging_is_noticed(self) -> None:
        graph = chain("Relu")
        node = graph[float_const(graph, 1.5)]
        assert node.value is not None
        node.value[...] = 9.0
        assert float_const(graph, 1.5) != node.id


class TestAnyShape:
    def test_prepend_const_stands_first_and_can_be_read_by_any_node(self) -> None:
        graph = chain("Relu")
        node = prepend_const(graph, graph.new_id(), np.ones((2, 3), np.float32), name="ones")
        assert graph.first is node
        assert node.type == TensorType(DType.F32, (2, 3))
        assert node.origin == frozenset()
        assert all(graph.precedes(node, other) for other in graph if other is not node)

    def test_the_id_must_be_free(self) -> None:
        graph = chain("Relu")
        with pytest.raises(GraphError, match="taken"):
            prepend_const(graph, 1, np.ones(1, np.float32))
        with pytest.raises(GraphError, match="cannot be 0"):
            prepend_const(graph, 0, np.ones(1, np.float32))

    def test_shape_only(self) -> None:
        graph = chain("Relu")
        node = prepend_shape_only_const(graph, graph.new_id(), DType.F32, (1, 3), name="weights")
        assert node.value is None
        assert node.type == TensorType(DType.F32, (1, 3))
        assert graph.const_value(node.ref()) is None
        assert print_node(node) == f"%{node.id} f32[1,3] = Const()  # weights"

    def test_uninitialised_is_filled_in_afterwards(self) -> None:
        graph = chain("Relu")
        node = prepend_uninitialised_const(graph, graph.new_id(), DType.I64, (2, 2))
        value = graph.const_value(node.ref())
        assert value is not None
        assert value.shape == (2, 2)
        assert value.dtype == np.int64
        value[...] = 5
        assert graph.const_value(node.ref()).tolist() == [[5, 5], [5, 5]]  # type: ignore[union-attr]

    def test_unused_constants_are_found_as_dead(self) -> None:
        graph = chain("Relu")
        node = prepend_const(graph, graph.new_id(), np.ones(1, np.float32))
        graph.remove(node)
        assert_sound(graph)

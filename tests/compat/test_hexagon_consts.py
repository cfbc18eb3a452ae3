"""Constants: shared scalars, constants of any shape, without data, and with data to come."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.making import assert_sound, chain, fresh
from whence.compat.hexagon_consts import (
    ConstCache,
    create_const_float_op,
    create_const_int32_op,
    create_const_op,
    get_inf_node,
    get_ninf_node,
    get_zero_node,
    prepend_const,
    prepend_shape_only_const,
    prepend_uninitialised_const,
    purge_const_cache,
)
from whence.errors import GraphError
from whence.graph import Graph, print_node
from whence.types import DType, TensorType


def count(graph: Graph) -> int:
    return graph.op_counts.get("Const", 0)


class TestScalars:
    def test_equal_values_share_a_node(self) -> None:
        graph = chain("Relu")
        consts = ConstCache(graph)
        assert create_const_float_op(consts, 1.5) == create_const_float_op(consts, 1.5)
        assert create_const_int32_op(consts, 7) == create_const_int32_op(consts, 7)
        assert count(graph) == 2
        node = graph[create_const_float_op(consts, 1.5)]
        assert node.type == TensorType(DType.F32, ())
        assert node.value is not None
        assert node.value.item() == 1.5
        assert graph.first is not None
        assert graph.first.is_const
        assert_sound(graph)

    def test_the_element_type_is_part_of_the_value(self) -> None:
        # The original shares 1.0 and 0x3F800000; here they have different types.
        graph = chain("Relu")
        consts = ConstCache(graph)
        assert create_const_float_op(consts, 1.0) != create_const_int32_op(consts, 0x3F800000)
        assert get_zero_node(consts) != create_const_int32_op(consts, 0)
        assert create_const_op(consts, 0, DType.I32) != create_const_op(consts, 0, DType.I64)

    def test_bit_patterns_decide(self) -> None:
        graph = chain("Relu")
        consts = ConstCache(graph)
        assert create_const_float_op(consts, -0.0) != create_const_float_op(consts, 0.0)
        assert create_const_float_op(consts, float("nan")) == create_const_float_op(
            consts, float("nan")
        )

    def test_named_values(self) -> None:
        graph = chain("Relu")
        consts = ConstCache(graph)
        assert get_zero_node(consts) == create_const_float_op(consts, 0.0)
        assert get_inf_node(consts) == create_const_float_op(consts, float("inf"))
        assert get_ninf_node(consts) == create_const_float_op(consts, float("-inf"))
        assert len({get_zero_node(consts), get_inf_node(consts), get_ninf_node(consts)}) == 3

    @pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16, DType.F64])
    def test_pinned_values_outlive_any_number_of_others(self, dtype: DType) -> None:
        graph = chain("Relu")
        consts = ConstCache(graph)
        pinned = [
            create_const_op(consts, value, dtype) for value in (0.0, float("inf"), float("-inf"))
        ]
        ordinary = create_const_op(consts, 0.5, dtype)
        for value in range(1, 100):
            create_const_op(consts, value, DType.I32)
        assert [
            create_const_op(consts, value, dtype) for value in (0.0, float("inf"), float("-inf"))
        ] == pinned
        assert create_const_op(consts, 0.5, dtype) != ordinary

    def test_recently_used_values_stay(self) -> None:
        graph = chain("Relu")
        consts = ConstCache(graph)
        kept = create_const_float_op(consts, 0.5)
        for value in range(1, 200):
            create_const_int32_op(consts, value)
            assert create_const_float_op(consts, 0.5) == kept

    def test_32_other_values_are_remembered(self) -> None:
        graph = chain("Relu")
        consts = ConstCache(graph)
        ids = [create_const_int32_op(consts, value) for value in range(1, 33)]
        assert [create_const_int32_op(consts, value) for value in range(1, 33)] == ids
        create_const_int32_op(consts, 33)
        assert create_const_int32_op(consts, 2) == ids[1]
        assert create_const_int32_op(consts, 1) != ids[0]

    def test_strings_and_booleans(self) -> None:
        graph = chain("Relu")
        consts = ConstCache(graph)
        assert create_const_op(consts, "".join(("a", "b")), DType.STRING) == create_const_op(
            consts, "ab", DType.STRING
        )
        assert create_const_op(consts, "ab", DType.STRING) != create_const_op(
            consts, "ac", DType.STRING
        )
        assert create_const_op(consts, False, DType.BOOL) != create_const_op(
            consts, True, DType.BOOL
        )

    def test_a_removed_constant_is_made_again(self) -> None:
        graph = chain("Relu")
        consts = ConstCache(graph)
        gone = get_zero_node(consts)
        graph.remove(graph[gone])
        assert get_zero_node(consts) != gone
        assert get_zero_node(consts) in {node.id for node in graph}
        assert_sound(graph)

    def test_another_node_with_a_remembered_id_is_not_taken_for_the_constant(self) -> None:
        graph = chain("Relu")
        consts = ConstCache(graph)
        gone = create_const_float_op(consts, 2.5)
        graph.remove(graph[gone])
        graph.append(fresh(graph, "Neg", graph[1], node_id=gone))
        again = create_const_float_op(consts, 2.5)
        assert again != gone
        assert graph[again].is_const

    def test_purge(self) -> None:
        graph = chain("Relu")
        consts = ConstCache(graph)
        node = graph[create_const_float_op(consts, 1.5)]
        value = node.value
        assert value is not None
        purge_const_cache(consts, node.id)
        value[...] = 9.0
        assert create_const_float_op(consts, 1.5) != node.id
        purge_const_cache(consts, 12345)  # an id nobody remembers

    def test_purge_forgets_pinned_values_too(self) -> None:
        graph = chain("Relu")
        consts = ConstCache(graph)
        first = get_zero_node(consts)
        purge_const_cache(consts, first)
        assert get_zero_node(consts) != first

    def test_a_value_changed_without_purging_is_noticed(self) -> None:
        graph = chain("Relu")
        consts = ConstCache(graph)
        node = graph[create_const_float_op(consts, 1.5)]
        assert node.value is not None
        node.value[...] = 9.0
        assert create_const_float_op(consts, 1.5) != node.id


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

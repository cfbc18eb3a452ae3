from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.errors import ModelError
from whence.frontends.onnx.order import running_order
from whence.frontends.onnx.record import OpRecord


def record(name: str, inputs: list[str], outputs: list[str]) -> OpRecord:
    return OpRecord("Add", "", name, inputs, outputs, {})


def test_a_file_in_order_is_left_alone() -> None:
    records = [record("a", ["x"], ["1"]), record("b", ["1", ""], ["2", ""])]
    assert running_order(records, {}, {"x"}) == range(2)


def test_file_order_is_kept_wherever_it_can_be() -> None:
    records = [
        record("a", ["3"], ["1"]),
        record("b", ["x"], ["2"]),
        record("c", ["x"], ["3"]),
        record("d", ["1"], ["4"]),
    ]
    assert list(running_order(records, {}, {"x"})) == [1, 2, 0, 3]


def test_what_nested_graphs_read_counts() -> None:
    records = [record("if", ["c"], ["1"]), record("b", ["x"], ["2"])]
    assert list(running_order(records, {0: ("2",)}, {"x", "c"})) == [1, 0]


@given(st.permutations(range(12)), st.data())
def test_any_shuffle_of_a_runnable_list_is_put_right(
    shuffle: list[int], data: st.DataObject
) -> None:
    straight = [
        record(str(n), [f"v{data.draw(st.integers(0, n - 1))}" for _ in range(2) if n], [f"v{n}"])
        for n in range(12)
    ]
    shuffled = [straight[n] for n in shuffle]
    made: set[str] = set()
    for position in running_order(shuffled, {}, set()):
        assert made.issuperset(shuffled[position].inputs)
        made.update(shuffled[position].outputs)
    assert len(made) == 12


def test_a_circle_names_an_operator_on_it() -> None:
    records = [
        record("tail", ["2"], ["4"]),
        record("p", ["x", "2"], ["1"]),
        record("q", ["1"], ["2"]),
        record("free", ["x"], ["5"]),
    ]
    with pytest.raises(ModelError, match=r"operator '[pq]' .* has a cycle"):
        running_order(records, {}, {"x"})


def test_a_long_chain_backwards_is_sorted_without_recursion() -> None:
    count = 20000
    records = [record(str(n), [f"v{n + 1}"], [f"v{n}"]) for n in range(count)]
    assert list(running_order(records, {}, {f"v{count}"})) == list(reversed(range(count)))

"""The number of threads that is fastest is found while a model runs."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import pytest

import whence
from whence.backends.cpu.backend import CpuBackend
from whence.runtime.thread_choice import ThreadChoice


class Machine:
    """On which a run takes a time that the number of threads decides."""

    def __init__(self, times: dict[int, int]) -> None:
        self.times = times
        self.now = 1
        self.used: list[int] = []
        self.lost_for: dict[int, int] = {}
        """How often a run with so many threads loses a core."""
        self.lost = 0

    def clock(self) -> int:
        return self.now

    def losses(self) -> int:
        return self.lost

    def run(self, choice: ThreadChoice, count: int) -> None:
        for _ in range(count):
            threads, began = choice.begin()
            self.now += self.times[threads] * 1_000_000
            self.lost += self.lost_for.get(threads, 0)
            self.used.append(threads)
            choice.end(began)


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ({8: 10, 4: 20, 2: 40, 1: 80}, 8),
        ({8: 100, 4: 90, 2: 50, 1: 60}, 2),
        ({6: 9, 3: 8, 2: 7, 1: 6}, 1),
        ({1: 5}, 1),
    ],
)
def test_the_fastest_is_found(times: dict[int, int], best: int) -> None:
    machine = Machine(times)
    choice = ThreadChoice(max(times), machine.clock, machine.losses)
    machine.run(choice, 200)
    assert choice.threads == best


def test_a_little_faster_is_no_reason_to_change() -> None:
    machine = Machine({2: 100, 1: 97})
    choice = ThreadChoice(2, machine.clock, machine.losses)
    machine.run(choice, 200)
    assert choice.threads == 2


def test_comparisons_become_rare_where_nothing_changes() -> None:
    machine = Machine({2: 1, 1: 2})
    choice = ThreadChoice(2, machine.clock, machine.losses)
    machine.run(choice, 20_000)
    machine.used.clear()
    machine.run(choice, 20_000)
    assert machine.used.count(1) < 0.01 * 20_000


def test_what_changes_is_noticed() -> None:
    machine = Machine({2: 10, 1: 20})
    choice = ThreadChoice(2, machine.clock, machine.losses)
    machine.run(choice, 2000)
    assert choice.threads == 2
    machine.times = {2: 50, 1: 25}  # another process has come
    machine.run(choice, 600)
    assert choice.threads == 1
    machine.times = {2: 10, 1: 20}
    machine.run(choice, 600)
    assert choice.threads == 2


def test_where_cores_are_shared_fewer_threads_are_taken_though_they_are_slower() -> None:
    machine = Machine({2: 10, 1: 12})
    choice = ThreadChoice(2, machine.clock, machine.losses)
    machine.lost_for = {2: 3, 1: 1}
    machine.run(choice, 200)
    assert choice.threads == 1
    machine.times, machine.lost_for = {2: 10, 1: 18}, {}  # the others have gone
    machine.run(choice, 2000)
    assert choice.threads == 2
    machine.times, machine.lost_for = {2: 10, 1: 19}, {2: 3, 1: 1}
    machine.run(choice, 2000)
    assert choice.threads == 2, "much slower is too slow"


def test_others_that_come_are_noticed_at_once() -> None:
    machine = Machine({2: 1, 1: 1})
    choice = ThreadChoice(2, machine.clock, machine.losses)
    machine.run(choice, 20_000)  # comparisons are seconds apart by now
    machine.times, machine.lost_for = {2: 2, 1: 3}, {2: 1, 1: 1}
    machine.run(choice, 100)
    assert choice.threads == 1
    machine.run(choice, 20_000)
    machine.times, machine.lost_for = {2: 1, 1: 2}, {}
    machine.run(choice, 5_000)
    assert choice.threads == 2


def test_processes_that_make_room_for_each_other_leave_it_at_that() -> None:
    machine = Machine({2: 2, 1: 3})
    choice = ThreadChoice(2, machine.clock, machine.losses)
    for _ in range(4000):
        # With one thread nobody loses a core, so that two look better, until they are taken.
        machine.lost_for = {2: 1} if machine.used[-5:].count(2) == 5 else {}
        machine.run(choice, 1)
    machine.used.clear()
    for _ in range(4000):
        machine.lost_for = {2: 1} if machine.used[-5:].count(2) == 5 else {}
        machine.run(choice, 1)
    assert machine.used.count(2) < 0.25 * 4000


def _model() -> whence.Executable:
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((16, 8, 3, 3)).astype(np.float32),
        "g": rng.standard_normal((16, 64)).astype(np.float32),
    }
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Relu", ["c"], ["r"]),
        onnx.helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        onnx.helper.make_node("Flatten", ["p"], ["f"]),
        onnx.helper.make_node("MatMul", ["f", "g"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8, 64, 64])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 64])],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return whence.compile(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    )


def test_results_do_not_depend_on_how_many_threads_were_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen: list[int] = []

    class Scripted(ThreadChoice):
        def begin(self) -> tuple[int, int]:
            chosen.append(len(chosen) % 2 + 1)
            return chosen[-1], 0

        def end(self, began: int) -> None:
            assert began == 0

    monkeypatch.setattr("whence.backends.cpu.backend.usable_cores", lambda: 2)
    monkeypatch.setattr("whence.backends.cpu.instance.ThreadChoice", Scripted)
    model, x = _model(), np.random.default_rng(1).standard_normal((1, 8, 64, 64), np.float32)
    first = model(x=x)
    assert all(np.array_equal(model(x=x), first) for _ in range(6))
    assert chosen == [1, 2, 1, 2, 1, 2, 1]


def test_a_number_that_was_asked_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.backends.cpu.backend.usable_cores", lambda: 2)
    assert CpuBackend().chooses_threads
    assert not CpuBackend(threads=2).chooses_threads

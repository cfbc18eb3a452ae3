"""Comparing in turns, on a machine that is made up: its clock goes on only when something runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from whence.attribution.rounds import BUDGET_NS, Saving, measure

MS = 1_000_000


class Machine:
    """Steps with times of their own, and variants that save a part of them. `slower` says how much
    slower everything is at a time.
    """

    def __init__(
        self, step_ns: Sequence[int], saves: Sequence[tuple[int, float]], noise: float = 0.0
    ) -> None:
        self._step_ns, self._saves, self._noise = np.array(step_ns), saves, noise
        self._rng = np.random.default_rng(0)
        self.now = self.moves = 0
        self.seen: list[tuple[int, ...]] = []
        self.luck = 0.0

    def slower(self) -> float:
        # Half of the time somebody else is at work, for longer than a round takes.
        return 1.0 + (self.now // (1000 * MS)) % 2

    def run(self, variants: Sequence[int] = ()) -> np.ndarray:
        self.seen.append(tuple(variants))
        times = (
            self._step_ns
            * self.slower()
            * (1 + self._noise * self._rng.exponential(size=len(self._step_ns)))
        )
        for variant in variants:
            step, part = self._saves[variant]
            times[step] *= 1 - part - self.luck
        self.now += int(times.sum())
        return times.astype(np.int64)

    def move(self) -> None:
        self.moves += 1

    def clock(self) -> int:
        return self.now


def savings(
    machine: Machine,
    steps: Sequence[int],
    enough: Sequence[float],
    budget_ns: int = BUDGET_NS,
    progress: Callable[[int, int], None] | None = None,
) -> list[Saving]:
    """Of steps all of which run."""
    return [
        each
        for each in measure(machine, steps, enough, machine.clock, budget_ns, progress)
        if each is not None
    ]


def test_what_is_saved_is_found_whatever_else_the_machine_does() -> None:
    machine = Machine([4 * MS, 10 * MS, 3 * MS], [(0, 0.25), (0, 0.5), (2, 0.0)], noise=0.05)
    first, second, third = savings(machine, [0, 0, 2], [0.01] * 3)
    assert first.part == pytest.approx(0.25, abs=0.03)
    assert second.part == pytest.approx(0.5, abs=0.03)
    assert third.part == pytest.approx(0.0, abs=0.03)
    assert all(0 < each.error <= 0.01 for each in (first, second, third))
    assert machine.now < 30_000 * MS


def test_variants_of_different_steps_stand_in_together() -> None:
    machine = Machine([MS, MS, MS], [(0, 0.1), (0, 0.2), (2, 0.3), (1, 0.4)])
    savings(machine, [0, 0, 2, 1], [0.01] * 4)
    assert set(machine.seen) == {(), (0, 2, 3), (1,)}
    assert machine.moves >= 32


def test_who_saves_nothing_may_seem_to_cost() -> None:
    machine = Machine([MS], [(0, -0.25)])
    (found,) = savings(machine, [0], [0.01])
    assert found.part == pytest.approx(-0.25, abs=1e-3)


def test_the_luck_of_places_is_in_the_error_and_the_time_is_limited() -> None:
    class Lucky(Machine):
        def move(self) -> None:
            super().move()
            self.luck = 0.2 if self.moves % 8 < 4 else -0.2

    machine = Lucky([MS], [(0, 0.5)])
    shown: list[tuple[int, int]] = []
    (found,) = savings(machine, [0], [0.01], 5_000 * MS, lambda *what: shown.append(what))
    assert found.part == pytest.approx(0.5, abs=0.1)
    assert found.error > 0.01
    assert 5_000 * MS <= machine.now < 8_000 * MS
    assert shown[-1] == (5_000 * MS, 5_000 * MS)
    assert [spent for spent, _ in shown] == sorted(spent for spent, _ in shown)


def test_a_slow_program_is_not_run_for_ever() -> None:
    machine = Machine([900 * MS], [(0, 0.5)])
    (found,) = savings(machine, [0], [0.01])
    assert found.error > 0.01, "what disturbs lasts about as long as a run"
    assert machine.now < 50_000 * MS


@pytest.mark.parametrize(
    ("step_ms", "variants", "most_ms"), [(900, 5, 30_000 + 8_000), (3000, 8, 60_000)]
)
def test_a_slow_program_with_many_variants_is_not_run_for_ever(
    step_ms: int, variants: int, most_ms: int
) -> None:
    """The time that is given and a round; of a program whose rounds take nearly as long, two
    rounds.
    """
    machine = Machine([step_ms * MS], [(0, 0.5)] * variants)
    found = savings(machine, [0] * variants, [0.01] * variants)
    assert machine.now < most_ms * MS
    assert min(machine.seen.count((each,)) for each in range(variants)) >= 2
    assert len(found) == variants


def test_what_does_not_run_is_not_measured() -> None:
    machine = Machine([MS, 0, MS], [(0, 0.25), (1, 0.5), (2, 0.5)])
    first, second, third = measure(machine, [0, 1, 2], [0.01] * 3, machine.clock)
    assert second is None
    assert first is not None
    assert third is not None
    assert first.part == pytest.approx(0.25, abs=1e-3)
    machine = Machine([0], [(0, 0.5)])
    assert measure(machine, [0], [0.01], machine.clock) == [None]


def test_a_less_strict_limit_ends_sooner() -> None:
    strict, loose = (Machine([2 * MS], [(0, 0.5)], noise=2.0) for _ in range(2))
    measure(strict, [0], [0.004], strict.clock)
    (found,) = savings(loose, [0], [0.03])
    assert found.error <= 0.03
    assert loose.now < strict.now

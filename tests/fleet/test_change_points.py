"""Changes are found where they are, and nowhere else. The noise is that of real runs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fleet.nights import series_of, write_compacted
from whence.fleet.change_points import find_changes
from whence.fleet.series import parts, whole_runs
from whence.fleet.table import Table


def fill(folder, models, nights=60, slower=None):
    table = Table(folder, create=True)
    for number, model in enumerate(models):
        planted = slower if number == 2 else None
        rng = np.random.default_rng(100 + number)
        write_compacted(table, model, series_of(model, nights, rng, slower=planted))
    return table


@pytest.mark.parametrize("operator", [0, 5, 11])
def test_a_planted_regression_is_found(tmp_path, operator):
    table = fill(tmp_path / "table", [f"model{n}" for n in range(5)], slower=(operator, 36, 1.2))
    with table.connected() as connection:
        (change, *others) = find_changes(parts(connection, "op"))
    assert others == []
    assert change.series.subject.model == "model2"
    assert change.series.name.endswith(f"/op{operator + 1}")
    assert abs(change.position - 36) <= 1
    assert change.ratio == pytest.approx(1.2, abs=0.08)
    assert change.version == f"0.1.{change.position}"
    assert change.confidence > 0.99


def test_twenty_series_without_a_change_raise_no_alarm(tmp_path):
    table = fill(tmp_path / "table", [f"quiet{n}" for n in range(20)])
    with table.connected() as connection:
        for series in (
            parts(connection, "op"),
            parts(connection, "module"),
            whole_runs(connection),
        ):
            assert len(series) >= 20
            assert find_changes(series) == []


def test_too_few_nights_say_nothing(tmp_path):
    table = fill(tmp_path / "table", ["a", "b", "c"], nights=7, slower=(0, 4, 3.0))
    with table.connected() as connection:
        assert find_changes(parts(connection, "op")) == []


def test_by_module_and_type_add_up(tmp_path):
    table = fill(tmp_path / "table", ["a"], nights=8)
    with table.connected() as connection:
        totals = {
            by: sum(series.times for series in parts(connection, by))
            for by in ("op", "module", "type")
        }
    # Operators too small to follow by themselves are left out, each by itself.
    for times in totals.values():
        assert np.allclose(times, totals["type"], rtol=0.02)

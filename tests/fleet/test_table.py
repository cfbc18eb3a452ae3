"""The table: whole cells or none, each once, whatever happens meanwhile."""

from __future__ import annotations

import multiprocessing
import tempfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks.simulated_profile import profile_of
from tests.fleet.nights import cell_of, series_of
from whence.errors import ModelError
from whence.fleet.cell_result import CellResult, Status
from whence.fleet.delta import append_to_delta
from whence.fleet.table import Table, Writer


def fill(folder: Path, models: tuple[str, ...] = ("a", "b"), nights: int = 3) -> Table:
    table = Table(folder, create=True)
    writer = Writer(folder)
    for number, model in enumerate(models):
        for cell, outcome in series_of(model, nights, np.random.default_rng(number), operators=6):
            writer.write(cell, outcome)
    writer.close()
    return table


def sums(table: Table) -> list[tuple[object, ...]]:
    with table.connected() as connection:
        return connection.execute(
            """SELECT key, model, night, wall_ns,
                   (SELECT sum(time_ns) FROM operator o WHERE o.key = cell.key)
                   + (SELECT sum(time_ns) FROM residual r WHERE r.key = cell.key)
               FROM cell ORDER BY key"""
        ).fetchall()


def test_a_cell_comes_back_as_it_was(tmp_path):
    table = fill(tmp_path / "table")
    rows = sums(table)
    assert len(rows) == 6
    assert all(row[3] == row[4] for row in rows)
    assert {row[0] for row in rows} == table.finished()
    with table.connected() as connection:
        operators = connection.execute(
            "SELECT name, type, module, line, became, kernels FROM operator"
            " WHERE model = 'a' ORDER BY night, id"
        ).fetchone()
    assert operators == ("/layer0/op1", "Relu", "layer0", "model.py:11", "fused with the next", [0])


def test_a_cell_that_failed_says_why(tmp_path):
    table = Table(tmp_path / "table", create=True)
    writer = Writer(table.folder)
    writer.write(cell_of("a", 0), CellResult(Status.TIMEOUT, error="not done after 5 s"))
    with table.connected() as connection:
        found = connection.execute("SELECT model, status, error FROM unfinished").fetchall()
    assert found == [("a", "timeout", "not done after 5 s")]


def test_a_profile_that_does_not_add_up_is_refused(tmp_path):
    profile = profile_of("a", np.array([1000.0, 2000.0]))
    profile["wall_ns"] += 1
    table = Table(tmp_path / "table", create=True)
    with pytest.raises(ModelError, match="does not add up"):
        Writer(table.folder).write(cell_of("a", 0), CellResult(Status.DONE, profile))
    assert not table.finished()
    assert not list(table.folder.rglob("*.parquet"))


def test_compacting_changes_no_answer(tmp_path):
    table = fill(tmp_path / "table")
    before = sums(table)
    done = table.compact()
    assert (done.cells, done.models) == (6, 2)
    assert len(list(table.folder.rglob("*.parquet"))) == 2
    assert sums(table) == before
    assert table.finished() == {row[0] for row in before}
    # More nights, and once more: the older files are taken in.
    writer = Writer(table.folder)
    for cell, outcome in series_of("a", 5, np.random.default_rng(0), operators=6):
        if cell.key not in table.finished():
            writer.write(cell, outcome)
    table.compact()
    assert len(sums(table)) == 8
    assert len(list(table.folder.rglob("*.parquet"))) == 2


def test_a_reader_sees_a_cell_once_while_files_are_put_together(tmp_path):
    table = fill(tmp_path / "table")
    before = sums(table)
    single = {path: path.read_bytes() for path in table.folder.rglob("night=*/*/*.parquet")}
    table.compact()
    for path, content in single.items():  # as if they had not been removed yet
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert sums(table) == before
    table.compact()
    assert sums(table) == before
    assert not list(table.folder.rglob("night=*/*/*.parquet"))


def test_compacting_may_remove_the_folder_that_a_cell_is_about_to_be_written_to(
    tmp_path, monkeypatch
):
    table = Table(tmp_path / "table", create=True)
    real = tempfile.mkstemp
    removed: list[Path] = []

    def mkstemp(prefix, dir):
        if not removed:
            removed.append(Path(dir))
            Path(dir).rmdir()
            Path(dir).parent.rmdir()
        return real(prefix=prefix, dir=dir)

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    cell = cell_of("a", 0)
    Writer(table.folder).write(cell, CellResult(Status.TIMEOUT, error="late"))
    assert len(removed) == 1
    assert table.finished() == {cell.key}


def test_failed_cells_stay_apart_so_that_they_can_be_measured_again(tmp_path):
    table = fill(tmp_path / "table", models=("a",), nights=1)
    writer = Writer(table.folder)
    again = cell_of("b", 0)
    writer.write(again, CellResult(Status.CRASHED, error="signal SIGKILL"))
    table.compact()
    profile = profile_of("b", np.array([1000.0]))
    writer.write(again, CellResult(Status.DONE, profile))
    with table.connected() as connection:
        found = connection.execute("SELECT model, status FROM cell ORDER BY model").fetchall()
    assert found == [("a", "done"), ("b", "done")]


def _write_all(folder: str) -> None:
    fill(Path(folder))


def test_two_writers_of_the_same_cells_leave_each_once(tmp_path):
    folder = tmp_path / "table"
    Table(folder, create=True)
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_write_all, args=(str(folder),)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
        assert process.exitcode == 0
    assert len(sums(Table(folder))) == 6
    assert not list(folder.rglob(".part-*"))


def test_what_is_no_table_is_said_so(tmp_path):
    with pytest.raises(ModelError, match="is not a table"):
        Table(tmp_path)
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ModelError, match="neither empty nor a table"):
        Table(tmp_path, create=True)
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "whence-table.json").write_text('{"version": 99}')
    with pytest.raises(ModelError, match="version 99"):
        Table(folder)


def test_an_empty_table_has_no_cells(tmp_path):
    table = Table(tmp_path / "table", create=True)
    assert sums(table) == []
    assert table.compact().cells == 0


@pytest.mark.parametrize("name", ["it's", "a'); DROP TABLE cell; --", "x*y", "[z]", "../up", "ü\n"])
def test_hostile_names_are_only_names(tmp_path, name):
    table = fill(tmp_path / "it's [a] *table*", models=(name,), nights=2)
    assert [row[1] for row in sums(table)] == [name, name]
    table.compact()
    assert [row[1] for row in sums(table)] == [name, name]
    inside = table.folder.resolve()
    assert all(path.resolve().is_relative_to(inside) for path in tmp_path.rglob("*.parquet"))


def test_a_delta_table_gets_every_cell_once(tmp_path):
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = fill(tmp_path / "table")
    assert append_to_delta(table, tmp_path / "delta") == 6
    table.compact()
    assert append_to_delta(table, tmp_path / "delta") == 0
    rows = deltalake.DeltaTable(str(tmp_path / "delta")).to_pyarrow_dataset().to_table()
    cells = [row for row in rows.to_pylist() if row["record"] == "cell"]
    assert sorted(row["key"] for row in cells) == sorted(table.finished())

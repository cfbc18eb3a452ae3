"""Nights that nobody measured: profiles of made-up models with the noise of real runs."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks.simulated_profile import profile_of
from whence.fleet.cell import Cell
from whence.fleet.cell_result import CellResult, Status
from whence.fleet.columns import CELL_COLUMNS, COLUMNS, ROW_COLUMNS, head_of, rows_of
from whence.fleet.table import Table

NOISE = Path(__file__).with_name("noise.json")
FIRST = datetime.date(2026, 1, 1)


def real_noise() -> np.ndarray:
    """By profile and operator: the time beside its median, see `record_noise`."""
    return np.array(json.loads(NOISE.read_text(encoding="utf-8")))


def night_name(number: int) -> str:
    return (FIRST + datetime.timedelta(days=number)).isoformat()


def base_times(model: str, operators: int) -> np.ndarray:
    """What the operators of a made-up model take, in nanoseconds: always the same."""
    seed = int.from_bytes(hashlib.sha256(model.encode()).digest()[:4])
    return np.random.default_rng(seed).lognormal(11.0, 1.2, operators)


def cell_of(model: str, night: int, **facts: Any) -> Cell:
    digest = hashlib.sha256(model.encode()).hexdigest()
    return Cell(
        model, digest, version=f"0.1.{night}", machine="made-up", night=night_name(night), **facts
    )


def series_of(
    model: str,
    nights: int,
    rng: np.random.Generator,
    *,
    operators: int = 24,
    slower: tuple[int, int, float] | None = None,
    prefix: str = "",
) -> Iterator[tuple[Cell, CellResult]]:
    """So many nights of a model. `slower` makes an operator slower, from a night on, by a factor.

    Each night has the noise of one real profile, all of its operators together: what disturbs one
    disturbs its neighbours.
    """
    noise = real_noise()
    base = base_times(model, operators)
    for night in range(nights):
        times = base * noise[rng.integers(len(noise))][np.arange(operators) % noise.shape[1]]
        if slower is not None and night >= slower[1]:
            times[slower[0]] *= slower[2]
        began = f"{night_name(night)}T02:00:00.000000Z"
        yield (
            cell_of(model, night),
            CellResult(
                Status.DONE, profile_of(model, times, prefix=prefix), began=began, seconds=1.0
            ),
        )


def write_compacted(table: Table, model: str, cells: Iterable[tuple[Cell, CellResult]]) -> None:
    """Into one file, as compacting leaves them: a file for each takes ten times as long."""
    rows = [
        [*head_of(cell, outcome), *(row.get(column.name) for column in ROW_COLUMNS)]
        for cell, outcome in cells
        for row in rows_of(outcome)
    ]
    assert [*CELL_COLUMNS, *ROW_COLUMNS] == [*COLUMNS]
    columns = zip(COLUMNS, zip(*rows, strict=True), strict=True)
    arrays = {column.name: np.array(values, object) for column, values in columns}
    select = ", ".join(f'"{column.name}"::{column.kind} AS "{column.name}"' for column in COLUMNS)
    folder = table.folder / "compact" / f"model={model}"
    folder.mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.register("rows", arrays)
        file = folder / "00000001.parquet"
        connection.execute(f"COPY (SELECT {select} FROM rows) TO '{file}' (FORMAT parquet)")

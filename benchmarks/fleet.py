"""What a sweep costs besides measuring: writing cells, resuming, putting files together, asking.

    python -m benchmarks.fleet                     # 1,000 and 10,000 cells of 1,000 operators
    python -m benchmarks.fleet --cells 100000      # up to 10⁵ cells, 10⁸ operators: some GB of disk

Cells are simulated, files are real. Every line has the cost for one cell, so that what is linear
shows as a column of equal numbers. Questions are asked by two threads, as on two cores.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table as Grid

from benchmarks.simulated_profile import profile_of
from whence.fleet.cell import Cell
from whence.fleet.cell_result import CellResult, Status
from whence.fleet.dashboard.content import operators, overview
from whence.fleet.table import Table, Writer

_MODELS = 200
_FIRST = datetime.date(2025, 1, 1)


def write_share(folder: str, first: int, step: int, cells: int, size: int) -> None:
    """Every `step`-th cell from the `first` on."""
    rng = np.random.default_rng(first)
    writer = Writer(Path(folder))
    for number in range(first, cells, step):
        model, night = f"model{number % _MODELS}", number // _MODELS
        base = np.random.default_rng(number % _MODELS).lognormal(10, 1, size)
        profile = profile_of(model, base * rng.lognormal(0, 0.02, size))
        date = (_FIRST + datetime.timedelta(days=night)).isoformat()
        cell = Cell(
            model,
            hashlib.sha256(model.encode()).hexdigest(),
            version=f"0.{night}",
            machine="simulated",
            night=date,
        )
        outcome = CellResult(Status.DONE, profile, began=f"{date}T02:00:00.000000Z", seconds=1.0)
        writer.write(cell, outcome)
    writer.close()


def timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def ask_overview(table: Table) -> None:
    with table.connected() as connection:
        connection.execute("SET threads = 2")
        overview(connection)


def ask_model(table: Table) -> None:
    with table.connected(table.model_files("model7")) as connection:
        connection.execute("SET threads = 2")
        operators(connection)


def in_new_process(question: str, folder: Path) -> tuple[float, int]:
    """Seconds, and the most memory in bytes, of a question asked by a process of its own."""
    code = (
        "import sys, time; from pathlib import Path; from benchmarks import fleet;"
        "from whence.fleet.table import Table;"
        f"begin = time.perf_counter(); fleet.{question}(Table(Path(sys.argv[1])));"
        "print(time.perf_counter() - begin, fleet.peak_bytes())"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True
    ).stdout.split()
    return float(said[0]), int(said[1])


def peak_bytes() -> int:
    """The most memory that this process had; what the one that started it had does not count."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(text.partition("VmHWM:")[2].split()[0])


def measure(folder: Path, cells: int, size: int, writers: int) -> dict[str, float]:
    table = Table(folder, create=True)
    context = multiprocessing.get_context("spawn")
    shares = [(str(folder), first, writers, cells, size) for first in range(writers)]
    with context.Pool(writers) as pool:
        writing = timed(lambda: pool.starmap(write_share, shares))
    found = {"cells": cells, "written per s": cells / writing}
    found["resume, s"] = timed(table.finished)
    found["ask, single files, s"] = (
        timed(lambda: ask_overview(table)) if cells <= 10_000 else float("nan")
    )
    found["compact, s"] = timed(table.compact)
    files = [path.stat().st_size for path in folder.rglob("*.parquet")]
    found["MB"] = sum(files) / 1e6
    found["bytes per operator"] = sum(files) / (cells * size)
    found["resume after, s"] = timed(table.finished)
    for name, question in (("all models, s", "ask_overview"), ("one model, s", "ask_model")):
        found[name], peak = in_new_process(question, folder)
        found[name.replace(", s", ", MB")] = peak / 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cells", type=int, default=10_000, help="the most cells")
    parser.add_argument("--operators", type=int, default=1000, help="of each cell")
    parser.add_argument("--writers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, default=None, help="where there is room")
    args = parser.parse_args()
    counts = [count for count in (1_000, 10_000, 100_000) if count <= args.cells] or [args.cells]
    grid = Grid(box=None, header_style="dim", title=f"{args.operators} operators in each cell")
    columns: list[dict[str, float]] = []
    for count in counts:
        folder = Path(tempfile.mkdtemp(prefix="whence-fleet-", dir=args.folder))
        try:
            columns.append(measure(folder / "table", count, args.operators, args.writers))
        finally:
            shutil.rmtree(folder)
    grid.add_column("")
    for column in columns:
        grid.add_column(f"{column['cells']:,.0f} cells", justify="right")
    for name in columns[0]:
        if name != "cells":
            grid.add_row(name, *(f"{column[name]:,.4g}" for column in columns))
    console = Console()
    console.print(grid)
    peak = peak_bytes() / 1e6
    console.print(f"the sweep's own process: {peak:,.0f} MB at most", style="dim")


if __name__ == "__main__":
    main()

"""The schema of the table: one Parquet file for each cell, all rows of which say what they are.

A file holds the rows of several kinds (`record`), so that a cell is there wholly or not at all.
What identifies the cell stands in every row, which costs next to nothing in a column store and
spares every question a join.

| record | a row for | `id`, `name`, `type` | `time_ns` | `detail` |
|---|---|---|---|---|
| `cell` | the cell | | wall time of all runs | why there is no profile |
| `operator` | each operator of the file | its id, name and type | its part of that | what became of it |
| `residual` | time in no operator | name | likewise | |
| `kernel` | each kernel | its id, name, operators | its time | why it runs in reference |
| `run` | each timed run | its number | its wall time | |
| `environment` | each fact about the machine | name | | the fact |

The times of operators and residuals add up to that of the cell, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from whence.errors import ModelError
from whence.fleet.cell import Cell
from whence.fleet.cell_result import CellResult, Status


class SweepColumn(NamedTuple):
    name: str
    kind: str
    """Its type in DuckDB."""
    meaning: str


CELL_COLUMNS = (
    SweepColumn("key", "VARCHAR", "the cell's key: equal for what was measured the same way"),
    SweepColumn("night", "VARCHAR", "the date of the sweep, or its name"),
    SweepColumn("began", "VARCHAR", "when the cell was measured, in UTC"),
    SweepColumn("model", "VARCHAR", "the name of the model's file"),
    SweepColumn("model_sha256", "VARCHAR", "of its content and that of its weights' files"),
    SweepColumn("engine", "VARCHAR", "whence, onnxruntime, openvino, ..."),
    SweepColumn("engine_version", "VARCHAR", "of the engine"),
    SweepColumn("version", "VARCHAR", "of the whence that measured"),
    SweepColumn("target", "VARCHAR", "what code was generated for; empty for what the machine has"),
    SweepColumn("threads", "INTEGER", "that the engine was given; 0 for every core"),
    SweepColumn("shapes", "VARCHAR", "of the inputs, as asked for"),
    SweepColumn("machine", "VARCHAR", "the kind of machine"),
    SweepColumn("status", "VARCHAR", "done, failed, timeout, memory, crashed"),
)
ROW_COLUMNS = (
    SweepColumn("record", "VARCHAR", "what the row is of"),
    SweepColumn("id", "BIGINT", "of the operator, kernel or run"),
    SweepColumn("name", "VARCHAR", "of the operator, kernel, residual or fact"),
    SweepColumn("type", "VARCHAR", "the operator's type; the operators of a kernel"),
    SweepColumn("module", "VARCHAR", "of the program that the model was exported from"),
    SweepColumn("line", "VARCHAR", "of that program"),
    SweepColumn("fate", "VARCHAR", "live, folded, dead, ..."),
    SweepColumn("time_ns", "BIGINT", "over all timed runs"),
    SweepColumn("calls", "BIGINT", "timed runs; calls of a kernel in them"),
    SweepColumn("min_ns", "BIGINT", "the shortest run or call"),
    SweepColumn("low_ns", "BIGINT", "a quarter of the runs was faster"),
    SweepColumn("median_ns", "BIGINT", "of a run"),
    SweepColumn("high_ns", "BIGINT", "a quarter of the runs was slower"),
    SweepColumn(
        "waited_ns", "BIGINT", "of a kernel's time, what the caller waited for other threads"
    ),
    SweepColumn("kernels", "VARCHAR", "that an operator is in, by their ids: `3,17`"),
    SweepColumn("detail", "VARCHAR", "see `record`"),
    SweepColumn("amount", "DOUBLE", "of a cell: the relative standard error of its median run"),
    SweepColumn("seconds", "DOUBLE", "that the cell took in all, compiling included"),
    SweepColumn("peak_bytes", "BIGINT", "of the process that measured it"),
)
COLUMNS = CELL_COLUMNS + ROW_COLUMNS

_OF_KERNEL = ("id", "name", "time_ns", "calls", "min_ns", "waited_ns")
Row = Mapping[str, Any]


def head_of(cell: Cell, outcome: CellResult) -> tuple[Any, ...]:
    """What stands in every row of a cell: the values of `CELL_COLUMNS`."""
    others = {
        "began": outcome.began,
        "shapes": cell.shape_text,
        "status": outcome.status.value,
    }
    names = [column.name for column in CELL_COLUMNS]
    return tuple(others[name] if name in others else getattr(cell, name) for name in names)


def rows_of(outcome: CellResult) -> Iterator[Row]:
    """The rows of a cell, by the names of `ROW_COLUMNS`; what a row has nothing for is left out.
    Raises when the times of a profile do not add up, in which case nothing of it can be trusted.
    """
    profile = outcome.profile
    ending = {"seconds": outcome.seconds, "peak_bytes": outcome.peak_bytes}
    if outcome.status is not Status.DONE:
        yield {"record": "cell", "detail": outcome.error, **ending}
        return
    _check_sum(profile)
    runs = sorted(profile["runs_ns"])
    last = len(runs) - 1
    yield {
        "record": "cell",
        "time_ns": profile["wall_ns"],
        "calls": profile["runs"],
        "min_ns": runs[0],
        "low_ns": runs[last // 4],
        "median_ns": runs[len(runs) // 2],
        "high_ns": runs[last - last // 4],
        "amount": outcome.relative_error,
        **ending,
    }
    for source in profile["sources"]:
        low, median, high = source["band_ns"]
        yield {
            "record": "operator",
            **{name: source[name] for name in ("id", "name", "module", "line", "fate", "time_ns")},
            "type": source["op"],
            "calls": profile["runs"],
            "low_ns": low,
            "median_ns": median,
            "high_ns": high,
            "kernels": ",".join(map(str, source["kernels"])),
            "detail": source["became"],
        }
    for name, time in profile["residual_ns"].items():
        yield {"record": "residual", "name": name, "time_ns": time, "calls": profile["runs"]}
    for kernel in profile["kernels"]:
        yield {
            "record": "kernel",
            **{name: kernel[name] for name in _OF_KERNEL},
            "type": ", ".join(kernel["ops"]),
            "detail": kernel["why_reference"],
        }
    for number, time in enumerate(profile["runs_ns"]):
        yield {"record": "run", "id": number, "time_ns": time}
    for name, fact in profile["environment"].items():
        yield {"record": "environment", "name": name, "detail": fact}


def _check_sum(profile: Mapping[str, Any]) -> None:
    parts = sum(row["time_ns"] for row in profile["sources"]) + sum(profile["residual_ns"].values())
    if parts != profile["wall_ns"]:
        raise ModelError(
            f"the profile of '{profile['model']}' does not add up: its parts are {parts} ns, its"
            f" wall time is {profile['wall_ns']} ns"
        )

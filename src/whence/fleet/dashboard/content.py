"""What the dashboard shows, from the table: every series, and the heaviest operators of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import duckdb

from whence.fleet.change_points import ChangePoint
from whence.fleet.series import SeriesKey
from whence.fleet.views import SERIES

_OPERATORS = 60
"""Of each series, at most so many; the rest is one row."""
Content = dict[str, Any]


def overview(connection: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """Every cell in a row: subject, night, version, status, median, and why there is none."""
    return connection.execute(
        f"""SELECT {SERIES}, night, arg_max(version, began), arg_max(status, began),
                arg_max(median_ns, began), arg_max(error, began)
            FROM cell GROUP BY {SERIES}, night ORDER BY {SERIES}, night"""
    ).fetchall()


def operators(
    connection: duckdb.DuckDBPyConnection, most: int = _OPERATORS
) -> list[tuple[Any, ...]]:
    """Subject, operator (name, type, module, line), nights and times of a run, what became of it
    and its kernels on the last night: the heaviest of each series.
    """
    return connection.execute(
        f"""WITH night_time AS (
                SELECT {SERIES}, name, night, any_value(type) AS type, any_value(module) AS module,
                    any_value(line) AS line, sum(if(low_ns > 0, low_ns, time_ns / runs)) AS time,
                    any_value(became) AS became, any_value(key) AS key, any_value(kernels) AS kernels
                FROM operator WHERE time_ns > 0 GROUP BY {SERIES}, name, night)
            SELECT {SERIES}, name, arg_max(type, night), arg_max(module, night), arg_max(line, night),
                list(night ORDER BY night), list(time::BIGINT ORDER BY night), arg_max(became, night),
                arg_max(key, night), arg_max(kernels, night)
            FROM night_time GROUP BY {SERIES}, name
            QUALIFY row_number() OVER (PARTITION BY {SERIES} ORDER BY sum(time) DESC, name) <= {most}
            ORDER BY {SERIES}, sum(time) DESC, name"""
    ).fetchall()


def content(connection: duckdb.DuckDBPyConnection, changes: Sequence[ChangePoint]) -> Content:
    """Everything that the page has, as it stands in it."""
    cells = overview(connection)
    nights = sorted({str(row[7]) for row in cells})
    position = {night: number for number, night in enumerate(nights)}
    subjects: dict[SeriesKey, Content] = {}
    for row in cells:
        subject = SeriesKey(*row[:7])
        entry = subjects.setdefault(subject, _entry(subject, len(nights)))
        at = position[row[7]]
        entry["versions"][at], entry["status"][at], entry["times"][at] = row[8], row[9], row[10]
        if row[11]:
            entry["errors"][at] = row[11]
    rows = operators(connection)
    kernels = _kernels(connection, {row[14] for row in rows})
    for row in rows:
        times: list[int | None] = [None] * len(nights)
        for night, time in zip(row[11], row[12], strict=True):
            times[position[night]] = time
        facts = dict(zip(("name", "type", "module", "line"), row[7:11], strict=True))
        names = [kernels.get((row[14], number), "") for number in row[15] or ()]
        subjects[SeriesKey(*row[:7])]["operators"].append(
            {**facts, "times": times, "became": row[13], "kernels": names}
        )
    for change in changes:
        subjects[change.series.subject]["changes"].append(
            {
                "name": change.series.name,
                "night": position[change.night],
                "before": round(change.before_ns),
                "after": round(change.after_ns),
                "confidence": change.confidence,
            }
        )
    return {"nights": nights, "subjects": list(subjects.values())}


def _entry(subject: SeriesKey, nights: int) -> Content:
    return {
        **asdict(subject),
        "versions": [None] * nights,
        "status": [None] * nights,
        "times": [None] * nights,
        "errors": {},
        "operators": [],
        "changes": [],
    }


def _kernels(connection: duckdb.DuckDBPyConnection, keys: set[str]) -> dict[tuple[str, int], str]:
    """By cell and number: the operators that a kernel runs as one."""
    rows = connection.execute(
        "SELECT key, id, operators FROM kernel WHERE key IN (SELECT unnest(?::VARCHAR[]))",
        [sorted(keys)],
    ).fetchall()
    return {(str(row[0]), int(row[1])): str(row[2]) for row in rows}

"""Series: what an operator, a module or a type of operators took, night after night."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb
import numpy as np

from whence.errors import InputError
from whence.fleet.cell import thread_count
from whence.fleet.views import SERIES

GROUPINGS: Mapping[str, str] = {
    "op": "name",
    "module": "coalesce(nullif(module, ''), '(no module)')",
    "type": "type",
}
"""By what `--by` says: the column, or expression, that time is added up by."""
_LEAST_SHARE = 0.002
"""What takes less of its model than this on every night is not looked at by itself."""


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """What is measured the same way every night."""

    model: str
    model_sha256: str
    engine: str
    machine: str
    threads: int
    target: str
    shapes: str

    def describe(self) -> str:
        words = [self.model, self.engine, thread_count(self.threads), self.target]
        return " · ".join(word for word in (*words, self.shapes) if word)


@dataclass(frozen=True, slots=True)
class Series:
    subject: SeriesKey
    name: str
    """Of the operator, module or type; empty for the whole run."""
    nights: tuple[str, ...]
    versions: tuple[str, ...]
    """Which version was measured, by night."""
    times: np.ndarray = field(repr=False)
    """Nanoseconds of a run, by night."""


def whole_runs(connection: duckdb.DuckDBPyConnection) -> list[Series]:
    """The median run of every series."""
    return _series(
        connection,
        f"SELECT {SERIES}, '' AS name, night, min(began) AS began, min(version) AS version,"
        " min(median_ns)::DOUBLE AS time FROM cell"
        " WHERE status = 'done' AND median_ns > 0 GROUP BY ALL",
    )


def parts(connection: duckdb.DuckDBPyConnection, by: str) -> list[Series]:
    """What each operator (or module, or type) takes of a run. The lower quartile of the runs stands
    for a night: what disturbs a run only makes it slower.
    """
    if by not in GROUPINGS:
        raise InputError(f"cannot group by '{by}'; there is {', '.join(GROUPINGS)}")
    own = f"{SERIES}, name"
    return _series(
        connection,
        f"""WITH part AS (
                SELECT {SERIES}, {GROUPINGS[by]} AS name, night, min(began) AS began,
                    min(version) AS version,
                    sum(if(low_ns > 0, low_ns, time_ns / runs))::DOUBLE AS time
                FROM operator GROUP BY {SERIES}, {GROUPINGS[by]}, night
            ), whole AS (
                SELECT {SERIES}, night, sum(time) AS total FROM part GROUP BY {SERIES}, night
            ), heavy AS (
                SELECT {own} FROM part JOIN whole USING ({SERIES}, night)
                GROUP BY {own} HAVING max(time / nullif(total, 0)) >= {_LEAST_SHARE}
            )
            SELECT part.* FROM part SEMI JOIN heavy USING ({own})""",
    )


def _series(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Series]:
    rows = connection.execute(
        f"""SELECT {SERIES}, name, list(night ORDER BY began), list(version ORDER BY began),
                list(time ORDER BY began)
            FROM ({sql}) GROUP BY {SERIES}, name ORDER BY {SERIES}, name"""
    ).fetchall()
    return [
        Series(
            SeriesKey(*row[:7]), row[7], tuple(row[8]), tuple(row[9]), np.array(row[10], np.float64)
        )
        for row in rows
    ]

"""Saved questions: views over a table, for `whence history --sql` and for anybody's DuckDB.

A *series* is what was measured the same way on different nights: model, engine, machine, threads,
target and shapes. Times are nanoseconds of one run.
"""

from __future__ import annotations

from whence.debugdb.views import View

SERIES = "model, model_sha256, engine, machine, threads, target, shapes"
"""What tells one series from another."""


VIEWS = (
    View(
        "cell",
        "every cell of the table",
        f"""SELECT key, night, began, {SERIES}, engine_version, version, status, detail AS error, calls AS runs, time_ns AS wall_ns,
               min_ns, low_ns, median_ns, high_ns, amount AS relative_error, seconds, peak_bytes
           FROM record WHERE record = 'cell'""",
    ),
    View(
        "operator",
        "every operator of every cell",
        f"""SELECT key, night, began, {SERIES}, engine_version, version, id, name, type, module, line, fate, time_ns, calls AS runs,
               low_ns, median_ns, high_ns,
               string_split(nullif(kernels, ''), ',')::BIGINT[] AS kernels, detail AS became
           FROM record WHERE record = 'operator'""",
    ),
    View(
        "kernel",
        "every kernel of every cell",
        f"""SELECT key, night, {SERIES}, version, id, name, type AS operators, time_ns, calls, min_ns, waited_ns, detail AS why_reference
           FROM record WHERE record = 'kernel'""",
    ),
    View(
        "residual",
        "time in no operator",
        f"SELECT key, night, {SERIES}, version, name, time_ns, calls AS runs FROM record WHERE record = 'residual'",
    ),
    View(
        "run",
        "every timed run",
        f"SELECT key, night, {SERIES}, version, id AS number, time_ns FROM record WHERE record = 'run'",
    ),
    View(
        "environment",
        "what is known of the machine and the versions of every cell",
        "SELECT key, night, model, name, detail AS fact FROM record WHERE record = 'environment'",
    ),
    View(
        "noise",
        "by machine: how much the median run of unchanged models differs from one night to the next",
        f"""WITH pair AS (
               SELECT machine, engine, ln(median_ns / lag(median_ns) OVER (PARTITION BY {SERIES} ORDER BY night, began)) AS change,
                   version = lag(version) OVER (PARTITION BY {SERIES} ORDER BY night, began) AS same
               FROM cell WHERE status = 'done' AND median_ns > 0)
           SELECT machine, engine, count(*) AS pairs, 1.4826 * median(abs(change)) / sqrt(2) AS noise
           FROM pair WHERE change IS NOT NULL AND same GROUP BY machine, engine ORDER BY noise DESC""",
    ),
    View(
        "unfinished",
        "cells without a profile, and why",
        "SELECT night, model, engine, threads, machine, status, error FROM cell WHERE status <> 'done' ORDER BY night, model",
    ),
)

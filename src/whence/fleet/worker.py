"""One cell, measured: a program that gets a request as JSON and leaves a result as JSON.

It is run as a file, by the Python that has the version of whence which is to be measured, so it
uses only what every version has: `compile_model` and `profile_model`.
"""

from __future__ import annotations

import json
import math
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

_FIRST_RUNS = 20
_MOST_RUNS = 2000
_NORMAL = 1.4826
"""Of a normal distribution: the standard deviation is so many times the median deviation."""
_MEDIAN = 1.2533
"""And the standard error of a median so many times that of a mean."""


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """The profile asked for: enough runs for a small error of the median, within the time."""
    profile_once = _of_whence(request) if request["engine"] == "whence" else _of_other(request)
    end = time.monotonic() + request["seconds"]
    runs = _FIRST_RUNS
    while True:
        begin = time.monotonic()
        profile = profile_once(runs)
        took = time.monotonic() - begin
        error = relative_error(profile["runs_ns"])
        needed = math.ceil(runs * (error / request["error"]) ** 2)
        more = min(_MOST_RUNS, 4 * runs, max(2 * runs, needed))
        if error <= request["error"] or runs >= _MOST_RUNS:
            break
        # A run that is profiled comes with one that is not; the rest of the time is spent once.
        running = 2e-9 * sum(profile["runs_ns"])
        if time.monotonic() + max(0.0, took - running) + running * more / runs > end:
            break
        runs = more
    peak = max(
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {"profile": profile, "relative_error": error, "peak_bytes": peak * 1024}


def relative_error(runs_ns: list[int]) -> float:
    """The standard error of the median, as a part of it, from the median deviation: a few runs that
    were disturbed do not matter.
    """
    if len(runs_ns) < 2:
        return 1.0
    median = statistics.median(runs_ns)
    spread = statistics.median(abs(run - median) for run in runs_ns)
    return _MEDIAN * _NORMAL * spread / math.sqrt(len(runs_ns)) / median if median else 0.0


def _of_whence(request: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    from whence.api import compile_model, profile_model

    shapes = {name: tuple(shape) for name, shape in request["shapes"].items()}
    executable = compile_model(
        request["path"], threads=request["threads"], shapes=shapes, tune=request["tune"]
    )
    return lambda runs: _content(profile_model(executable, runs=runs, warmup=request["warmup"]))


def _of_other(request: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    from whence.foreign import profile

    asked = {name: request[name] for name in ("engine", "threads", "shapes", "warmup")}
    return lambda runs: _content(profile(request["path"], runs=runs, **asked))


def _content(profile: Any) -> dict[str, Any]:
    return {**profile.without_local_paths().to_dict(), "timeline": []}


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123  (quicker to start)
        request = json.load(file)
    if request["memory"]:
        resource.setrlimit(resource.RLIMIT_DATA, (request["memory"], request["memory"]))
    try:
        result = measure(request)
    except MemoryError:
        result = {"status": "memory", "error": "out of memory"}
    except Exception as error:
        text = " ".join(str(error).split())[:500]
        plain = type(error).__module__.startswith("whence.")
        result = {
            "status": "memory" if "memory" in text.lower() and not plain else "failed",
            "error": text if plain else f"{type(error).__name__}: {text}",
        }
    with open(f"{sys.argv[2]}.part", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(result, file)
    os.rename(f"{sys.argv[2]}.part", sys.argv[2])  # noqa: PTH104


if __name__ == "__main__":
    main()

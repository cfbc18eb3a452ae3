"""How much a model does in a second with several callers at once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from whence.attribution.rows import Distribution, distribution_of
from whence.building.json_records import in_json
from whence.ops.definition import Value
from whence.runtime.executable import Executable
from whence.runtime.run_many import run_in_order

# Callers that begin or end are not all at work: so many runs for each keep that small.
_LEAST_RUNS = 8


@dataclass(frozen=True, slots=True)
class Throughput:
    """Runs of one model by callers that share its weights."""

    streams: int
    """Callers at a time."""
    batch: int
    """Samples in a run."""
    runs: int
    elapsed_ns: int
    latency: Distribution = field(metadata=in_json("latency_ns"))
    """Of a run, in nanoseconds, while the others are at work."""

    @property
    def runs_per_second(self) -> float:
        return self.runs * 1e9 / self.elapsed_ns if self.elapsed_ns else 0.0

    @property
    def samples_per_second(self) -> float:
        return self.batch * self.runs_per_second


def measure_throughput(
    executable: Executable, values: Sequence[Value], *, streams: int, batch: int, runs: int
) -> Throughput:
    """So many runs, at least a few for each caller, with `streams` of them at a time. A model with
    state is refused: its runs follow each other.
    """
    executable.run_many((), streams=streams)
    count = max(runs, _LEAST_RUNS * streams)
    taken: list[int] = []

    def one(call: Sequence[Value]) -> None:
        begin = time.monotonic_ns()
        executable(*call)
        taken.append(time.monotonic_ns() - begin)

    def all_of(calls: int) -> int:
        taken.clear()
        begin = time.monotonic_ns()
        for _ in run_in_order(one, itertools.repeat(values, calls), streams):
            pass
        return time.monotonic_ns() - begin

    all_of(2 * streams)
    elapsed = all_of(count)
    return Throughput(streams, batch, count, elapsed, distribution_of(taken))

"""Running a model to see where its time goes.

Profiled runs alternate with runs that are not profiled, so that what profiling costs is measured
under the same conditions; and, where there are several threads, with runs in which each of them
notes when it works, which another profile of a busy machine can be compared by
(`robust_changes.py`).

Threads sleep when nothing is to be done for a while, and what a profile does between two runs takes
longer than that. Each run of a short model therefore follows at once upon one that is not timed, as
calls in a loop do: else the first kernel of every run would pay for waking threads up.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from whence.attribution.account import Span, account
from whence.attribution.assemble import Measurement, assemble
from whence.attribution.findings.measurement_quality import GUESSED
from whence.attribution.fixed_work import time_fixed_work
from whence.attribution.input_buffers import InputBuffers
from whence.attribution.least_times import agree, are_known
from whence.attribution.leave_out import measure_savings, silently
from whence.attribution.model_facts import model_facts, version_facts
from whence.attribution.moment_scatter import moment_scatter
from whence.attribution.noise import are_quiet, block_lows
from whence.attribution.profile import Profile, Writer
from whence.attribution.sample_inputs import SampleInputs, working_inputs
from whence.attribution.source_costs import source_kinds
from whence.attribution.throughput import measure_throughput
from whence.attribution.worker_lanes import FEWEST_RUNS, LONG_RUN_NS, WorkerRuns, events_of
from whence.building.backend import Progress
from whence.building.program import Program
from whence.calibration import rates_for
from whence.codegen.toolchain import Toolchain
from whence.errors import InputError
from whence.graph import Graph
from whence.graph.interpreter import bind_inputs
from whence.ops.definition import Value
from whence.rates import MachineRates
from whence.runtime.environment import environment
from whence.runtime.executable import Executable
from whence.runtime.profiler import ProgramPart
from whence.runtime.stream import Stream, StreamFlags, reset_profiling

Prepare = Callable[[Mapping[str, Sequence[int]]], Graph]
"""Gives the graph of a program once more, with its constants, for inputs of these shapes."""

# Spreads and the timeline come from this many runs at most; sums come from all.
_STORED_RUNS = 128
_STORED_SAMPLES = 50_000
# Runs after which it is looked at again whether more are needed.
_ROUND = 8
# What others do on a machine lasts for a while: a busy one is looked at until so much time has
# passed that there were quiet moments in it.
_LONG_ENOUGH_S, _TOO_LONG_S = 3.0, 8.0
# To wake threads takes some ten microseconds for each: longer runs do not show it.
_SHORT_RUN_NS = 20_000_000
# So does what happens between runs, to the first kernel's inputs in the caches and to vector units
# that were idle; and it happens once in a run, however many threads there are.
_SHORTEST_RUN_NS = 2_000_000
_NEVER = np.iinfo(np.int64).max
# Of a step, over the profiled runs.
_SUMS = np.dtype([(name, np.int64) for name in ("time", "calls", "waited", "least")])
_NO_RUN = np.array((0, 0, 0, _NEVER), _SUMS)


def profile_executable(
    executable: Executable,
    inputs: Mapping[str, Value] | SampleInputs | Value | None = None,
    *,
    runs: int = 50,
    warmup: int = 5,
    model: str = "",
    progress: Progress = silently,
    writers: Sequence[Writer] = (),
    exact: Prepare | None = None,
    rates: MachineRates | None = None,
    streams: int = 0,
    batch: int = 1,
    to_compare: bool = False,
) -> Profile:
    """Run a compiled model `runs` times and say where the time went. Without `inputs`, they are
    random.

    With `exact`, what each operator adds to its kernel is measured by leaving it out, not modelled.
    `rates` are those of the machine; without them, what was measured of it before, else nominal
    ones. With `streams`, what so many callers at once achieve is measured behind the profile;
    `batch` is how many samples an input has, by which runs are counted as samples. A profile
    `to_compare` has more runs, and takes up to eight seconds longer on a busy machine, until it is
    known what kernels take undisturbed: `diff` needs that, shares do not.
    """
    if runs < 1:
        raise InputError(f"a profile needs at least one run, not {runs}")
    if streams < 0 or batch < 1:
        raise InputError(f"{streams} callers with {batch} samples each make no sense")
    if warmup < 0:
        raise InputError(f"{warmup} runs cannot warm anything up")
    measuring = ProfiledRuns(executable, inputs)
    for number in range(warmup):
        measuring.warm_up()
        progress("warming up", number + 1, warmup)
    for number in range(runs):
        # The order within a pair changes, so that neither kind always runs in the other's wake.
        if number % 2:
            measuring.run()
        measuring.run_profiled()
        if not number % 2:
            measuring.run()
        if to_compare and measuring.has_workers:
            measuring.run_noting_workers()
        progress("running", number + 1, runs)
    found = measuring.profile(
        model=model,
        progress=progress,
        writers=writers,
        exact=exact,
        rates=rates,
        to_compare=to_compare,
    )
    if not streams:
        return found
    progress(f"running {streams} at a time", 0, 1)
    achieved = measure_throughput(
        executable, measuring.values, streams=streams, batch=batch, runs=runs
    )
    return dataclasses.replace(found, throughput=achieved)


class ProfiledRuns:
    """Runs of a compiled model, profiled ones and others, as many as one asks for and when."""

    def __init__(
        self,
        executable: Executable,
        inputs: Mapping[str, Value] | SampleInputs | Value | None = None,
    ) -> None:
        graph, engine = executable.graph, executable.engine
        self._executable, self._guessed = executable, ""
        self.values: Sequence[Value]
        """The inputs of every run."""
        if inputs is None:
            inputs = working_inputs(executable)
        if isinstance(inputs, SampleInputs):
            self._guessed = inputs.options if inputs.guessed else ""
            self.values = bind_inputs(graph, inputs.values)
        else:
            self.values = bind_inputs(graph, inputs)
            executable(*self.values)
        self._places = InputBuffers(self.values)
        # Behind that run, which may bring a program for these sizes alone into use.
        self._program = executable.program_for(self.values)
        self._shapes = {
            node.name: value.shape
            for node, value in zip(graph.inputs, self.values, strict=True)
            if isinstance(value, np.ndarray)
        }
        self._plain, self._profiling = Stream(engine), Stream(engine, StreamFlags.PROFILING)
        clock_ns = engine.backend.noting_ns() if engine.backend.reads_clock else 0
        self._totals = _RunTotals(self._program, clock_ns, engine.backend.gap)
        self._unprofiled: list[int] = []
        self._least_ns = _NEVER
        self._fixed_work: list[int] = []
        self._noting = Stream(engine, StreamFlags.PROFILING)
        assert self._noting.profiler is not None
        self._workers = WorkerRuns(self._noting.profiler, engine.threads)

    @property
    def has_workers(self) -> bool:
        """Do several threads work at a kernel, which can note when they do?"""
        engine = self._executable.engine
        return engine.threads > 1 and engine.backend.reads_clock

    def warm_up(self) -> None:
        self._timed(self._plain)

    def run(self) -> None:
        """One that is not profiled, to tell what profiling costs."""
        self._unprofiled.append(self._timed(self._plain).elapsed)

    def run_profiled(self) -> None:
        reset_profiling(self._profiling)
        self._totals.enter(self._profiling, self._timed(self._profiling))
        self._fixed_work.append(time_fixed_work())

    def run_noting_workers(self, times: int = 1) -> None:
        """So many, one at once upon the other, in which each thread notes when it works."""
        self._workers.enter(
            lambda: [self._timed(self._noting, is_awake=number > 0) for number in range(times)]
        )

    def _timed(self, stream: Stream, *, is_awake: bool = False) -> Span:
        """A run that begins as if it followed another at once: with threads awake, and with what
        the run before left in the caches.
        """
        values = self._places.next()
        if self._begins_warm and not is_awake:
            self._executable.perform(self._plain, *values)
        # In this thread, as whoever calls the model does it: to wake another takes a tenth of a
        # millisecond on some machines.
        begin = time.monotonic_ns()
        pending = self._executable.perform(stream, *values)
        span = Span(begin, pending.began, pending.ended, time.monotonic_ns())
        self._least_ns = min(self._least_ns, span.elapsed)
        return span

    @property
    def _begins_warm(self) -> bool:
        """Is it worth a run that is not timed? One more would change a model with state."""
        has_state = bool(self._program.plan.variables)
        short_ns = _SHORT_RUN_NS if self.has_workers else _SHORTEST_RUN_NS
        in_caches = self._executable.engine.backend.reads_clock
        return in_caches and self._least_ns < short_ns and not has_state

    def profile(
        self,
        *,
        model: str = "",
        progress: Progress = silently,
        writers: Sequence[Writer] = (),
        exact: Prepare | None = None,
        rates: MachineRates | None = None,
        to_compare: bool = False,
    ) -> Profile:
        """Of all profiled runs so far, at least one."""
        graph, engine = self._executable.graph, self._executable.engine
        measured = self._with_workers(self._totals.close(self._unprofiled), progress, to_compare)
        left_out = None
        if exact is not None:
            left_out = measure_savings(
                self._program,
                exact(self._shapes),
                engine,
                self.values,
                measured.step_ns.tolist(),
                source_kinds(graph),
                progress,
            )
        return assemble(
            graph,
            self._program,
            measured,
            model=model,
            engine=str(engine.kind),
            threads=engine.threads,
            rates=rates or rates_for(getattr(engine.backend, "toolchain", None) or Toolchain()),
            shapes=self._shapes,
            writers=writers,
            left_out=left_out,
            parts=self._totals.parts,
            why_reference=engine.backend.why_reference,
            environment={
                **model_facts(graph, self._shapes, model),
                **version_facts(graph, self._program),
                **({GUESSED: self._guessed} if self._guessed else {}),
                **environment(getattr(engine.backend, "toolchain", None)),
            },
        )

    def _with_workers(
        self, measured: Measurement, progress: Progress, to_compare: bool
    ) -> Measurement:
        """With what threads noted of when they work."""
        if self.has_workers:
            is_long = float(np.median(measured.runs_ns)) > LONG_RUN_NS
            for _ in range(len(self._workers), 1 if is_long else FEWEST_RUNS):
                self.run_noting_workers()
        if to_compare and self._executable.engine.backend.reads_clock:
            self._note_more(measured, progress)
        measured = dataclasses.replace(measured, fixed_products_ns=tuple(self._fixed_work))
        recorded = self._workers.usual(measured.runs_ns)
        if recorded is None or self._workers.parts(self._program) != self._totals.parts:
            return measured
        busy = self._worked_ns(measured)
        measured = dataclasses.replace(
            measured, busy_runs_ns=busy, busy_scatter=moment_scatter(busy)
        )
        if not self.has_workers:
            return measured
        return dataclasses.replace(
            measured,
            timeline=recorded.events,
            timeline_ns=recorded.wall_ns,
            workers=recorded.workers,
        )

    def _worked_ns(self, measured: Measurement) -> np.ndarray:
        """How long all threads together worked, by run and step. What one thread takes is the same
        whether it notes it or not: the profiled runs count too.
        """
        noted = self._workers.busy_ns(len(measured.step_ns))
        return noted if self.has_workers else np.concatenate([measured.per_run_ns, noted])

    def _note_more(self, measured: Measurement, progress: Progress) -> None:
        """Runs in which threads note when they work, until it is known what steps take undisturbed:
        twice as many as the profiled ones at most, and none where those were few. On a busy machine
        they go on for a while in any case, and until the shortest of each step agree, for so long
        as a person may wait.
        """
        is_busy, began = not are_quiet(block_lows(measured.runs_ns)), time.monotonic()
        before, most = len(self._workers), 2 * len(measured.per_run_ns)
        while most >= _ROUND and self._workers.has_capacity:
            noted = len(self._workers)
            if noted and self._workers.parts(self._program) != self._totals.parts:
                return
            spent = time.monotonic() - began
            if is_busy:
                if spent >= _TOO_LONG_S or (
                    spent >= _LONG_ENOUGH_S and agree(self._worked_ns(measured))
                ):
                    return
                progress("waiting for quiet moments", round(spent), round(_TOO_LONG_S))
            elif noted - before > most - _ROUND or are_known(self._worked_ns(measured)):
                return
            self._note_round()
            if len(self._workers) == noted:
                return

    def _note_round(self) -> None:
        """So many at once as there is room to note."""
        self._fixed_work.append(time_fixed_work())
        at_once = min(_ROUND, self._workers.most_at_once)
        for first in range(0, _ROUND, at_once):
            self.run_noting_workers(min(at_once, _ROUND - first))


class _RunTotals:
    """Sums over the profiled runs."""

    def __init__(self, program: Program, clock_ns: int, gap: str) -> None:
        self._program = program
        self.parts: Sequence[ProgramPart] = ()
        """The program, and what ran as part of it."""
        self._native = np.zeros(0, bool)
        self._clock_ns = clock_ns
        self._gap = gap
        self._walls: list[int] = []
        self._residual: Counter[str] = Counter()
        self._steps = np.zeros(0, _SUMS)
        self._per_run: list[np.ndarray] = []
        self._samples: list[tuple[int, np.ndarray]] = []

    def enter(self, stream: Stream, span: Span) -> None:
        profiler = stream.profiler
        assert profiler is not None
        samples = profiler.samples()
        self._grow(profiler.parts(self._program))
        found = account(samples, span, self._native, self._clock_ns, profiler.dropped, self._gap)
        self._walls.append(found.wall_ns)
        self._residual.update(found.residual_ns)
        mine = np.zeros(len(self._steps), np.int64)
        np.add.at(mine, found.steps, found.kernel_ns)
        np.add.at(self._steps["calls"], found.steps, 1)
        np.add.at(self._steps["waited"], found.steps, found.waited_ns)
        np.minimum.at(self._steps["least"], found.steps, found.kernel_ns)
        self._steps["time"] += mine
        if len(self._per_run) < _STORED_RUNS:
            self._per_run.append(mine)
            self._samples.append((span.begin, samples))

    def _grow(self, parts: Sequence[ProgramPart]) -> None:
        """Have a place for every step of the parts."""
        more = sum(len(each.program.steps) for each in parts) - len(self._native)
        self.parts = parts
        if more:
            self._native = np.array([bool(s.symbol) for p in parts for s in p.program.steps], bool)
            self._steps = np.append(self._steps, np.full(more, _NO_RUN))

    def close(self, unprofiled: Sequence[int]) -> Measurement:
        stored = range(len(self._samples))
        middle = sorted(stored, key=lambda run: self._walls[run])[len(stored) // 2]
        begin, samples = self._samples[middle]
        return Measurement(
            runs_ns=tuple(self._walls),
            residual_ns=self._residual,
            step_ns=self._steps["time"],
            step_calls=self._steps["calls"],
            step_waited_ns=self._steps["waited"],
            step_min_ns=np.where(self._steps["calls"] > 0, self._steps["least"], 0),
            per_run_ns=np.array(
                [np.pad(each, (0, len(self._steps) - len(each))) for each in self._per_run]
            ),
            timeline=events_of(samples, begin),
            timeline_ns=self._walls[middle],
            overhead_ratio=overhead(self._walls, unprofiled),
            samples=self._stored_samples(),
        )

    def _stored_samples(self) -> np.ndarray:
        """The samples of as many runs as there is room for, each run an execution."""
        stored: list[np.ndarray] = []
        count = 0
        for run, (_, samples) in enumerate(self._samples):
            count += len(samples)
            if stored and count > _STORED_SAMPLES:
                break
            mine = samples.copy()
            mine["execution"] = run
            stored.append(mine)
        return np.concatenate(stored)


def overhead(profiled: Sequence[int], unprofiled: Sequence[int]) -> float:
    """How much longer profiled runs take, from the fastest quarter of each kind: what disturbs a
    run only ever makes it slower.
    """
    if not profiled or not unprofiled:
        return 0.0
    fast = [
        sum(sorted(times)[: max(1, len(times) // 4)]) / max(1, len(times) // 4)
        for times in (profiled, unprofiled)
    ]
    return fast[0] / fast[1] - 1.0 if fast[1] else 0.0

"""Measuring a machine, with code of our own compiler on our own threads.

Everything is timed several times, briefly, and the best counts: whatever else runs on the machine
makes a try slower, never faster. All of it takes a few seconds, most of them the compiler's.
"""

from __future__ import annotations

import ctypes
import datetime
import itertools
import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from importlib import resources

import numpy as np

from whence.backends.cpu.backend import CpuBackend
from whence.backends.cpu.generator import tile_for
from whence.backends.cpu.step_timing import time_steps
from whence.building.aligned_memory import aligned_bytes
from whence.building.backend import Progress
from whence.building.location import MemoryRegion
from whence.building.machine_record import SETTING, store, stored
from whence.building.native_code import GANG, Library, NativeSlot, NativeStep
from whence.building.nominal_rates import SIMPLE, nominal_rates
from whence.building.program import make_segment
from whence.calibration.probes import (
    ANCHOR_FLOPS,
    EPILOGUES,
    Probe,
    element_probes,
    emit_probes,
    epilogue_probes,
    operands_of,
    sum_probes,
    transpose_probes,
)
from whence.codegen.prelude import PRELUDE
from whence.codegen.target import Feature
from whence.codegen.toolchain import SourceUnit, Toolchain
from whence.codegen.vectors import VECTORS
from whence.errors import InputError
from whence.kernels.tile import Tile
from whence.rates import REACHED, ArithmeticUnit, MachineRates, MemoryLevel, Rate
from whence.runtime import native_library as native

_TRIES = 12
# A try takes at least so long, so that reading the clock does not matter.
_TRY_NS = 400_000
_MOST_ROUNDS = 1 << 30
# Elements that a probe works on: all it touches fits the second level of any cache.
_ELEMENTS = 8192
_REPEATS = 16
_STEPS = 1000
_IDLE_S, _WAKES = 0.003, 12
# All threads together get longer tries: they begin together only when each has a core.
_ALL_THREADS_NS = 1_000_000
_SMALL, _PAGE = 8192, 4096
# Matrices of several sizes, each at several places in memory: how rows meet in the sets of a cache
# makes a transpose up to twice as slow, and one place would decide it for every model.
_NEAR_SIDES, _PLACES = (128, 256), 5
_PROBE_NS = 60_000_000
_LEAST_FACTOR = 0.25
_ROUNDS = 3
# What threads reach together of what as many would alone, if nobody else uses the cores: two on one
# core share its units.
_UNDISTURBED = 0.6
# What a level is measured with: half of it, so that whatever else is there has room; and more than
# the last level for memory, within reason.
_BEYOND, _MOST_BYTES = 4, 256 << 20
_STAGES = 6


def calibrate(toolchain: Toolchain, progress: Progress | None = None) -> MachineRates:
    """Measure this machine, and keep what was found for later processes."""
    stage = itertools.count()

    def show(what: str) -> None:
        if progress is not None:
            progress(f"measuring the machine: {what}", next(stage), _STAGES)

    show("compiling")
    bench = _Bench(toolchain)
    show("peak rates")
    clock = bench.rate("wc_cycles", 64)
    peak = bench.peaks()
    show("bandwidth")
    bandwidth = [bench.bandwidth(size) for size in bench.level_sizes]
    show("operators")
    element_ps, levels, transposes = bench.operators(bandwidth, peak[ArithmeticUnit.F32].one)
    show("threads")
    found = MachineRates(
        measured=True,
        threads=bench.threads,
        clock_ghz=clock,
        peak=peak,
        levels=levels,
        dispatch_ns=bench.dispatch_ns(),
        barrier_ns=bench.barrier_ns(),
        wake_ns=bench.wake_ns(),
        element_ps=element_ps,
        transpose_ps=transposes,
        epilogue=bench.epilogues(element_ps),
        reached=bench.reached(peak[ArithmeticUnit.F32].one),
        disturbed=peak[ArithmeticUnit.F32].all
        < _UNDISTURBED * bench.threads * peak[ArithmeticUnit.F32].one,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    store(toolchain, found)
    show("done")
    return found


def rates_for(toolchain: Toolchain) -> MachineRates:
    """What is known of the machine now: what was measured once, else what its kind should do."""
    return stored(toolchain) or nominal_rates(toolchain.target)


def calibrated(toolchain: Toolchain, progress: Progress | None = None) -> MachineRates:
    """What was measured of this machine; it is measured now if it never was, which takes seconds.
    With WHENCE_CALIBRATE=never, and for code that this machine does not run, nominal rates.
    """
    setting = os.environ.get(SETTING, "auto")
    if setting not in ("auto", "never"):
        raise InputError(f"{SETTING} is '{setting}', which is neither 'auto' nor 'never'")
    if setting == "never" or toolchain.sanitize:
        return nominal_rates(toolchain.target)
    return stored(toolchain) or calibrate(toolchain, progress)


class _Bench:
    """The compiled probes, and threads to run them on: one, and all."""

    def __init__(self, toolchain: Toolchain) -> None:
        target = toolchain.target
        self._target = target
        self._tile = tile_for(toolchain)
        self._engines = [CpuBackend(threads=1, toolchain=toolchain)]
        if target.cores > 1:
            self._engines.append(CpuBackend(threads=target.cores, toolchain=toolchain))
        self.threads = self._engines[-1].threads
        self.level_sizes = _level_sizes(target.l1d, target.l2, target.l3)
        self._elements = element_probes(self._tile, _ELEMENTS)
        self._sums = [sum_probes(self._tile, size // 12) for size in self.level_sizes]
        far = 1 << (math.isqrt(self.level_sizes[-1] // 12).bit_length() - 1)
        self._near_transposes = [transpose_probes(self._tile, side) for side in _NEAR_SIDES]
        self._far_transposes = [transpose_probes(self._tile, far)]
        self._epilogues = epilogue_probes(self._tile, tile_for(toolchain, bf16x2=True))
        others = (self._sums, self._near_transposes, self._far_transposes)
        together = itertools.chain(self._epilogues.values(), *others)
        probes = [*self._elements, *itertools.chain.from_iterable(together)]
        self._scratch = max(probe.kernel.scratch_bytes for probe in probes)
        self._symbols, units = emit_probes(probes)
        self._library = Library(toolchain.build_library([_source(self._tile), *units]))
        self._rng = np.random.default_rng(0)
        self._memory = aligned_bytes(max(self.level_sizes) + (1 << 12))
        self._memory.view(np.float32)[:] = 1.0

    # ---- running ----

    def _time(
        self,
        symbol: str,
        arrays: Sequence[np.ndarray],
        tasks: int,
        repeats: int,
        *,
        gang: bool,
        others: int = 0,
    ) -> int:
        """Nanoseconds of a kernel: the shortest of so many in a row."""
        engine = self._engines[-1 if gang else 0]
        grain = GANG if gang else tasks
        count = len(arrays)
        reading = [np.array([1, others], np.int64), self._memory, np.zeros(32)] if others else []
        steps = [NativeStep(self._library.address(symbol), tasks, grain, 0, count)]
        if others:
            steps.insert(0, NativeStep(self._library.address("wc_read"), 1, 1, count, 3))
        every = [*arrays, *reading]
        slots = [NativeSlot(int(MemoryRegion.INPUT), number, 0) for number in range(len(every))]
        segment = make_segment(steps * repeats, (), slots, self._scratch, 0)
        engine.runtime.reserve(engine.pool, self._scratch)
        times = time_steps(engine, segment.plan, every)
        return int(times[len(steps) - 1 :: len(steps)].min())

    def _work(self, symbol: str, rounds: int, size: int, threads: int) -> int:
        counts = np.array([rounds, size // threads], np.int64)
        results = np.zeros(32 * max(threads, 1), np.float32)
        return self._time(symbol, (counts, self._memory, results), threads, 1, gang=threads > 1)

    def rate(self, symbol: str, amount: float, size: int = _SMALL) -> float:
        """How much one thread does in a nanosecond, if a round is so much."""
        rounds, spent = 1, self._work(symbol, 1, size, 1)
        while spent < _TRY_NS:
            rounds = min(_MOST_ROUNDS, max(2 * rounds, rounds * _TRY_NS // max(spent, 1)))
            spent = self._work(symbol, rounds, size, 1)
        best = min(self._work(symbol, rounds, size, 1) for _ in range(_TRIES))
        return rounds * amount / best

    def all_threads(self, symbol: str, amount: float, one: float, size: int = _SMALL) -> float:
        """How much all threads do in a nanosecond, if one alone does `one`: at least as much.
        `size` is for each thread. A try counts that found a core for every thread.
        """
        if self.threads < 2:
            return one
        rounds = max(1, int(_ALL_THREADS_NS * one / amount))
        best = min(
            self._work(symbol, rounds, size * self.threads, self.threads) for _ in range(3 * _TRIES)
        )
        return max(one, rounds * amount * self.threads / best)

    def both(self, symbol: str, amount: float) -> Rate:
        one = self.rate(symbol, amount)
        return Rate(one, self.all_threads(symbol, amount, one))

    # ---- what is measured ----

    def peaks(self) -> dict[ArithmeticUnit, Rate]:
        tile = self._tile.rows * self._tile.vectors * self._tile.lanes
        found = {
            ArithmeticUnit.F32: self.both("wc_f32", 2 * tile),
            ArithmeticUnit.INT8: self.both("wc_int8", 8 * tile),
        }
        if self._target.has(Feature.AMX_TILE, Feature.AMX_BF16):
            found[ArithmeticUnit.BF16] = self.both("wc_bf16", 4 * 2 * 16 * 16 * 32)
        return found

    def bandwidth(self, size: int) -> Rate:
        """Of memory of this size; a core's own caches for each core."""
        each = size if size <= self._target.l2 else size // self.threads // _PAGE * _PAGE
        found = []
        for symbol in ("wc_read", "wc_copy"):
            one = self.rate(symbol, size, size)
            found.append(Rate(one, self.all_threads(symbol, each, one, each)))
        return Rate(max(rate.one for rate in found), max(rate.all for rate in found))

    def operators(
        self, bandwidth: Sequence[Rate], peak: float
    ) -> tuple[dict[str, float], tuple[MemoryLevel, ...], tuple[float, float]]:
        """What operators cost by element, what bytes cost by level and how much of it hides, and
        what fused transposes cost.
        """
        times = {probe.name: math.inf for probe in self._elements}
        # Several times over: what disturbs one probe for a while should not decide what it costs.
        for _ in range(_ROUNDS):
            for probe in self._elements:
                times[probe.name] = min(times[probe.name], *self._times([probe])[0])
        # What the simplest one takes is the traffic; what another takes more is its arithmetic.
        element_ps = {
            probe.name: 1000 * max(0.0, times[probe.name] - times[SIMPLE]) / probe.elements
            for probe in self._elements
        }
        # A multiply-add is two operations of the peak rate, and one instruction.
        element_ps[SIMPLE] = 2000 / peak
        names = ("L1", "L2", "L3", "memory")
        capacity = (self._target.l1d, self._target.l2, self._target.l3, 0)
        levels = []
        for name, size, rate, pair in zip(names, capacity, bandwidth, self._sums, strict=True):
            moving, both = map(statistics.median, self._times(pair))
            computing = element_ps["Erf"] * pair[0].elements / 1000
            hidden = (moving + computing - both) / min(moving, computing)
            levels.append(
                MemoryLevel(
                    name, size, rate, 1000 * moving / pair[0].bytes, min(1.0, max(0.0, hidden))
                )
            )
        near = self._transpose_ps(self._near_transposes, levels[2], _PLACES)
        far = self._transpose_ps(self._far_transposes, levels[3], 1)
        return element_ps, tuple(levels), (near, far)

    def _transpose_ps(
        self, pairs: Sequence[Sequence[Probe]], level: MemoryLevel, places: int
    ) -> float:
        """The usual one, of matrices that are in no core's own caches, as after another kernel's
        work. What hides behind the traffic is part of it.
        """
        found = []
        for pair in pairs:
            # All at once, so that no two lie at the same place.
            for operands in [self._operands(pair[0]) for _ in range(places)]:
                times = self._times(pair, others=2 * self._target.l2, operands=operands)
                straight, transposed = map(statistics.median, times)
                ps = 1000 * (transposed - (1.0 - level.overlap) * straight) / pair[0].elements
                found.append(max(0.0, ps))
        return statistics.median(found)

    def epilogues(self, element_ps: Mapping[str, float]) -> dict[str, float]:
        """What `MachineRates.epilogue` has."""
        found = {}
        for name, (alone, *others) in self._epilogues.items():
            turns = [self._times([alone, *others]) for _ in range(_ROUNDS)]
            base, *times = (min(min(each) for each in every) for every in zip(*turns, strict=True))
            for function, spent in zip(EPILOGUES, times, strict=True):
                ps = 1000 * (spent - base) / alone.elements
                found[f"{name} {function}"] = max(_LEAST_FACTOR, ps / element_ps[function])
        return found

    def reached(self, peak: float) -> float:
        """What the better of a product and a convolution reaches of the peak rate."""
        rates = [
            flops / min(min(self._times([self._epilogues[name][0]])[0]) for _ in range(_ROUNDS))
            for name, flops in ANCHOR_FLOPS.items()
            if name in self._epilogues
        ]
        return min(1.0, max(rates, default=REACHED * peak) / peak)

    def _operands(self, probe: Probe) -> list[np.ndarray]:
        return [_aligned(array) for array in operands_of(probe, self._rng)]

    def _times(
        self,
        probes: Sequence[Probe],
        others: int = 0,
        operands: Sequence[np.ndarray] | None = None,
    ) -> list[list[float]]:
        """Of each, the times of tries in turns: each the shortest of a few in a row, before each of
        which so many other bytes are read.
        """
        operands = operands or self._operands(probes[0])
        clock = self._clock_ns

        def ns(probe: Probe, repeats: int) -> float:
            symbol, tasks = self._symbols[probe.name], probe.kernel.tasks
            spent = self._time(symbol, operands, tasks, repeats, gang=False, others=others)
            return max(1.0, spent - clock)

        longest = max(ns(probe, 2) for probe in probes)
        repeats = int(max(2, min(_REPEATS, _TRY_NS // longest)))
        tries = int(max(3, min(_TRIES, _PROBE_NS // (longest * repeats))))
        turns = [[ns(probe, repeats) for probe in probes] for _ in range(tries)]
        return [list(each) for each in zip(*turns, strict=True)]

    @property
    def _clock_ns(self) -> int:
        """What an empty step takes: a call, and reading the clock."""
        return self._time("wc_nothing", (np.zeros(1, np.int64),), 1, 64, gang=False)

    def _run_ns(self, tasks: int, grain: int, steps: int) -> int:
        """Nanoseconds of a run of steps that do nothing, without a profiler."""
        engine = self._engines[-1]
        step = NativeStep(self._library.address("wc_nothing"), tasks, grain, 0, 0)
        segment = make_segment([step] * steps, (), [], 0, 0)
        pointers = native.address_array(0)
        memory = native.NativeMemory(pointers=ctypes.addressof(pointers))
        began = engine.runtime.now()
        engine.runtime.run(segment.plan, 0, engine.pool, memory, None)
        return engine.runtime.now() - began

    def dispatch_ns(self) -> float:
        return min(self._run_ns(1, 1, _STEPS) for _ in range(_TRIES)) / _STEPS

    def barrier_ns(self) -> float:
        """The usual one of the quicker quarter: others may hold a core."""
        if self.threads < 2:
            return 0.0
        found = sorted(self._run_ns(self.threads, GANG, 8) for _ in range(100))
        return max(0.0, found[len(found) // 8] / 8 - self.dispatch_ns())

    def wake_ns(self) -> float:
        """The usual one, as what comes before decides how deeply a core sleeps."""
        if self.threads < 2:
            return 0.0
        found = []
        for _ in range(_WAKES):
            time.sleep(_IDLE_S)
            found.append(self._run_ns(self.threads, GANG, 1))
        return float(sorted(found)[_WAKES // 4])


def _level_sizes(l1d: int, l2: int, l3: int) -> tuple[int, ...]:
    """Bytes to measure each level with."""
    third = max(2 * l2, math.isqrt(l2 * l3))
    memory = max(min(_BEYOND * l3, _MOST_BYTES), min(2 * l3, 2 * _MOST_BYTES))
    sizes = (l1d // 2, l2 // 2, min(third, _MOST_BYTES // 2), memory)
    return tuple(size // _PAGE * _PAGE for size in sizes)


def _source(tile: Tile) -> SourceUnit:
    text = (resources.files("whence.calibration") / "native" / "calibrate.c").read_text("utf-8")
    shape = (
        f"#define LANES {tile.lanes}\n#define ROWS {tile.rows}\n#define COLUMNS {tile.vectors}\n"
        f"typedef w_i32x{tile.lanes} dots;\n#define DOT w_dot_x{tile.lanes}\n"
    )
    return SourceUnit("calibrate", PRELUDE + VECTORS + shape + text)


def _aligned(array: np.ndarray) -> np.ndarray:
    block = aligned_bytes(array.nbytes).view(array.dtype)[: array.size]
    block[...] = array
    return block

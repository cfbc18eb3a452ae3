"""Kernels that compute the same in different ways, timed against each other as they would run in a
model.

In a model a kernel finds its input near, because another kernel has just written it, and its
weights far, because all other weights were read since its own were. So before each turn every
worker's second-level cache is filled with something else, and then the input is touched; and from
turn to turn the weights move on through as much memory as the whole model's take.

The kernels take turns, so that whatever else the machine does meets all of them; one that is
clearly behind is taken out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from whence.backends.cpu.generator import grain, work_rates
from whence.backends.cpu.step_timing import ordinary_numbers, time_steps
from whence.building.aligned_memory import aligned, aligned_bytes
from whence.building.backend import Progress
from whence.building.location import MemoryRegion
from whence.building.native_code import Library, NativeSlot, NativeStep
from whence.building.program import Segment, make_segment
from whence.codegen.emit import emit
from whence.codegen.toolchain import SourceUnit
from whence.graph import Node, Ref
from whence.kernels.ir import Buffer, Kernel, Role

if TYPE_CHECKING:
    from whence.backends.cpu.backend import CpuBackend

_PIECE = 1 << 14
_TOUCH = SourceUnit(
    "touch",
    f"""#include <stdint.h>
void whence_read(void *const *buf, int64_t begin, int64_t end, void *scratch) {{
  const volatile char *at = buf[0];
  for (int64_t i = begin * {_PIECE}; i < end * {_PIECE}; i += 64) (void)at[i];
}}
void whence_write(void *const *buf, int64_t begin, int64_t end, void *scratch) {{
  volatile char *at = buf[0];
  for (int64_t i = begin * {_PIECE}; i < end * {_PIECE}; i += 64) at[i] = at[i];
}}
""",
)

# Memory enough to be beyond any cache that a model would find its weights in.
_MOST_FAR = 1 << 28
# After so many turns, and then so many more, whoever is behind the best by more than the factor is
# out.
_BEHIND = ((4, 1.6), (4, 1.15))
# The rest, at most so many, begin anew: they were picked for being quick, or lucky. So many turns,
# then more until the time is up.
_FINALISTS = 4
_LEAST_TURNS, _MOST_TURNS, _BUDGET_NS = 12, 80, 400_000_000
# The time of a kernel is the one that this share of its turns stayed below: the shortest may be
# luck, the usual one is disturbed.
_QUANTILE = 0.1

NEVER = int(np.iinfo(np.int64).max)
"""The time of a kernel that cannot run."""


_Turns = defaultdict[str, list[int]]
"""The times of each kernel so far."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel to time against others that compute the same."""

    kernel: Kernel
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    constants: tuple[Node | None, ...]
    """For each input, the node if it is a constant."""

    @property
    def weight_bytes(self) -> int:
        """Of its packed constants."""
        return sum(
            aligned(_nbytes(self.kernel.params[position])) for position in self.kernel.packings
        )


def time_candidates(
    engine: CpuBackend,
    trials: Sequence[Sequence[Candidate]],
    model_bytes: int,
    progress: Progress | None = None,
) -> Iterator[list[int]]:
    """For each trial, the time of each of its kernels in nanoseconds. All are compiled before the
    first is timed.

    `model_bytes` is what the constants of the whole model take. A kernel that cannot be compiled
    takes for ever.
    """
    candidates = [candidate for trial in trials for candidate in trial]
    emitted = emit(
        [candidate.kernel for candidate in candidates], [["a candidate"] for _ in candidates]
    )
    shown = (
        None
        if progress is None
        else lambda _, done, total: progress("compiling candidates", done, total)
    )
    library = Library(engine.toolchain.build_library([_TOUCH, *emitted.units], progress=shown))
    engine.runtime.reserve(
        engine.pool, max((candidate.kernel.scratch_bytes for candidate in candidates), default=0)
    )
    symbols = iter(emitted.symbols)
    far = _ColdMemory(
        max([min(model_bytes, _MOST_FAR), *(candidate.weight_bytes for candidate in candidates)])
    )
    for done, trial in enumerate(trials):
        yield _Trial(engine, library, far).run(trial, [next(symbols) for _ in trial])
        if progress is not None:
            progress("timing candidates", done + 1, len(trials))


class _Trial:
    """Racers that compute the same from the same operands."""

    def __init__(self, engine: CpuBackend, library: Library, far: _ColdMemory) -> None:
        self._engine, self._library, self._far = engine, library, far
        self._rates = work_rates(engine.toolchain)
        self._rng = np.random.default_rng(0)
        # A model that is smaller than the cache does not empty it.
        self._other = _pieces(min(2 * engine.toolchain.target.l2, far.size) * engine.threads)
        self._operands: dict[tuple[bool, Ref], np.ndarray] = {}

    def run(self, trial: Sequence[Candidate], symbols: Sequence[str]) -> list[int]:
        # Choices that come to the same code are one candidate.
        candidates = {
            symbol: candidate for candidate, symbol in zip(trial, symbols, strict=True) if symbol
        }
        ready = {symbol: self._ready(candidate, symbol) for symbol, candidate in candidates.items()}
        if not ready:
            return [NEVER] * len(trial)
        for each in ready.values():
            self._time(each)
        # What the cost model takes stays to the end: the gain is counted from it.
        first, running = symbols[0], list(ready)
        qualifying: _Turns = defaultdict(list)
        final: _Turns = defaultdict(list)
        for count, factor in _BEHIND:
            self._turns(ready, running, qualifying, count)
            best = min(map(min, qualifying.values()))
            running = [
                symbol
                for symbol in running
                if symbol == first or min(qualifying[symbol]) <= factor * best
            ]
        running.sort(key=lambda symbol: (symbol != first, min(qualifying[symbol])))
        running, began = running[: _FINALISTS + 1], self._engine.runtime.now()
        self._turns(ready, running, final, _LEAST_TURNS)
        while (
            self._engine.runtime.now() - began < _BUDGET_NS and len(final[running[0]]) < _MOST_TURNS
        ):
            self._turns(ready, running, final, 1)
        times = {
            symbol: max(1, int(np.quantile(turns, _QUANTILE))) for symbol, turns in final.items()
        }
        # Whoever is not in the final is behind those who are.
        slowest = max(times.values())
        return [
            times.get(symbol) or max(slowest, min(qualifying[symbol])) if symbol else NEVER
            for symbol in symbols
        ]

    def _turns(
        self, ready: Mapping[str, _Ready], running: Sequence[str], turns: _Turns, count: int
    ) -> None:
        for _ in range(count):
            for number in self._rng.permutation(len(running)):
                turns[running[number]].append(self._time(ready[running[number]]))

    def _time(self, ready: _Ready) -> int:
        weights = self._far.next(ready.weight_bytes)
        return int(time_steps(self._engine, ready.segment.plan, ready.arrays, weights)[-1])

    def _ready(self, candidate: Candidate, symbol: str) -> _Ready:
        kernel = candidate.kernel
        arrays: list[np.ndarray] = []
        slots: list[NativeSlot] = []
        near: list[np.ndarray] = []
        offset = 0
        for position, buffer in enumerate(kernel.params):
            if position in kernel.packings:
                slots.append(NativeSlot(int(MemoryRegion.WEIGHTS), 0, offset))
                offset += aligned(_nbytes(buffer))
                continue
            array = self._operand(candidate, position)
            slots.append(NativeSlot(int(MemoryRegion.INPUT), len(arrays), 0))
            arrays.append(array)
            near += [array] if buffer.role is Role.INPUT else []
        steps = []
        for array, function in (
            (self._other, "whence_read"),
            *((array, "whence_write") for array in near),
        ):
            steps.append(
                NativeStep(
                    self._library.address(function), array.nbytes // _PIECE, 1, len(slots), 1
                )
            )
            slots.append(NativeSlot(int(MemoryRegion.INPUT), len(arrays), 0))
            arrays.append(array)
        steps.append(
            NativeStep(
                self._library.address(symbol),
                kernel.tasks,
                grain(kernel, self._rates),
                0,
                len(kernel.params),
            )
        )
        segment = make_segment(steps, (), slots, kernel.scratch_bytes, 0)
        return _Ready(segment, arrays, offset)

    def _operand(self, candidate: Candidate, position: int) -> np.ndarray:
        """One that all candidates share. Packed weights are none: those may be any numbers, and
        packing them takes longer than timing.
        """
        is_output = position >= len(candidate.inputs)
        key = is_output, (*candidate.inputs, *candidate.outputs)[position]
        if key not in self._operands:
            node = None if is_output else candidate.constants[position]
            self._operands[key] = _filled(
                ordinary_numbers(candidate.kernel.params[position], self._rng)
                if node is None or node.value is None
                else node.value
            )
        return self._operands[key]


@dataclass(frozen=True, slots=True)
class _Ready:
    """A kernel with its operands, and what is touched before it."""

    segment: Segment
    arrays: Sequence[np.ndarray]
    weight_bytes: int


class _ColdMemory:
    """As much memory as a model's constants take, through which weights move on from turn to
    turn.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._block = aligned_bytes(max(size, 1))
        # Any numbers will do, as long as they are ordinary ones.
        numbers = np.random.default_rng(0).standard_normal(1 << 16, np.float32).view(np.uint8)
        for start in range(0, size, numbers.size):
            self._block[start : start + numbers.size] = numbers[: size - start]
        self._at = 0

    def next(self, size: int) -> int:
        """Where weights of this size lie now."""
        if self._at + size > self.size:
            self._at = 0
        at = self._at
        self._at += size
        return int(self._block.ctypes.data) + at


def _nbytes(buffer: Buffer) -> int:
    return buffer.elements * buffer.dtype.numpy.itemsize


def _pieces(size: int) -> np.ndarray:
    """Memory, in whole pieces."""
    return aligned_bytes(max(1, -(-size // _PIECE)) * _PIECE)


def _filled(array: np.ndarray) -> np.ndarray:
    block = _pieces(array.nbytes)
    block[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return block

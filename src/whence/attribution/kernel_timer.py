"""Kernels timed by themselves, on random data, in turns."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whence.attribution.variants import Variant
from whence.codegen.emit import emit
from whence.codegen.toolchain import Progress
from whence.graph import Ref
from whence.runtime import native_library as native
from whence.runtime.build import grain
from whence.runtime.engine import CpuEngine
from whence.runtime.kernel_trial import ordinary_numbers, time_steps
from whence.runtime.places import Region
from whence.runtime.weights import aligned_bytes

# A kernel runs often enough in a row to be in the state that its own data leaves the caches in, and in turns often enough to meet a quiet moment.
_ROW_NS, _LEAST_ROW, _LONGEST_ROW = 200_000, 2, 16
_TURNS_NS, _LEAST_TURNS, _MOST_TURNS = 200_000_000, 10, 300
_PLACEMENTS = 5


@dataclass(frozen=True, slots=True)
class _Ready:
    """A kernel with its operands."""

    plan: native.Plan
    inputs: ctypes.Array[ctypes.c_void_p]
    outputs: ctypes.Array[ctypes.c_void_p]
    pointers: ctypes.Array[ctypes.c_void_p]
    keep: tuple[object, ...]


class KernelTimer:
    """Compiles all variants at once; `shortest` then times some of them against each other."""

    def __init__(self, engine: CpuEngine, variants: Sequence[Variant], progress: Progress | None = None) -> None:
        self._engine, self._variants = engine, variants
        emitted = emit([each.kernel for each in variants], [["left out"] for _ in variants])
        self._symbols = emitted.symbols
        self._library = native.Library(engine.toolchain.build_library(emitted.units, progress=progress)) if emitted.units else None
        engine.runtime.reserve(engine.pool, max((each.kernel.scratch_bytes for each in variants), default=0))

    def is_compiled(self, number: int) -> bool:
        return bool(self._symbols[number])

    def shortest(self, numbers: Sequence[int]) -> list[int]:
        """The shortest time in nanoseconds of each of these variants, which take turns.

        Where operands happen to lie decides how they meet in the caches, so they are put elsewhere a few times, and the middle one counts.
        """
        rng = np.random.default_rng(0)
        ready = self._placed(numbers, rng, _LEAST_ROW)
        first = max(self._run(each) for each in ready)
        row = min(_LONGEST_ROW, max(_LEAST_ROW, _ROW_NS // max(1, first)))
        turns = min(_MOST_TURNS, max(_LEAST_TURNS, _TURNS_NS // max(1, first * row))) // _PLACEMENTS + 1
        found = []
        for _ in range(_PLACEMENTS):
            ready = self._placed(numbers, rng, row)
            best = [self._run(each) for each in ready]
            for _ in range(turns):
                best = [min(so_far, self._run(each)) for so_far, each in zip(best, ready, strict=True)]
            found.append(best)
        return [int(statistics.median(times)) for times in zip(*found, strict=True)]

    def _placed(self, numbers: Sequence[int], rng: np.random.Generator, row: int) -> list[_Ready]:
        shared: dict[tuple[bool, Ref], np.ndarray] = {}
        return [self._ready(number, shared, rng, row) for number in numbers]

    def _run(self, ready: _Ready) -> int:
        lengths = time_steps(self._engine, ready.plan, 0, ready.inputs, ready.outputs, ready.pointers)
        # The first of a row finds the caches as another kernel left them.
        return int(lengths[1:].min() if len(lengths) > 1 else lengths.min())

    def _ready(self, number: int, shared: dict[tuple[bool, Ref], np.ndarray], rng: np.random.Generator, row: int) -> _Ready:
        assert self._library is not None
        variant = self._variants[number]
        kernel = variant.kernel
        arrays = []
        for position, (ref, buffer) in enumerate(zip((*variant.inputs, *variant.outputs), kernel.params, strict=True)):
            is_output, packing = position >= len(variant.inputs), kernel.packings.get(position)
            if ref in variant.consts and not is_output:
                value = np.ascontiguousarray(variant.consts[ref] if packing is None else packing(variant.consts[ref]))
                arrays.append(_aligned(value))
                continue
            known = shared.get((is_output, ref))
            if known is None or known.size < buffer.elements:
                known = shared[is_output, ref] = _aligned(ordinary_numbers(buffer, rng))
            arrays.append(known)
        count = len(variant.inputs)
        regions = [(Region.INPUT, index) for index in range(count)] + [(Region.OUTPUT, index) for index in range(len(variant.outputs))]
        slots = (native.Slot * max(1, len(regions)))(*(native.Slot(int(region), index, 0) for region, index in regions))
        address = self._library.address(self._symbols[number])
        steps = (native.Step * row)(*(native.Step(address, kernel.tasks, grain(kernel), 0, len(regions)) for _ in range(row)))
        plan = native.Plan(steps, slots, row, len(regions), kernel.scratch_bytes, 0)
        pointers = (ctypes.c_void_p * max(1, len(regions)))()
        return _Ready(plan, _addresses(arrays[:count]), _addresses(arrays[count:]), pointers, (steps, slots, *arrays))


def _addresses(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(array.ctypes.data for array in arrays))


def _aligned(array: np.ndarray) -> np.ndarray:
    block = aligned_bytes(array.nbytes).view(array.dtype)
    block[:] = array.reshape(-1)
    return block

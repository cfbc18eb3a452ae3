"""Running kernels to time them, and numbers to run them on: what the tuner and exact attribution
need.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whence.building.native_code import NativePlan
from whence.kernels.ir import Buffer
from whence.runtime import native_library as native
from whence.runtime.profiler import SAMPLE

if TYPE_CHECKING:
    from whence.backends.cpu.backend import CpuBackend


def time_steps(
    engine: CpuBackend, plan: NativePlan, arrays: Sequence[np.ndarray], weights: int = 0
) -> np.ndarray:
    """Run a plan once with these arrays as operands; nanoseconds of each of its steps."""
    operands, pointers = native.address_array(len(arrays)), native.address_array(plan.n_slots)
    operands[: len(arrays)] = [array.ctypes.data for array in arrays]
    count = int(plan.n_steps)
    samples, times = np.zeros(count, SAMPLE), np.zeros(2, np.uint64)
    profiler = native.NativeProfiler(samples.ctypes.data, count, 0, times.ctypes.data, 1, 0)
    memory = native.NativeMemory(
        arena=0,
        weights=weights,
        inputs=ctypes.addressof(operands),
        outputs=ctypes.addressof(operands),
        pointers=ctypes.addressof(pointers),
    )
    engine.runtime.run(plan, 0, engine.pool, memory, ctypes.byref(profiler))
    lengths: np.ndarray = (samples["end"] - samples["begin"]).astype(np.int64)
    return lengths


def ordinary_numbers(buffer: Buffer, rng: np.random.Generator) -> np.ndarray:
    """Numbers that any operator takes: of middling size, and 0 or 1 where they may be indices or
    masks.
    """
    if buffer.dtype.is_float:
        return rng.standard_normal(buffer.elements, np.float32).astype(buffer.dtype.numpy)
    return rng.integers(0, 2, buffer.elements).astype(buffer.dtype.numpy)

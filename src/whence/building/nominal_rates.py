"""What a machine should do by its instruction sets and cache sizes: for one that nobody has
measured.

In cycles, of a core that starts two vector multiply-adds and two vector loads in each, at a clock
that most have. How many vector instructions a function takes is known from the code that is
generated for it; what has no vector code takes so many cycles for each element.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.codegen.target import Feature, Target
from whence.rates import ArithmeticUnit, MachineRates, MemoryLevel, Rate

_GHZ = 3.0
_PER_CYCLE = 2
# Bytes in a cycle, as parts of a vector: two from the nearest cache, one from the next, half of one
# from the last; and from memory so many GB/s for a thread, and for all.
_VECTORS_PER_CYCLE = (2.0, 1.0, 0.5)
_MEMORY_GB = Rate(10.0, 20.0)
# Of a cache's bandwidth, what an elementwise kernel gets, which reads and writes in turns.
_ELEMENTWISE = 0.4
_OVERLAP = 0.75
_DISPATCH_NS, _BARRIER_NS, _WAKE_NS = 20.0, 500.0, 30_000.0
SIMPLE = "Relu"
"""The operator that stands for all that take an instruction or two."""
# Instructions for a vector of results.
VECTOR_CYCLES: Mapping[str, float] = {
    SIMPLE: 0.5,
    "Div": 3.0,
    "Sqrt": 5.0,
    "Exp": 12.0,
    "Log": 17.0,
    "Erf": 17.0,
    "Tanh": 17.0,
    "Sigmoid": 17.0,
    "Softmax": 17.0,
    "LayerNormalization": 3.5,
    "Gelu": 22.0,
    "Softplus": 36.0,
    "Mish": 36.0,
}
# Cycles for an element, of functions without vector code.
SCALAR_CYCLES: Mapping[str, float] = {"Mod": 11.0, "Sin": 15.0, "Pow": 30.0, "Atan": 30.0}
_TRANSPOSE_CYCLES = (2.0, 10.0)


def nominal_rates(target: Target, threads: int = 0) -> MachineRates:
    """For a machine that was not measured, and the same for every machine of its kind."""
    threads = threads or target.cores
    vector_bytes = 4 * target.lanes

    def rate(per_cycle: float) -> Rate:
        return Rate(per_cycle * _GHZ, per_cycle * _GHZ * threads)

    f32 = 2.0 * _PER_CYCLE * target.lanes
    has_dots = target.has(Feature.AVX512_VNNI) or target.has(Feature.AVX_VNNI)
    has_dots = has_dots or target.has(Feature.NEON_DOT)
    peak = {ArithmeticUnit.F32: rate(f32), ArithmeticUnit.INT8: rate(f32 * (4 if has_dots else 2))}
    if target.has(Feature.AMX_BF16):
        # 16 × 16 sums of 32 products in 16 cycles.
        peak[ArithmeticUnit.BF16] = rate(2.0 * 16 * 16 * 32 / 16)
    sizes = (("L1", target.l1d), ("L2", target.l2), ("L3", target.l3))
    levels = [
        MemoryLevel(
            name,
            size,
            rate(part * vector_bytes),
            1000 / (_ELEMENTWISE * part * vector_bytes * _GHZ),
            _OVERLAP,
        )
        for (name, size), part in zip(sizes, _VECTORS_PER_CYCLE, strict=True)
    ]
    memory_ps = max(1000 / _MEMORY_GB.one, levels[-1].byte_ps)
    levels.append(MemoryLevel("memory", 0, _MEMORY_GB, memory_ps, _OVERLAP))
    cycle_ps = 1000 / _GHZ
    return MachineRates(
        measured=False,
        threads=threads,
        clock_ghz=_GHZ,
        peak=peak,
        levels=tuple(levels),
        dispatch_ns=_DISPATCH_NS,
        barrier_ns=_BARRIER_NS,
        wake_ns=_WAKE_NS,
        element_ps={
            **{op: cycles * cycle_ps / target.lanes for op, cycles in VECTOR_CYCLES.items()},
            **{op: cycles * cycle_ps for op, cycles in SCALAR_CYCLES.items()},
        },
        transpose_ps=(_TRANSPOSE_CYCLES[0] * cycle_ps, _TRANSPOSE_CYCLES[1] * cycle_ps),
    )

"""What this machine can do at most, and how close each kernel of a model comes to it.

    python -m benchmarks.roofline                           the machine: multiply-adds, second-level cache, memory
    python -m benchmarks.roofline MODEL... [--threads 2]    and for each model its kernels, the largest gap to their bound first

A kernel's bound is the longer of two times: its arithmetic at the peak rate, and the bytes it must
read and write at the bandwidth of memory. The gap is the time it takes beyond that. Arithmetic is
counted as the operators define it: a kernel that needs fewer products (Winograd's convolution) may
be faster than its bound.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.latency import draw_inputs, find_model
from whence.codegen.target import Target
from whence.codegen.toolchain import SourceUnit, Toolchain

_SOURCE = """
#include <stdint.h>
typedef float vec __attribute__((ext_vector_type({lanes}), aligned(4)));

/* Independent multiply-adds, as many as it takes to hide how long each one takes. */
float peak_fma(int64_t rounds, float x) {{
  vec sum[{chains}];
  for (int i = 0; i < {chains}; i++) sum[i] = (vec)(x + i);
  const vec a = (vec)(x), b = (vec)(1.0f - x);
  for (int64_t r = 0; r < rounds; r++) {{
    #pragma clang loop unroll(full)
    for (int i = 0; i < {chains}; i++) sum[i] = sum[i] * a + b;
    __asm__ volatile("" ::: "memory");
  }}
  vec all = sum[0];
  for (int i = 1; i < {chains}; i++) all += sum[i];
  return all[0];
}}

float read_all(const float *data, int64_t count, int64_t rounds) {{
  vec sum[8];
  for (int i = 0; i < 8; i++) sum[i] = (vec)(0.0f);
  for (int64_t r = 0; r < rounds; r++) {{
    for (int64_t at = 0; at < count; at += 8 * {lanes}) {{
      #pragma clang loop unroll(full)
      for (int i = 0; i < 8; i++) sum[i] += *(const vec *)(data + at + i * {lanes});
    }}
    __asm__ volatile("" ::: "memory");
  }}
  vec all = sum[0];
  for (int i = 1; i < 8; i++) all += sum[i];
  return all[0];
}}
"""
_CHAINS = {16: 24, 8: 12, 4: 24}
_SECONDS = 0.3
_BEYOND_CACHES = 256 << 20


@dataclass(frozen=True)
class Machine:
    """Rates of all threads together."""

    threads: int
    gflops: float
    l2_gbytes: float
    memory_gbytes: float


def _best_rate(work: Callable[[int], object], amount: float, threads: int) -> float:
    """`amount` per nanosecond when so many threads do `work` at the same time: the best of several
    tries.
    """
    best = 0.0
    until = time.perf_counter() + _SECONDS
    while time.perf_counter() < until:
        gate = threading.Barrier(threads)
        times: list[tuple[int, int]] = []

        def one(
            number: int, gate: threading.Barrier = gate, times: list[tuple[int, int]] = times
        ) -> None:
            gate.wait()
            # By the workers' own clocks: whoever waits for them may get no core until they end.
            began = time.perf_counter_ns()
            work(number)
            times.append((began, time.perf_counter_ns()))

        workers = [threading.Thread(target=one, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        spent = max(ended for _, ended in times) - min(began for began, _ in times)
        best = max(best, threads * amount / spent)
    return best


def _library() -> tuple[ctypes.CDLL, Target]:
    """The loops that are timed, made by our own compiler, and what they were made for."""
    toolchain = Toolchain()
    lanes = toolchain.target.lanes
    library = ctypes.CDLL(
        str(
            toolchain.build_library(
                [SourceUnit("roofline", _SOURCE.format(lanes=lanes, chains=_CHAINS[lanes]))]
            )
        )
    )
    library.peak_fma.argtypes = (ctypes.c_int64, ctypes.c_float)
    library.peak_fma.restype = ctypes.c_float
    library.read_all.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    library.read_all.restype = ctypes.c_float
    return library, toolchain.target


def bandwidth(threads: int, size: int = _BEYOND_CACHES, rounds: int = 4) -> float:
    """Gigabytes a second that threads read, each so many bytes of its own, again and again."""
    library, target = _library()
    step = 8 * target.lanes
    count = size // 4 // step * step
    data = [np.ones(count, np.float32) for _ in range(threads)]
    return _best_rate(
        lambda number: library.read_all(data[number].ctypes.data, count, rounds),
        count * 4 * rounds,
        threads,
    )


def measure_machine(threads: int) -> Machine:
    """The peak rates of this machine."""
    library, target = _library()
    lanes, rounds = target.lanes, 2_000_000
    gflops = _best_rate(
        lambda _: library.peak_fma(rounds, 0.5), rounds * _CHAINS[lanes] * lanes * 2, threads
    )
    return Machine(threads, gflops, bandwidth(threads, target.l2 // 2, 2000), bandwidth(threads))


@dataclass(frozen=True)
class KernelGap:
    name: str
    operators: str
    us: float
    bound_us: float
    limit: str
    gflops: float


def kernel_gaps(path: Path, machine: Machine, runs: int) -> list[KernelGap]:
    """Each kernel of a model beside its bound, the largest gap first."""
    import whence

    inputs = draw_inputs(path)
    profile = whence.profile(path, inputs, threads=machine.threads, runs=runs)
    assert profile.background is not None
    steps = {step.number: step for step in profile.background.program.steps}
    names = {source.id: source.name for source in profile.sources}
    gaps = []
    for row in profile.kernels:
        members = steps[row.id].members
        flops, moved = (
            sum(member.flops for member in members),
            sum(member.bytes for member in members),
        )
        compute, memory = flops / machine.gflops / 1e3, moved / machine.memory_gbytes / 1e3
        spent = row.time_ns / profile.runs / 1e3
        shown = ", ".join(names[part.id] for part in row.origin)
        gaps.append(
            KernelGap(
                row.name,
                shown,
                spent,
                max(compute, memory),
                "compute" if compute >= memory else "memory",
                flops / max(spent, 1e-9) / 1e3,
            )
        )
    return sorted(gaps, key=lambda gap: gap.bound_us - gap.us)


def print_gaps(name: str, gaps: list[KernelGap], top: int) -> None:
    whole, bound = sum(gap.us for gap in gaps), sum(gap.bound_us for gap in gaps)
    print(
        f"\n{name}: kernels {whole / 1e3:.3f} ms, bound {bound / 1e3:.3f} ms"
        f" ({bound / max(whole, 1e-9):.0%})"
    )
    print(f"  {'gap':>9} {'time':>9} {'bound':>9}  {'limit':7} {'GFLOP/s':>7}  kernel")
    for gap in gaps[:top]:
        times = f"{gap.us - gap.bound_us:7.1f}us {gap.us:7.1f}us {gap.bound_us:7.1f}us"
        print(
            f"  {times}  {gap.limit:7} {gap.gflops:7.1f}  {gap.name[:24]:24} {gap.operators[:60]}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help="files, or names from the zoo")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--top", type=int, default=15, help="kernels to show for each model")
    parser.add_argument("--json", type=Path, help="write everything there")
    options = parser.parse_args()
    machine = measure_machine(options.threads)
    rates = (
        f"{machine.gflops:.0f} GFLOP/s, second-level cache {machine.l2_gbytes:.0f} GB/s, memory"
        f" {machine.memory_gbytes:.0f} GB/s"
    )
    print(f"{machine.threads} thread(s): {rates}")
    found = {}
    for model in options.models:
        path = find_model(model)
        gaps = kernel_gaps(path, machine, options.runs)
        print_gaps(path.stem, gaps, options.top)
        found[path.stem] = [asdict(gap) for gap in gaps]
    if options.json:
        options.json.write_text(
            json.dumps({"machine": asdict(machine), "models": found}, indent=1) + "\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()

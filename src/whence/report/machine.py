"""How fast a machine is, in words."""

from __future__ import annotations

from whence.rates import MachineRates, Rate


def in_lines(rates: MachineRates) -> dict[str, str]:
    """A line for each kind of fact, by its name."""
    threads = f"1 / {rates.threads} threads" if rates.threads > 1 else "1 thread"
    peaks = [f"{unit} {_rate(rate, rates)}" for unit, rate in rates.peak.items()]
    levels = [f"{level.name} {_rate(level.bandwidth, rates)}" for level in rates.levels]
    costs = [
        f"step {rates.dispatch_ns:.0f} ns",
        *(
            [f"all threads {rates.barrier_ns:.0f} ns", f"waking them {rates.wake_ns / 1e3:.0f} µs"]
            if rates.threads > 1
            else []
        ),
    ]
    return {
        "  clock": f"{rates.clock_ghz:.2f} GHz",
        f"  GFLOP/s ({threads})": ", ".join(peaks),
        f"  GB/s ({threads})": ", ".join(levels),
        "  dispatch": ", ".join(costs),
    }


def _rate(rate: Rate, rates: MachineRates) -> str:
    return f"{rate.one:.0f} / {rate.all:.0f}" if rates.threads > 1 else f"{rate.one:.0f}"

"""Operators that no native kernel runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from whence.attribution.findings.finding import Finding, Kernels, sources_of

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.attribution.rows import KernelRow

# What a native kernel would take, in times of its traffic: it seldom is at the limit.
_NATIVE = 3.0


def reference_operators(profile: Profile) -> Iterator[Finding]:
    """By type of operator: all of one type have the same reason."""
    if profile.engine != "cpu":
        return
    found: dict[tuple[str, str], list[KernelRow]] = defaultdict(list)
    for kernel in profile.kernels:
        if not kernel.native and kernel.origin:
            found[", ".join(kernel.ops), kernel.why_reference].append(kernel)
    for (ops, why), kernels in found.items():
        them = Kernels(profile, kernels)
        prize = them.ns - _NATIVE * sum(_traffic_ns(profile, kernel) for kernel in kernels)
        if not them.are_worth(prize):
            continue
        sources = sources_of(kernels)
        types = {row.id: row.op for row in profile.sources}
        named = types.get(sources[0], ops) if sources else ops
        yield them.finding(
            "reference_operators",
            f"{named} runs in reference: {them.share} of the time",
            "Replace it by operators that have kernels, or move it out of the model; `whence passes`"
            " shows what became of the graph around it.",
            prize,
            (
                f"why: {why or 'it has no native kernel'}",
                f"{len(kernels)} of {len(profile.kernels)} steps",
            ),
        )


def _traffic_ns(profile: Profile, kernel: KernelRow) -> float:
    if profile.rates is None:
        return 0.0
    level = profile.rates.level(kernel.bytes)
    return kernel.bytes / profile.rates.bandwidth_of(level, 1)

"""Convolutions and products far below the machine's peak rate, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from whence.attribution.findings.finding import Finding, Kernels, named, names, per_run, sources_of

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.attribution.rows import KernelRow

_LOW = 0.4


def low_share_of_peak(profile: Profile) -> Iterator[Finding]:
    """The prize is what it would save to be as good as the good ones of the same model, or as those
    that the machine was measured with. How good a kernel is its best call says: what disturbs a
    call is no fault of the kernel, but the less there is to do, the less is disturbed, so the prize
    is a part of its usual time. Those whose shapes are slow for the same reason are one finding.
    """
    if profile.rates is None:
        return
    contractions = [row for row in profile.kernels if row.bound == "compute" and row.is_contraction]
    good = _good(contractions, profile.rates.reached)
    found: dict[str, list[KernelRow]] = defaultdict(list)
    for kernel in contractions:
        if kernel.best_of_peak < _LOW:
            found[kernel.trait_kind].append(kernel)
    for kernels in found.values():
        them = Kernels(profile, sorted(kernels, key=lambda row: -_prize(profile, row, good)))
        prize = sum(_prize(profile, kernel, good) for kernel in them.rows)
        if them.are_worth(prize):
            yield _finding(them, prize, good)


def _finding(them: Kernels, prize: float, good: float) -> Finding:
    profile, kernels, first = them.profile, them.rows, them.rows[0]
    shares = sorted(100 * kernel.best_of_peak for kernel in kernels)
    reached = " to ".join(dict.fromkeys(f"{share:.0f}" for share in (shares[0], shares[-1])))
    who = (
        named(profile, first)
        if len(kernels) == 1
        else f"{len(kernels)} kernels ({names(profile, _heaviest(kernels))})"
    )
    verb = "reaches" if len(kernels) == 1 else "reach"
    traits = {kernel.trait for kernel in kernels}
    trait = first.trait if len(traits) == 1 else _TRAITS[first.trait_kind]
    why = f": {trait}" if trait else ""
    return them.finding(
        "low_share_of_peak",
        f"{who} {verb} {reached} % of peak{why}; {them.share} of the time",
        _ADVICE.get(first.trait_kind, "`whence compile --tune` times other ways to compute them."),
        prize,
        (
            *(
                f"kernel {kernel.id}: {kernel.gflops:.1f} GFLOP/s, {kernel.gbytes:.1f} GB/s"
                for kernel in kernels[:3]
            ),
            f"good kernels reach {100 * good:.0f} %",
        ),
    )


def _heaviest(kernels: Sequence[KernelRow]) -> list[int]:
    """The operator with most time in each kernel."""
    return [source for kernel in kernels for source in sources_of([kernel])[:1]]


def _prize(profile: Profile, kernel: KernelRow, good: float) -> float:
    saved = 1 - kernel.best_of_peak / (good * kernel.reach)
    return per_run(profile, kernel) * max(0.0, saved)


def _good(kernels: list[KernelRow], reached: float) -> float:
    """What the better quarter of the work reaches, at least what the machine is known to reach."""
    by_share = sorted(kernels, key=lambda row: -row.best_of_peak)
    whole, seen = sum(row.flops * row.calls for row in kernels), 0
    for row in by_share:
        seen += row.flops * row.calls
        if 4 * seen >= whole:
            return min(1.0, max(reached, row.best_of_peak))
    return reached


# What kernels have in common whose shapes are slow for one reason, each in its own degree.
_TRAITS = {
    "channels": "few channels",
    "depthwise": "depthwise convolutions",
    "rows": "products with few rows",
    "small": "few operations",
}
_ADVICE = {
    "channels": "Few channels leave vector lanes empty: fold space into depth, or use a larger"
    " stride with more channels.",
    "depthwise": "A depthwise convolution does few operations for what it reads; fuse it with its"
    " neighbours, or use a dense one with fewer channels.",
    "rows": "A product with few rows reads its weights for little work: larger batches use them"
    " again; int8 weights are a quarter of the bytes.",
    "small": "It is too small to be quick: larger batches make it larger.",
}

"""Elementwise kernels that read from memory what another has just written: one kernel would not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from whence.attribution.findings.finding import (
    Finding,
    is_worth,
    names,
    per_run,
    percent,
    sources_of,
)

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.attribution.rows import KernelRow


def elementwise_chains(profile: Profile) -> Iterator[Finding]:
    """Kernels that follow each other, all of them bound by memory or cache. Fused, they would read
    the first one's operands and write the last one's result.
    """
    rows = {kernel.id: kernel for kernel in profile.kernels}
    light = {kernel.id for kernel in profile.kernels if _is_light(kernel)}
    follows = {number: [each for each in rows[number].reads if each in light] for number in light}
    taken: set[int] = set()
    for number in sorted(light, reverse=True):
        chain = [number]
        while follows[chain[-1]] and chain[-1] not in taken:
            chain.append(max(follows[chain[-1]], key=lambda each: rows[each].bytes))
        if len(chain) < 2 or taken & set(chain):
            continue
        taken |= set(chain)
        kernels = [rows[each] for each in reversed(chain)]
        spent = sum(per_run(profile, kernel) for kernel in kernels)
        # What one writes and the next reads would not be moved at all.
        between = sum(2 * kernel.made_bytes * kernel.calls for kernel in kernels[:-1])
        moved = sum(kernel.bytes * kernel.calls for kernel in kernels)
        prize = spent * min(1.0, between / moved) if moved else 0.0
        if not is_worth(profile, prize):
            continue
        sources = sources_of(kernels)
        yield Finding(
            "elementwise_chains",
            f"{len(kernels)} elementwise kernels in a row are bound by {kernels[-1].bound}:"
            f" {percent(profile, spent)} of the time, {names(profile, sources)}",
            "One kernel would keep what is between them in registers; `whence why` of an operator says"
            " why they were not fused.",
            prize,
            (
                f"{moved / max(1, profile.runs) / 1e6:.1f} MB moved, of which"
                f" {between / max(1, profile.runs) / 1e6:.1f} MB from one to the next",
            ),
            tuple(kernel.id for kernel in kernels),
            sources,
        )


def _is_light(kernel: KernelRow) -> bool:
    return (
        kernel.native
        and not kernel.is_contraction
        and kernel.bound in ("memory", "cache")
        and bool(kernel.origin)
    )

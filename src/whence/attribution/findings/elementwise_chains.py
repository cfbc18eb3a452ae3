"""Elementwise kernels that read from memory what another has just written: one kernel would not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from whence.attribution.efficiency import Bound
from whence.attribution.findings.finding import Finding, Kernels
from whence.graph.connected_components import connected_components

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.attribution.rows import KernelRow


def elementwise_chains(profile: Profile) -> Iterator[Finding]:
    """Kernels that read from each other, all of them bound by memory or cache. As one, they would
    read what the first ones read and write what the last ones make.
    """
    light = {kernel.id: kernel for kernel in profile.kernels if _is_light(kernel)}
    reading = ((number, other) for number in light for other in light[number].reads)
    for chain in connected_components(light, (pair for pair in reading if pair[1] in light)):
        if len(chain) < 2:
            continue
        inside = {number: light[number] for number in chain}
        kernels = list(inside.values())
        them = Kernels(profile, kernels)
        between = sum(_between(profile, kernel, inside) for kernel in kernels)
        moved = sum(kernel.bytes * kernel.calls for kernel in kernels)
        prize = them.ns * min(1.0, between / moved) if moved else 0.0
        if not them.are_worth(prize):
            continue
        yield them.finding(
            "elementwise_chains",
            f"{len(kernels)} elementwise kernels in a row are bound by {kernels[-1].bound}:"
            f" {them.share} of the time, {them.names}",
            "One kernel would keep what is between them in registers; `whence why` of an operator says"
            " why they were not fused.",
            prize,
            (
                f"{moved / max(1, profile.runs) / 1e6:.1f} MB moved, of which"
                f" {between / max(1, profile.runs) / 1e6:.1f} MB from one to the next",
            ),
        )


def _between(profile: Profile, kernel: KernelRow, inside: Mapping[int, KernelRow]) -> int:
    """Bytes of what a kernel makes that would not be moved: every reading by one of the others, and
    the writing where nobody else reads it.
    """
    readers = [each for each in profile.kernels if kernel.id in each.reads]
    among = [each for each in readers if each.id in inside]
    moves = sum(each.calls for each in among)
    if among and len(among) == len(readers):
        moves += kernel.calls
    return moves * kernel.made_bytes


def _is_light(kernel: KernelRow) -> bool:
    """Does it do little but move data? Threads that wait for each other in it move as much: the
    last kernel of a chain writes to pages that the system clears first, some threads' later than
    others'.
    """
    moves = kernel.bound in (Bound.MEMORY, Bound.CACHE) or (
        kernel.bound == Bound.WAITING and kernel.flops <= kernel.bytes
    )
    return kernel.native and not kernel.is_contraction and moves and bool(kernel.origin)

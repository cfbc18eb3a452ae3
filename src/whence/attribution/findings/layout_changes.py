"""Layout changes that passes inserted, and transposes and copies that the file asks for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from whence.attribution.findings.finding import Finding, Kernels, sources_of
from whence.attribution.findings.thread_costs import saved_without
from whence.ops.registry import one_of, operators
from whence.ops.traits import Trait
from whence.plural import counted

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.attribution.rows import KernelRow

_MOVES = operators(Trait.MOVES) | one_of("Concat", "Pad")
_ORDER = (
    "If its input were produced in the order in which it is read, nothing would have to be moved;"
    " for a constant, do it before export."
)
_LAYOUT = (
    "Its kernel wants another layout than that of its input or of its reader; `whence why` of the"
    " operator shows what is around it."
)


def layout_changes(profile: Profile) -> Iterator[Finding]:
    """Those that one pass inserted are one finding; which part of another engine inserts them is
    not known.
    """
    found: dict[str, list[KernelRow]] = defaultdict(list)
    for kernel in profile.kernels:
        if kernel.inserted and kernel.native:
            found[kernel.inserted_by or profile.engine].append(kernel)
    for by, kernels in found.items():
        them, saved = Kernels(profile, kernels), saved_without(profile, kernels)
        if them.are_worth(saved):
            count = counted(len(kernels), "layout change")
            yield them.finding(
                "layout_changes",
                f"{count}: {them.share} of the time, inserted by {by} for {them.names}",
                "They are there because neighbours want different layouts; `whence why` of the"
                " operator shows its neighbours.",
                saved,
                [f"kernel {kernel.id} makes {kernel.shape}" for kernel in kernels[:5]],
            )


def data_movement(profile: Profile) -> Iterator[Finding]:
    """Kernels that only move data: as the file asks for it, or for an operator that computes, in
    another layout. Those of one type of operator are one finding.
    """
    types = {row.id: row.op for row in profile.sources}
    computing = _computing(profile)
    found: dict[tuple[str, bool], list[KernelRow]] = defaultdict(list)
    for kernel in profile.kernels:
        if _only_moves(kernel) and kernel.native and not kernel.inserted and kernel.origin:
            sources = sources_of([kernel])
            op = types.get(sources[0], kernel.ops[0]) if sources else kernel.ops[0]
            found[op, bool(sources) and sources[0] in computing].append(kernel)
    for (op, computes), kernels in found.items():
        them, saved = Kernels(profile, kernels), saved_without(profile, kernels)
        if them.are_worth(saved):
            how = ", ".join(dict.fromkeys(each for kernel in kernels for each in kernel.ops))
            what = f"{how} around {op}" if computes else f"{op} moves data and computes nothing"
            yield them.finding(
                "data_movement",
                f"{what}: {them.share} of the time, {them.names}",
                _LAYOUT if computes else _ORDER,
                saved,
                [
                    f"kernel {kernel.id}: {kernel.bytes / 1e6:.2f} MB at {kernel.gbytes:.1f} GB/s"
                    for kernel in kernels[:5]
                    if kernel.bytes
                ],
            )


def _only_moves(kernel: KernelRow) -> bool:
    return bool(kernel.ops) and set(kernel.ops) <= _MOVES


def _computing(profile: Profile) -> frozenset[int]:
    """The operators that have time in a kernel which does more than to move data."""
    return frozenset(
        source
        for kernel in profile.kernels
        if not _only_moves(kernel) and not kernel.inserted
        for source in sources_of([kernel])
    )

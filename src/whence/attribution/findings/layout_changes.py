"""Layout changes that passes inserted, and transposes and copies that the file asks for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from whence.attribution.findings.finding import (
    Finding,
    is_worth,
    names,
    per_run,
    percent,
    sources_of,
)
from whence.attribution.findings.thread_costs import saved_without
from whence.ops.registry import one_of, operators
from whence.ops.traits import Trait

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.attribution.rows import KernelRow

_MOVES = operators(Trait.MOVES) | one_of("Concat", "Pad")


def layout_changes(profile: Profile) -> Iterator[Finding]:
    """Those that one pass inserted are one finding."""
    found: dict[str, list[KernelRow]] = defaultdict(list)
    for kernel in profile.kernels:
        if kernel.inserted and kernel.native:
            found[kernel.inserted_by or "a pass"].append(kernel)
    for by, kernels in found.items():
        spent, saved = _spent(profile, kernels), saved_without(profile, kernels)
        if is_worth(profile, saved):
            sources = sources_of(kernels)
            count = f"{len(kernels)} layout change{'s' if len(kernels) != 1 else ''}"
            yield Finding(
                "layout_changes",
                f"{count}: {percent(profile, spent)} of the time, inserted by {by} for"
                f" {names(profile, sources)}",
                "They are there because neighbours want different layouts; `whence why` of the"
                " operator shows its neighbours.",
                saved,
                tuple(f"kernel {kernel.id} makes {kernel.shape}" for kernel in kernels[:5]),
                tuple(kernel.id for kernel in kernels),
                sources,
            )


def data_movement(profile: Profile) -> Iterator[Finding]:
    """Kernels that only move data, as the file asks for it: those of one type are one finding."""
    types = {row.id: row.op for row in profile.sources}
    found: dict[str, list[KernelRow]] = defaultdict(list)
    for kernel in profile.kernels:
        moves = bool(kernel.ops) and set(kernel.ops) <= _MOVES
        if moves and kernel.native and not kernel.inserted and kernel.origin:
            sources = sources_of([kernel])
            found[types.get(sources[0], kernel.ops[0]) if sources else kernel.ops[0]].append(kernel)
    for op, kernels in found.items():
        spent, saved = _spent(profile, kernels), saved_without(profile, kernels)
        if is_worth(profile, saved):
            sources = sources_of(kernels)
            yield Finding(
                "data_movement",
                f"{op} moves data and computes nothing: {percent(profile, spent)} of the time,"
                f" {names(profile, sources)}",
                "Write the model so that who makes the data makes it in the order that is read, or"
                " move the operator to constants.",
                saved,
                tuple(
                    f"kernel {kernel.id}: {kernel.bytes / 1e6:.2f} MB at {kernel.gbytes:.1f} GB/s"
                    for kernel in kernels[:5]
                ),
                tuple(kernel.id for kernel in kernels),
                sources,
            )


def _spent(profile: Profile, kernels: Sequence[KernelRow]) -> float:
    return sum(per_run(profile, kernel) for kernel in kernels)

"""A profile as weighted stacks: model, modules, kernel, operator. Flame graphs are drawn from
these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from whence.attribution.profile import Profile, module_of
from whence.attribution.rows import Event, KernelRow, SourceRow
from whence.attribution.split import largest_remainder
from whence.debugdb.csv_text import is_integer


@dataclass(frozen=True, slots=True)
class Stack:
    """Time in one place. A residual has neither kernel nor operator."""

    modules: tuple[str, ...]
    """Outermost first."""
    kernel: KernelRow | None
    source: SourceRow | None
    residual: str
    time_ns: int


def stacks(profile: Profile) -> Iterator[Stack]:
    """All of the wall time: a stack for each operator in each kernel, and one for each residual.
    What took no time is left out.
    """
    rows = {row.id: row for row in profile.sources}
    for kernel in profile.kernels:
        for part in kernel.origin:
            if part.time_ns:
                source = rows[part.id]
                yield Stack(modules(source), kernel, source, "", part.time_ns)
    for name, time in profile.residual_ns.items():
        if time:
            yield Stack((), None, None, name, time)


def parts_of_event(
    event: Event, kernel: KernelRow, rows: Mapping[int, SourceRow]
) -> list[tuple[SourceRow, int]]:
    """The operators that have a part of a kernel's time in one run, with its nanoseconds."""
    parts = kernel.origin
    length = event.end_ns - event.begin_ns if parts else 0
    lengths = largest_remainder(length, [part.time_ns for part in parts])
    shares = zip(parts, lengths, strict=True)
    return [(rows[part.id], length) for part, length in shares if length]


def modules(row: SourceRow) -> tuple[str, ...]:
    """The path of modules down to the operator's."""
    path = module_of(row)
    return () if path.startswith("(") else tuple(part for part in path.split(".") if part)


def location(row: SourceRow) -> tuple[str, int]:
    """File and line of the program the operator was exported from; empty and 0 when the file does
    not say.
    """
    path, _, line = row.line.rpartition(":")
    is_line = bool(path) and line.isdecimal() and is_integer(line)
    return (path, int(line)) if is_line else (row.line, 0)

"""Values of all work items of a group, folded into one that all of them have."""

from __future__ import annotations

from whence.kernels.builder import Builder, Memory
from whence.kernels.ir import Count, Fn, Name, lanewise


def fold(build: Builder, fn: Fn, value: Name, parts: Memory, items: int, item: Count) -> None:
    """`parts` is shared memory for a value of each of `items`, a power of two."""
    build.assign(parts[item], value)
    build.barrier()
    half = items // 2
    while half:
        with build.when(item < half):
            build.assign(parts[item], lanewise(fn, parts[item], parts[item + half]))
        build.barrier()
        half //= 2
    build.assign(value, parts[0])
    build.barrier()

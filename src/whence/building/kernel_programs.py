"""The kernel programs that a program's code was rendered from, for whoever asks what they do.

They are written as soon as they are rendered, and read when a profile counts their work: a start
from the cache, and reference steps, need none of the modules that they are made of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from whence.building.graph_pickle import dump, evaluated
from whence.building.restricted_unpickler import load
from whence.kernels.ir import Kernel
from whence.kernels.ir.values import Expr, operands


@dataclass(frozen=True, slots=True)
class KernelPrograms:
    """By step number, those of the native steps."""

    data: bytes = b""
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Of the model's dimensions, where the programs have expressions over them."""

    def read(self) -> dict[int, Kernel]:
        """For the sizes at hand, without what packs their constants."""
        if not self.data:
            return {}
        _, kernels = load(self.data)
        found: dict[int, Kernel] = evaluated(kernels, self.sizes) if self.sizes else kernels
        return found


def written_kernels(kernels: Mapping[int, Kernel]) -> KernelPrograms:
    bare = {number: dataclasses.replace(each, packings={}) for number, each in kernels.items()}
    # Pickle follows an expression by recursion, but stops at what it has written before.
    return KernelPrograms(dump((tuple(_leaves_first(bare)), bare)))


def _leaves_first(what: object) -> Iterator[Expr]:
    """All expressions in something made of records, mappings and tuples, operands before what uses
    them.
    """
    seen: set[int] = set()
    stack: list[tuple[object, bool]] = [(what, False)]
    while stack:
        part, is_done = stack.pop()
        if is_done:
            yield part  # type: ignore[misc]
        elif id(part) not in seen:
            seen.add(id(part))
            if isinstance(part, Expr):
                stack.append((part, True))
                stack += [(each, False) for each in operands(part)]
            elif isinstance(part, tuple):
                stack += [(each, False) for each in part]
            elif isinstance(part, Mapping):
                stack += [(each, False) for each in part.values()]
            elif dataclasses.is_dataclass(part):
                stack += [(getattr(part, each.name), False) for each in dataclasses.fields(part)]

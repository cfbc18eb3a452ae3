"""What the user started with: the operators of the file, numbered in file order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

Origin: TypeAlias = frozenset[int]
"""The ids of the source operators a node came from, immutable and shared."""

NO_ORIGIN: Origin = frozenset()


def union_of(origins: Iterable[Origin]) -> Origin:
    """All source ids in any of `origins`. The very same object when only one of them holds any."""
    parts = [origin for origin in origins if origin]
    return parts[0] if len(parts) == 1 else NO_ORIGIN.union(*parts)


# A value, like all that are frozen. Files have a hundred thousand of them, and to set eleven frozen
# fields takes three times as long.
@dataclass(slots=True)
class SourceOp:
    """One operator of the source file. Its `id` is 1, 2, ... in file order, nested graphs and
    inlined functions included.
    """

    id: int
    name: str
    """Unique within the model; made from outputs or type where the file has none."""
    op: str
    """The operator's type, as the file calls it."""
    scope: str = ""
    """The path of enclosing operators, when it stands in a nested graph or an inlined function:
    `if_3/then_branch`.
    """
    module: str = ""
    """The module that it was exported from (`layer1.0.bn1`), when the file says so."""
    line: str = ""
    """`file:line` of that program, when the file says so."""
    stack: str = ""
    """The whole stack behind `line`."""
    outputs: tuple[str, ...] = ()
    """What the file calls the values this operator makes."""
    positions: tuple[int, ...] | None = field(default=None, compare=False)
    """Where the operators that came from it stand in the file that was read, each counted from 0
    within its own (sub)graph. In a file that another tool made, they may be several or none;
    `None` where there is no file.
    """
    table_id: int | None = field(default=None, compare=False)
    """Its id in the file's own table of source operators (luci-profile's), if it has one."""

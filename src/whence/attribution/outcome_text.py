"""What became of a source operator, in a few words: `with bn2, Relu → kernel 14`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from whence.attribution.rows import KernelParts
from whence.graph.outcomes import Elimination
from whence.provenance import Ledger, Outcome, Reason, SourceOp

_MOST_NAMED = 3
_NUMBER = re.compile("[0-9]+")
_VERBS: Mapping[str, str] = {
    Outcome.FOLDED: "computed at compile time",
    Reason.IDENTITY: "did nothing",
    Reason.FOLDED: "computed at compile time",
    Reason.DEAD: "its result was not used",
    Reason.CSE: "an identical operator does its work",
    Reason.CANCELLED: "cancelled by its neighbours",
    Reason.ABSORBED: "absorbed by a neighbour",
    Reason.EARLIER: "removed before the file was written",
    Reason.INLINED: "replaced by what is inside it",
}


def without_kernel(ops: Collection[str]) -> str:
    """Why nothing is done at run time for an operator that the graph still has, as these."""
    if "Assign" in ops:
        return "in place: what it assigns is computed where the variable lies"
    if "Variable" in ops:
        return "read where the variable lies"
    if "Concat" in ops:
        return "in place: its inputs are written where its output lies"
    return "a view, nothing to do at run time"


def describe(
    ledger: Ledger,
    source: SourceOp,
    fate: Outcome,
    own: KernelParts,
    *,
    end: Elimination | None,
    holder: int | None,
    stands_as: Collection[str],
) -> str:
    """`own` are its parts of kernels, `end` how one that no longer runs came to its end, `holder`
    the operator with the nested graph it stands in, and `stands_as` the operators of the graph that
    do its work.
    """
    if fate in (Outcome.REMOVED, Outcome.DEAD, Outcome.LOST) or (
        fate is Outcome.FOLDED and not own
    ):
        if end is None:
            return "lost" if fate is Outcome.LOST else "computed at compile time"
        return f"{_VERBS[end.reason]} ({end.pass_name})"
    if not own:
        if holder is not None:
            return f"runs inside {ledger.source(holder).name}"
        return without_kernel(stands_as)
    where = f"→ {kernels_text([kernel.id for kernel, _ in own])}"
    if not all(kernel.native for kernel, _ in own):
        where += " (reference)"
    inside = dict.fromkeys(part.id for kernel, _ in own for part in kernel.origin)
    company = [ledger.source(each) for each in inside if each != source.id]
    # A constant that was folded into the kernel keeps nobody company.
    names = [each.name for each in company if each.op != "Constant"]
    others = company_text(names, source.name)
    if fate is Outcome.FOLDED:
        return f"folded into {others} {where}" if others else f"computed at compile time {where}"
    return f"with {others} {where}" if others else where


def with_later_kernels(text: str, by: int) -> str:
    """What `describe` said, where the kernels of others are in front of the operator's."""
    start = text.rfind("→ kernel")
    if start < 0:
        return text
    return text[:start] + _NUMBER.sub(lambda found: str(int(found[0]) + by), text[start:])


def company_text(names: Sequence[str], beside: str) -> str:
    """The first few names, as far as they differ from that of an operator beside them."""
    return first_few([tail(name, beside) for name in names])


def first_few(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def kernels_text(numbers: Sequence[int]) -> str:
    """`kernels 3, 4`, the first few of them."""
    listed = ", ".join(map(str, numbers[:4])) + (", ..." if len(numbers) > 4 else "")
    return f"kernel{'s' if len(numbers) > 1 else ''} {listed}"


def tail(name: str, beside: str) -> str:
    """The part of a name that tells it apart from another one: `/layer1/bn1/Norm` beside
    `/layer1/conv1/Conv` is `bn1/Norm`.
    """
    mine, others = name.split("/"), beside.split("/")
    shared = 0
    while shared < min(len(mine), len(others)) - 1 and mine[shared] == others[shared]:
        shared += 1
    return "/".join(mine[shared:]) or name

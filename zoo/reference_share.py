"""How much of a compiled model's time is spent in reference steps, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.runtime.executable import Executable

_RUNS = 3
_SHOWN = 3


class ReferenceShare(NamedTuple):
    part: float
    """Of the time in kernels and reference steps."""
    why: str
    """The reasons, with the type of operator and the part that each has, most first."""


def reference_share(executable: Executable, inputs: Mapping[str, Any]) -> ReferenceShare:
    """Of a few runs on these inputs."""
    from whence.attribution import profile_executable

    return share_of(profile_executable(executable, inputs, runs=_RUNS, warmup=1))


def share_of(profile: Profile) -> ReferenceShare:
    whole = sum(kernel.time_ns for kernel in profile.kernels)
    spent: dict[tuple[str, str], int] = defaultdict(int)
    for kernel in profile.kernels:
        # Some stand behind a condition that does not hold in these runs.
        if not kernel.native and kernel.calls:
            reason = kernel.why_reference or "it has no native kernel"
            spent[", ".join(kernel.ops), _general(reason)] += kernel.time_ns
    if not whole or not spent:
        return ReferenceShare(0.0, "")
    ordered = sorted(spent.items(), key=lambda item: -item[1])
    told = [f"{ops} {time / whole:.1%}: {why}" for (ops, why), time in ordered[:_SHOWN]]
    more = len(ordered) - _SHOWN
    return ReferenceShare(
        sum(spent.values()) / whole, "; ".join(told) + (f"; {more} more" if more > 0 else "")
    )


def _general(reason: str) -> str:
    """The reason without the operator's name, so that those of all operators are one."""
    begin, quote, rest = reason.partition("'")
    _, other, end = rest.rpartition("'")
    return f"it{end}" if quote and other and not begin else reason

"""Two profiles with the same parts of the kernels that both have.

What an operator has of a kernel is mostly modelled: the small ones have what they add, in
nanoseconds, and the anchor has the rest of what was measured. On a machine that is a third slower
in one of two profiles, the small ones therefore have a smaller part there, although nothing about
them changed. A difference of modelled parts says nothing, so both profiles get the same ones; parts
that were measured in both stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from whence.attribution.policy import EXACT
from whence.attribution.profile import Profile
from whence.attribution.rows import Band, KernelRow, SourceRow

_Key = tuple[tuple[str, ...], int]
"""What a kernel is known by in another profile: the names of the operators in it, and how many such
stand before it.
"""
_Weights = dict[str, float]


def with_common_shares(before: Profile, after: Profile) -> tuple[Profile, Profile]:
    """Both, with the measured parts of a kernel where one has them, else with the mean of both."""
    exact = before.policy == EXACT, after.policy == EXACT
    if all(exact):
        return before, after
    old, new = _by_kernel(before), _by_kernel(after)
    common = {}
    for key in old.keys() & new.keys():
        first, second = old[key], new[key]
        if exact[0] or exact[1]:
            common[key] = first if exact[0] else second
        else:
            common[key] = {name: (first[name] + second[name]) / 2 for name in first}
    return _with_shares(before, common), _with_shares(after, common)


def _kernels(profile: Profile) -> Iterator[tuple[_Key, KernelRow, list[str]]]:
    """Each with its key, and with the names of the operators that have a part of it."""
    known = {row.id: row.name for row in profile.sources}
    seen: Counter[tuple[str, ...]] = Counter()
    for kernel in profile.kernels:
        names = [known.get(part.id, f"#{part.id}") for part in kernel.origin]
        inside = tuple(sorted(names))
        yield (inside, seen[inside]), kernel, names
        seen[inside] += 1


def _by_kernel(profile: Profile) -> dict[_Key, _Weights]:
    found: dict[_Key, _Weights] = {}
    for key, kernel, names in _kernels(profile):
        inside = found[key] = dict.fromkeys(names, 0.0)
        for name, part in zip(names, kernel.origin, strict=True):
            inside[name] += part.weight
    return found


def _with_shares(profile: Profile, common: Mapping[_Key, _Weights]) -> Profile:
    kernels: list[KernelRow] = []
    own: dict[int, float] = defaultdict(float)
    shared: dict[int, float] = defaultdict(float)
    for key, kernel, names in _kernels(profile):
        origin = kernel.origin
        if (weights := common.get(key)) is not None:
            # Operators of one name cannot be told apart.
            origin = tuple(
                part._replace(weight=weights[name] / names.count(name))
                for name, part in zip(names, origin, strict=True)
            )
        for part, other in zip(kernel.origin, origin, strict=True):
            own[part.id] += part.weight * kernel.time_ns
            shared[part.id] += other.weight * kernel.time_ns
        kernels.append(dataclasses.replace(kernel, origin=origin))

    def row_of(row: SourceRow) -> SourceRow:
        factor = shared[row.id] / own[row.id] if own[row.id] else 1.0
        if factor == 1.0:
            return row
        return dataclasses.replace(
            row,
            band=Band(*(round(factor * each) for each in row.band)),
            blocks=tuple(round(factor * each) for each in row.blocks),
        )

    return dataclasses.replace(
        profile, kernels=tuple(kernels), sources=tuple(map(row_of, profile.sources))
    )

"""Two profiles with the same parts of the kernels that both have.

What an operator has of a kernel is mostly modelled: the small ones have what they add, in
nanoseconds, and the anchor has the rest of what was measured. On a machine that is a third slower
in one of two profiles, the small ones therefore have a smaller part there, although nothing about
them changed. A difference of modelled parts says nothing, so both profiles get the same ones; parts
that were measured in both stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping

from whence.attribution.policy import EXACT
from whence.attribution.profile import Profile
from whence.attribution.rows import Band, KernelRow, SourceRow

KernelKey = tuple[tuple[str, ...], int]
"""The names of the operators in a kernel, and how many such stand before it."""
_Weights = dict[str, float]


def kernel_keys(profile: Profile) -> list[KernelKey]:
    """What a kernel is known by in another profile."""
    names = _names(profile)
    seen: dict[tuple[str, ...], int] = defaultdict(int)
    keys = []
    for kernel in profile.kernels:
        inside = tuple(sorted(names[part.id] for part in kernel.origin))
        keys.append((inside, seen[inside]))
        seen[inside] += 1
    return keys


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


def _names(profile: Profile) -> dict[int, str]:
    """Of all operators in kernels."""
    known = {row.id: row.name for row in profile.sources}
    inside = {part.id for kernel in profile.kernels for part in kernel.origin}
    return {number: known.get(number, f"#{number}") for number in inside}


def _by_kernel(profile: Profile) -> dict[KernelKey, _Weights]:
    names = _names(profile)
    found: dict[KernelKey, _Weights] = {}
    for key, kernel in zip(kernel_keys(profile), profile.kernels, strict=True):
        inside = found[key] = dict.fromkeys(key[0], 0.0)
        for part in kernel.origin:
            inside[names[part.id]] += part.weight
    return found


def _with_shares(profile: Profile, common: Mapping[KernelKey, _Weights]) -> Profile:
    names = _names(profile)
    kernels: list[KernelRow] = []
    own: dict[int, float] = defaultdict(float)
    shared: dict[int, float] = defaultdict(float)
    for key, kernel in zip(kernel_keys(profile), profile.kernels, strict=True):
        weights = common.get(key)
        origin = tuple(
            part
            if weights is None
            # Operators of one name cannot be told apart.
            else part._replace(weight=weights[name] / key[0].count(name))
            for part in kernel.origin
            for name in (names[part.id],)
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

"""Whether two profiles can be compared: what differs besides what one wants to know."""

from __future__ import annotations

from pathlib import PurePath

from whence.attribution.profile import Profile

_MACHINE = ("cpu", "cpu features", "cores", "system")


def differences(before: Profile, after: Profile) -> list[str]:
    """What makes times differ although nothing became slower or faster, a sentence each."""
    found = []
    if _are_different_models(before, after):
        found.append(
            f"these are profiles of different models, '{before.model}' and '{after.model}': only"
            " operators of the same name are compared"
        )
    for what, was, now in (
        ("engines", before.engine, after.engine),
        ("numbers of threads", str(before.threads), str(after.threads)),
        ("input shapes", _shapes(before), _shapes(after)),
        *((f"machines ({name})", *_facts(before, after, name)) for name in _MACHINE),
    ):
        if was and now and was != now:
            found.append(f"the profiles have different {what}: {was} and {now}")
    return found


def share_operators(before: Profile, after: Profile) -> bool:
    """Is there an operator that both have, or has one of them none at all?"""
    old, new = ({row.name for row in profile.sources} for profile in (before, after))
    return bool(old & new) or not old or not new


def _facts(before: Profile, after: Profile, name: str) -> tuple[str, str]:
    return before.environment.get(name, ""), after.environment.get(name, "")


def _shapes(profile: Profile) -> str:
    return ", ".join(
        f"{name.removeprefix('input ')} {fact}"
        for name, fact in sorted(profile.environment.items())
        if name.startswith("input ")
    )


def _are_different_models(before: Profile, after: Profile) -> bool:
    """Whether the models differ: in name and operators, or, under one name, in most operators."""
    old, new = ({(row.name, row.op) for row in profile.sources} for profile in (before, after))
    same_name = PurePath(before.model).name == PurePath(after.model).name
    return old != new if not same_name else 2 * len(old & new) < max(len(old), len(new))

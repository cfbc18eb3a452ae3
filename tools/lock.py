"""Write `.ci/constraints.txt`: the versions of everything that the tests need, as they are
installed where this runs.

    make lock

What `pyproject.toml` asks for stays as wide as it is for users; CI and `make test` install exactly
these. What is not installed is left open.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / ".ci" / "constraints.txt"
_HEAD = """\
# Versions that the tests run with. Made by `make lock` from the environment in .venv.
"""


def requirements() -> list[str]:
    """What whence and its tests ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["dev"]]


def _needed(texts: Iterable[str], seen: set[tuple[str, frozenset[str]]]) -> Iterator[Distribution]:
    """What is installed of these packages and of all that they need."""
    for text in texts:
        wanted = Requirement(text)
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            found = distribution(wanted.name)
        except PackageNotFoundError:
            continue
        yield found
        more = [Requirement(each) for each in found.requires or ()]
        yield from _needed(
            [
                str(each)
                for each in more
                if each.marker is None
                or any(each.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras))
            ],
            seen,
        )


def lines() -> list[str]:
    found = {
        canonicalize_name(each.metadata["Name"]): each.version
        for each in _needed(requirements(), set())
    }
    return [f"{name}=={version}" for name, version in sorted(found.items())]


if __name__ == "__main__":
    LOCK.write_text(_HEAD + "\n".join(lines()) + "\n", encoding="utf-8")
    print(f"{LOCK.relative_to(ROOT)}: {len(lines())} packages")

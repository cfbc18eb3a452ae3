"""Which version made an operator slower: halving a range of commits, or of wheels.

The slow end, the fast end and the version between are measured in turns, so that what the machine
does meanwhile happens to all three.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from whence.errors import InputError, UnsupportedError
from whence.fleet.versions import Checkout, find_version

Time = Callable[[Checkout], float]
"""What the operator takes in one measurement of a version, in nanoseconds."""
Report = Callable[[str, "BisectStep"], None]


@dataclass(frozen=True, slots=True)
class BisectStep:
    """One version, as measured beside the ends."""

    good_ns: float
    here_ns: float
    bad_ns: float

    @property
    def is_bad(self) -> bool:
        """Is it nearer to the bad end, as a ratio?"""
        return self.here_ns**2 > self.good_ns * self.bad_ns


@dataclass(frozen=True, slots=True)
class FirstSlow:
    """The first bad version, and the last good one before it."""

    first_bad: str
    last_good: str
    good_ns: float
    bad_ns: float
    measured: int
    """How many versions were measured between the ends."""


def bisect(
    versions: Sequence[str],
    checkout: Callable[[str], contextlib.AbstractContextManager[Checkout]],
    time: Time,
    *,
    rounds: int = 5,
    least: float = 0.05,
    report: Report | None = None,
) -> FirstSlow:
    """The first of the versions, oldest first, that is as slow as the last. The first and the last
    must differ by more than the noise and by `least`.
    """
    if len(versions) < 2:
        raise InputError("there is nothing between the good and the bad version")
    with checkout(versions[0]) as good, checkout(versions[-1]) as bad:
        ends = _in_turns(time, [good, bad], rounds)
        good_ns, bad_ns = map(statistics.median, ends)
        if min(ends[1]) <= max(ends[0]) or bad_ns < good_ns * (1 + least):
            raise InputError(
                f"'{versions[-1]}' is not slower than '{versions[0]}' beyond the noise"
                f" ({bad_ns / 1e6:.4g} and {good_ns / 1e6:.4g} ms); there is nothing to find"
            )
        low, high, measured = 0, len(versions) - 1, 0
        while high - low > 1:
            middle = (low + high) // 2
            with checkout(versions[middle]) as here:
                times = _in_turns(time, [good, here, bad], rounds)
            verdict = BisectStep(*map(statistics.median, times))
            measured += 1
            if report is not None:
                report(versions[middle], verdict)
            if verdict.is_bad:
                high = middle
            else:
                low = middle
    return FirstSlow(versions[high], versions[low], good_ns, bad_ns, measured)


def _in_turns(time: Time, checkouts: Sequence[Checkout], rounds: int) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in checkouts]
    for _ in range(rounds):
        for own, each in zip(times, checkouts, strict=True):
            own.append(time(each))
    return times


def commits(repository: Path, good: str, bad: str) -> list[str]:
    """From good to bad, oldest first, along the first parents."""
    listed = _git(repository, "rev-list", "--reverse", "--first-parent", f"{good}..{bad}", "--")
    first = _git(repository, "rev-parse", "--verify", f"{good}^{{commit}}")
    found = [first.strip(), *listed.split()]
    if len(found) < 2:
        raise InputError(f"'{bad}' does not come after '{good}' in '{repository}'")
    return found


@contextlib.contextmanager
def commit_checkout(repository: Path, commit: str) -> Iterator[Checkout]:
    """A commit as a folder, which is removed again."""
    with tempfile.TemporaryDirectory(prefix="whence-bisect-") as folder:
        place = Path(folder) / "tree"
        _git(repository, "worktree", "add", "--detach", "--quiet", str(place), commit)
        try:
            yield find_version(str(place), Path(folder))
        finally:
            _git(repository, "worktree", "remove", "--force", str(place))


@contextlib.contextmanager
def wheel_checkout(wheel: str) -> Iterator[Checkout]:
    with tempfile.TemporaryDirectory(prefix="whence-bisect-") as folder:
        yield find_version(wheel, Path(folder))


def _git(repository: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        raise UnsupportedError("to bisect commits needs git, which is not installed") from None
    except subprocess.CalledProcessError as error:
        raise InputError(f"git: {' '.join(error.stderr.split())[:300]}") from error
    return done.stdout

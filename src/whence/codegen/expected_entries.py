"""The entries of the cache that the next start of a model will ask for, checked before it does.

A start spends most of its time on imports, on one core. Checking 100 MB of packed weights against
their digests takes a quarter as long, and can happen on another core meanwhile, if it is known
which entries they are: a list of their names is written after a start, beside the entries.

Entries that another process wrote for this very start, a moment ago, are not checked again as long
as their files are the same.

The list does not decide what a model is made of: that is found as without it, by its content. It
also says of each entry what the system said of its file (among it the time of its last change,
which no program can set) when its content was last seen to be right. As long as that is the same
and the machine runs since then, it is not read once more: a write changes that time, and what a
failing machine lost is only found lost after it has started again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from whence.codegen.digest import MOST_THREADS, digest_of_file, stat_signature

FOLDER = "starts"
"""Of the lists, in the folder of the cache."""

_LINE = re.compile(r"([0-9a-f]{64}\.[0-9a-f]{64})((?: [0-9]{1,20}){5})")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
# What is smaller is checked sooner than another thread would get to it.
_WORTH_BYTES = 64 * 1024
_MOST_ENTRIES = 10_000


class WrittenEntry(NamedTuple):
    """An entry that was put into the cache by this process, and what would change if its file
    did.
    """

    path: Path
    status: tuple[int, ...]


class ExpectedEntries:
    """Those of one model file, in one cache folder, from the moment this is made."""

    def __init__(self, model: Path, folder: Path) -> None:
        name = hashlib.sha256(os.fsencode(model.absolute())).hexdigest()
        self._list = folder / FOLDER / name
        self._boot_id = _boot_id()
        self._used: dict[Path, tuple[int, ...]] = {}
        self._found: dict[Path, tuple[tuple[int, ...], str]] = {}
        self._done: dict[Path, threading.Event] = {}
        listed = _read(self._list, self._boot_id)
        for name, status in listed.items():
            path = folder / name[:2] / name
            with contextlib.suppress(OSError):
                if status == entry_status(path):
                    self._found[path] = status, path.suffix[1:]
                else:
                    self._done[path] = threading.Event()
        self._taken: set[Path] = set()
        self._taking = threading.Lock()
        if self._done:
            threading.Thread(target=self._check, daemon=True).start()

    def digest_of(self, path: Path) -> str:
        """As `digest_of_file`, and perhaps known already. Raises `OSError` likewise."""
        status = entry_status(path)
        if path in self._done:
            # One that the other thread did not get to is computed here, while it does the next.
            if self._takes(path):
                self._compute(path)
            self._done[path].wait()
        before, digest = self._found.get(path, ((), ""))
        return digest if before == status else digest_of_file(path)

    def note_used(self, path: Path) -> None:
        """The content of an entry was right just now; the times of its file are new."""
        with contextlib.suppress(OSError):
            status = entry_status(path)
            self._found[path] = status, path.suffix[1:]
            if status[2] >= _WORTH_BYTES:
                self._used[path] = status

    def add_written(self, entries: Iterable[WrittenEntry]) -> None:
        """Entries that a process wrote for this start: it computed their digests from what it
        wrote, so one that did not change since has the content that its name says.
        """
        for path, status in entries:
            with self._taking:
                self._taken.add(path)
                self._found[path] = status, path.suffix[1:]
                self._done.setdefault(path, threading.Event()).set()

    def remember(self) -> None:
        """The start is done: expect next time what it asked for. A list that cannot be written is
        done without.
        """
        if not self._used:
            return
        rows = list(self._used.items())[:_MOST_ENTRIES]
        lines = [" ".join((path.name, *map(str, status))) for path, status in rows]
        text = "\n".join([self._boot_id, *lines])
        temporary = self._list.with_name(f".{self._list.name[:16]}-{os.getpid()}")
        with contextlib.suppress(OSError):
            self._list.parent.mkdir(mode=0o700, exist_ok=True)
            temporary.write_text(text, encoding="ascii")
            temporary.replace(self._list)

    def _check(self) -> None:
        # Of those there are now: others may be added meanwhile.
        for path in tuple(self._done):
            if self._takes(path):
                self._compute(path, threads=1)

    def _compute(self, path: Path, threads: int = MOST_THREADS) -> None:
        try:
            status = entry_status(path)
            self._found[path] = status, digest_of_file(path, threads)
        except OSError:
            pass  # whoever asks for it meets the same
        finally:
            self._done[path].set()

    def _takes(self, path: Path) -> bool:
        """Is it for this thread to compute? For one thread it is."""
        with self._taking:
            is_free = path not in self._taken
            self._taken.add(path)
            return is_free


def _boot_id() -> str:
    """What tells this run of the machine from others; nothing where the system does not say."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _read(path: Path, boot: str) -> dict[str, tuple[int, ...]]:
    """The names in a list, with what their files were like if that was since the machine started;
    none of one that is not there, or is no list of names.
    """
    try:
        before, *lines = path.read_text(encoding="ascii").split("\n")
    except (OSError, ValueError):
        return {}
    found = [match for match in map(_LINE.fullmatch, lines) if match is not None]
    if len(found) < len(lines) or len(lines) > _MOST_ENTRIES:
        return {}
    is_known = boot and boot == before
    return {row[1]: tuple(map(int, row[2].split())) if is_known else () for row in found}


def entry_status(path: Path) -> tuple[int, ...]:
    """What changes when its file does. Entries are never written again, only replaced or removed."""
    return stat_signature(path.stat())

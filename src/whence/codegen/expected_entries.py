"""The entries of the cache that the next start of a model will ask for, checked before it does.

A start spends most of its time on imports, on one core. Checking 100 MB of packed weights against
their digests takes a quarter as long, and can happen on another core meanwhile, if it is known which
entries they are: a list of their names is written after a start, beside the entries.

Entries that another process wrote for this very start, a moment ago, are not checked again as long
as their files are the same.

The list decides nothing. What the model is made of is found as without it, by its content; a digest
that was computed early only saves computing it again, for a file that did not change since.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from whence.codegen.digest import MOST_THREADS, digest_of_file

FOLDER = "starts"
"""Of the lists, in the folder of the cache."""

_NAME = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{64}")
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
        self._names = _read(self._list)
        self._used: dict[str, None] = {}
        self._found: dict[Path, tuple[tuple[int, ...], str]] = {}
        self._done: dict[Path, threading.Event] = {
            folder / name[:2] / name: threading.Event() for name in self._names
        }
        self._taken: set[Path] = set()
        self._taking = threading.Lock()
        if self._done:
            threading.Thread(target=self._check, daemon=True).start()

    def digest_of(self, path: Path) -> str:
        """As `digest_of_file`, and perhaps computed already. Raises `OSError` likewise."""
        status = entry_status(path)
        if status[2] >= _WORTH_BYTES:
            self._used[path.name] = None
        if path in self._done:
            # One that the other thread did not get to is computed here, while it does the next.
            if self._takes(path):
                self._compute(path)
            self._done[path].wait()
            before, digest = self._found.get(path, ((), ""))
            if before == status:
                return digest
        return digest_of_file(path)

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
        if not self._used or self._used.keys() == set(self._names):
            return
        text = "\n".join(list(self._used)[:_MOST_ENTRIES])
        temporary = self._list.with_name(f".{self._list.name[:16]}-{os.getpid()}")
        with contextlib.suppress(OSError):
            self._list.parent.mkdir(mode=0o700, exist_ok=True)
            temporary.write_text(text, encoding="ascii")
            temporary.replace(self._list)

    def _check(self) -> None:
        for path in self._done:
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


def _read(path: Path) -> Sequence[str]:
    """The names in a list; none of one that is not there, or is no list of names."""
    try:
        names = path.read_text(encoding="ascii").split("\n")
    except (OSError, ValueError):
        return ()
    return names if all(map(_NAME.fullmatch, names)) and len(names) <= _MOST_ENTRIES else ()


def entry_status(path: Path) -> tuple[int, ...]:
    """What changes when a file does. Entries are never written again, only replaced or removed."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

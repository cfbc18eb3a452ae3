"""Compiled code kept on disk, found by what it was made from.

An entry is one file whose name holds its key and the digest of its content: `ab/<key>.<digest>`. It
appears by a rename, complete or not at all, so writers need no lock: two that race write two good
files, and a killed one leaves a temporary file that `prune` sweeps up. Loading checks the content
against the name, so damage by anything else makes an entry disappear, never run. Large entries of a
model that started before are checked once in each run of the machine, and whenever their files
changed (`codegen/expected_entries.py`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from whence.codegen.digest import digest_of, digest_of_file, map_file
from whence.codegen.expected_entries import ExpectedEntries, WrittenEntry, entry_status
from whence.errors import CacheError

LIMIT_BYTES = 4 * 1024**3
"""What the cache is pruned to, if nobody says otherwise."""

_TEMPORARY = ".writing-"
_WORK = "work-"
_ENTRY = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{64})")
_STALE_SECONDS = 6 * 3600
"""No writer and no compiler takes this long: what is older was left by a killed one."""
_UNWRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class CacheEntry:
    key: str
    path: Path
    bytes: int
    used: float
    """When it was last asked for, in seconds since the epoch."""


def default_folder() -> Path:
    """`kernels` in `$WHENCE_CACHE`, or in the folder `whence` of the user's cache folder."""
    if named := os.environ.get("WHENCE_CACHE"):
        return Path(named).expanduser().absolute() / "kernels"
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The standard says that a relative path here is to be ignored.
        home = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        raise CacheError(
            "no home folder to keep compiled code in; name a folder in WHENCE_CACHE"
        ) from None
    return home / "whence" / "kernels"


def cache_key(*parts: str) -> str:
    """A key that differs whenever any part does, wherever the parts are divided."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class Cache:
    """A private folder of compiled code. Any number of processes may use one at a time.

    A folder that cannot be written serves what it has; new entries then live in a temporary folder
    until the process ends.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = default_folder() if folder is None else folder.absolute()
        self._overflow: tempfile.TemporaryDirectory[str] | None = None
        self._expected: ExpectedEntries | None = None
        self._written: dict[Path, None] = {}
        try:
            self._make_folder()
        except OSError as error:
            self._raise_unless_unwritable(error)
        self._check_private()

    def get(self, key: str) -> Path | None:
        """The file of an entry, its content checked just now, or None."""
        for path, digest in self._candidates(key):
            with contextlib.suppress(OSError):
                if self._digest_of(path) == digest:
                    _touch(path)
                    if self._expected is not None:
                        self._expected.note_used(path)
                    return path
            _discard(path)
        return None

    @contextlib.contextmanager
    def expecting(self, entries: ExpectedEntries | None) -> Iterator[None]:
        """Within a `with`, entries whose content was checked just now, in the background, are not
        read once more. What was used is expected the next time.
        """
        before, self._expected = self._expected, entries
        try:
            yield
        finally:
            self._expected = before
        if entries is not None and self.lasts:
            entries.remember()

    def __getstate__(self) -> dict[str, object]:
        """For another process, which expects nothing and has written nothing."""
        return {**self.__dict__, "_expected": None, "_written": {}}

    @property
    def written(self) -> list[WrittenEntry]:
        """The entries that were put here, and are still there."""
        found = []
        for path in self._written:
            with contextlib.suppress(OSError):
                found.append(WrittenEntry(path, entry_status(path)))
        return found

    def note_written(self, entries: Iterable[WrittenEntry]) -> None:
        """Another process put these entries here just now, for what is asked for here."""
        if self._expected is not None:
            self._expected.add_written(entries)

    def _digest_of(self, path: Path) -> str:
        return digest_of_file(path) if self._expected is None else self._expected.digest_of(path)

    def map(self, key: str) -> memoryview | None:
        """The content of an entry, mapped and checked, or None. Pruning removes files and never
        changes one, so it stays what it is.
        """
        return next(self.map_all(key), None)

    def map_all(self, key: str) -> Iterator[memoryview]:
        """As `map`, every content that was put under the key."""
        for path, digest in self._candidates(key):
            with contextlib.suppress(OSError):
                content = map_file(path)
                if digest_of(content) == digest:
                    _touch(path)
                    yield content
                    continue
            _discard(path)

    def has(self, key: str) -> bool:
        """Is there an entry, its content not looked at? It counts as used."""
        found = [path for path, _ in self._candidates(key)]
        for path in found:
            _touch(path)
        return bool(found)

    def put(self, key: str, data: bytes | memoryview) -> Path:
        """Keep `data` under `key`: complete, or not at all."""
        return self._put(key, data, digest_of(data))

    def _put(self, key: str, data: bytes | memoryview, digest: str) -> Path:
        name = f"{key}.{digest}"
        try:
            self._make_folder()
            path = self.folder / key[:2] / name
            # What is damaged when the machine fails is then not what its name says.
            replace_file(path, data)
            self._written[path] = None
            return path
        except OSError as error:
            self._raise_unless_unwritable(error)
            return self._write_overflow(Path(key[:2], name), data)

    def keep_content(self, data: bytes | memoryview) -> str:
        """Keep `data` under its own digest, which is returned."""
        digest = digest_of(data)
        if not any(known == digest for _, known in self._candidates(digest)):
            self._put(digest, data, digest)
        return digest

    @property
    def lasts(self) -> bool:
        """Will what is put now still be there for the next process?"""
        return self._overflow is None and os.access(self.folder, os.W_OK)

    def entries(self) -> tuple[CacheEntry, ...]:
        """What is in the cache, least recently used first."""
        found = []
        for shard in self._shards():
            for path in _listed(shard):
                match = _ENTRY.fullmatch(path.name)
                with contextlib.suppress(OSError):
                    if match:
                        status = path.stat()
                        found.append(CacheEntry(match[1], path, status.st_size, status.st_mtime))
        return tuple(sorted(found, key=lambda entry: (entry.used, entry.path.name)))

    def prune(self, max_bytes: int = LIMIT_BYTES, *, spare_seconds: float = 60.0) -> int:
        """Remove the least recently used entries until the rest fits in `max_bytes`; returns the
        bytes freed.

        Entries used within `spare_seconds` stay: a process may be about to load them. What killed
        writers left is removed too.
        """
        self._sweep()
        entries = self.entries()
        excess, freed, now = sum(entry.bytes for entry in entries) - max_bytes, 0, time.time()
        for entry in entries:
            if freed >= excess or now - entry.used < spare_seconds:
                break
            try:
                entry.path.unlink(missing_ok=True)
            except OSError:
                break  # nothing here can be removed
            freed += entry.bytes
        return freed

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """A private folder for the length of a `with`, on the disk of the cache."""
        try:
            self._make_folder()
            made = tempfile.TemporaryDirectory(
                prefix=_WORK, dir=self.folder, ignore_cleanup_errors=True
            )
        except OSError as error:
            self._raise_unless_unwritable(error)
            made = tempfile.TemporaryDirectory(prefix="whence-", ignore_cleanup_errors=True)
        with made as folder:
            yield Path(folder)

    def subfolder(self, name: str) -> Path:
        """A private folder beside the entries, for what is not content-addressed; it lasts if the
        cache can be written.
        """
        folder = self.folder / name
        try:
            self._make_folder()
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            self._raise_unless_unwritable(error)
        if not os.access(folder, os.W_OK):
            folder = self._overflow_folder() / name
            folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def explain(self, error: OSError) -> CacheError:
        """What to tell a user whose work in this folder failed so."""
        if error.errno in _FULL:
            return self.full()
        return CacheError(
            f"the cache folder '{self.folder}' cannot be used: {error.strerror}; set WHENCE_CACHE"
            " to another"
        )

    def full(self) -> CacheError:
        """What to tell a user whose disk has no space left."""
        return CacheError(
            f"no space left for compiled code in '{self.folder}'; free some (all in there may be"
            " deleted), or set WHENCE_CACHE to a folder on another disk"
        )

    # ---- the folder ----

    def _make_folder(self) -> None:
        # Folders above it are made as others are; this one is private from its first moment.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _check_private(self) -> None:
        # Whoever can write here, or put another folder in its place, can make us run their code.
        remedy = "code loaded from there would run as you; set WHENCE_CACHE to a folder of your own"
        try:
            status = self.folder.stat()
            above = [(folder, folder.stat().st_mode) for folder in self.folder.resolve().parents]
        except OSError:
            return  # it does not exist and cannot be made
        if status.st_uid != os.geteuid():
            raise CacheError(
                f"the cache folder '{self.folder}' belongs to another user (uid {status.st_uid}):"
                f" {remedy}"
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise CacheError(
                f"the cache folder '{self.folder}' can be written by others: {remedy}, or run:"
                f" chmod 700 '{self.folder}'"
            )
        for folder, mode in above:
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                raise CacheError(
                    f"the cache folder '{self.folder}' lies in '{folder}', where anybody could"
                    f" replace it: {remedy}"
                )

    def _candidates(self, key: str) -> Iterator[tuple[Path, str]]:
        """The files of an entry and what their names say of their content."""
        for folder in self._folders():
            yield from _found(folder / key[:2], key)

    def _folders(self) -> Iterator[Path]:
        yield self.folder
        if self._overflow is not None:
            yield Path(self._overflow.name)

    def _shards(self) -> Iterator[Path]:
        for path in _listed(self.folder):
            if len(path.name) == 2:
                yield path

    def _raise_unless_unwritable(self, error: OSError) -> None:
        """Return if the folder merely cannot be written; otherwise raise what to do about it."""
        if error.errno not in _UNWRITABLE:
            raise self.explain(error) from error

    def _overflow_folder(self) -> Path:
        if self._overflow is None:
            self._overflow = tempfile.TemporaryDirectory(
                prefix="whence-", ignore_cleanup_errors=True
            )
        return Path(self._overflow.name)

    def _write_overflow(self, place: Path, data: bytes | memoryview) -> Path:
        try:
            path = self._overflow_folder() / place
            replace_file(path, data)
            return path
        except OSError as error:
            where = tempfile.gettempdir()
            raise CacheError(
                f"neither '{self.folder}' nor '{where}' can hold compiled code: {error.strerror};"
                " set WHENCE_CACHE to a folder that can"
            ) from error

    def _sweep(self) -> None:
        horizon = time.time() - _STALE_SECONDS
        left = [path for path in _listed(self.folder) if path.name.startswith(_WORK)]
        left += [
            path
            for shard in self._shards()
            for path in _listed(shard)
            if path.name.startswith(_TEMPORARY)
        ]
        for path in left:
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < horizon:
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink()


@contextlib.contextmanager
def kept_if_possible(what: str) -> Iterator[None]:
    """Where what is kept within a `with` is only for the next start, a disk that has no room for it
    is worth no more than a warning.
    """
    try:
        yield
    except (CacheError, OSError) as error:
        warnings.warn(f"{what} for the next start: {error}", RuntimeWarning, stacklevel=4)


def _touch(path: Path) -> None:
    """What is used is kept."""
    # To the nanosecond, which the times that writes leave are not on all systems: one that comes
    # right behind shows too.
    now = time.time_ns()
    with contextlib.suppress(OSError):
        os.utime(path, ns=(now, now))


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def replace_file(path: Path, data: bytes | memoryview, *, is_durable: bool = False) -> None:
    """Write the file whole, or leave it as it was, in a private folder. Whether it is on the disk
    when the machine fails is only waited for if it is to be durable, which can take seconds.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    # The temporary file is made readable by its owner alone.
    handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
            if is_durable:
                os.fsync(handle)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # which may fail too: some disks say only now that they are full
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def _found(shard: Path, key: str) -> Iterator[tuple[Path, str]]:
    for path in _listed(shard):
        match = _ENTRY.fullmatch(path.name)
        if match and match[1] == key:
            yield path, match[2]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []

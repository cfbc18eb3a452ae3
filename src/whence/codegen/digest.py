"""What tells one content from another: SHA-256, of long contents in pieces, on all cores.

What a model is found by is always read and hashed whole. An index of sizes and times of change
would be quicker and wrong now and then: a mapped file may change without its times saying so. Only
whether a file changed in the seconds since it was hashed is taken from its times.

A piece is read at once and hashed at once: a thread that takes the interpreter's lock for every few
hundred kilobytes holds up one that imports modules meanwhile, at each of its system calls.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from whence.codegen.target import usable_cores

PIECE = 4 * 1024**2
MOST_THREADS = 8
# No file system has coarser times.
_SETTLED_NS = 2_000_000_000
# So many files are read in the background at a time: a process may have a thousand open in all.
_IN_BACKGROUND = threading.Semaphore(16)


def digest_of(data: bytes | bytearray | memoryview, threads: int = MOST_THREADS) -> str:
    """Of content in memory, in 64 hexadecimal digits, by so many threads at most."""
    view = memoryview(data).cast("B")
    pieces = _Pieces(view.nbytes, lambda: lambda part: hashlib.sha256(view[part]).digest())
    pieces.start(min(pieces.count, threads) - 1)
    return pieces.digest()


def digest_of_file(path: Path, threads: int = MOST_THREADS) -> str:
    """The same as `digest_of` the content of a file that nobody changes, only removes. Raises
    `OSError` when it cannot be read.
    """
    return digest_of(map_file(path), threads)


def map_file(path: Path) -> memoryview:
    """A file's content, mapped: read when it is looked at, and shared with other processes that do
    the same.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return memoryview(b"")
        # All of it is about to be looked at; asking for it at once saves a fault for every few
        # pages.
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        return memoryview(mmap.mmap(file.fileno(), size, flags=flags, prot=mmap.PROT_READ))


class FileDigest:
    """The digest of a file, computed in the background from the moment this is made, on all cores
    but one. Whoever waits for it helps. Where many are made, the last are computed when somebody
    asks; of a file that changed by then there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.beside: dict[str, FileDigest] = {}
        """Of files in the same folder, by name, that are known or being computed."""
        self._value = ""
        self._found: tuple[int, ...] = ()
        """What the system said of the file when this was made."""
        self._status: tuple[int, ...] = ()
        self._content: _OpenFile | None = None
        self._is_read = False
        self._waiting = threading.Lock()
        with contextlib.suppress(OSError):
            status = path.stat()
            self._found, self._status = stat_signature(status), _settled(status)
            if _IN_BACKGROUND.acquire(blocking=False):
                self._content = _OpenFile(path, _IN_BACKGROUND)

    def __getstate__(self) -> tuple[Any, ...]:
        """For another process, which need not read the files once more."""
        return self.path, self.value, self._found, self._status, self.beside

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.path, self._value, self._found, self._status, self.beside = state
        self._content, self._is_read, self._waiting = None, True, threading.Lock()

    def of_beside(self, name: str, *, anew: bool = False) -> FileDigest:
        """Of a file in the same folder, which is read once however often it is asked for, unless it
        is to be read `anew`.
        """
        if anew or name not in self.beside:
            self.beside[name] = FileDigest(self.path.parent / name)
        return self.beside[name]

    def is_of(self, status: os.stat_result) -> bool:
        """Is it of the file that the system said this of?"""
        return self._found == stat_signature(status)

    def is_current(self) -> bool:
        """Does the file still hold what it held when it was read? Read again only if its times do
        not say so.
        """
        value = self.value
        if not value:
            return False
        if self._status:
            with contextlib.suppress(OSError):
                if _settled(self.path.stat()) == self._status:
                    return True
        again = FileDigest(self.path)
        if again.value != value:
            return False
        self._status = again._status
        return True

    @property
    def value(self) -> str:
        """Empty when the file cannot be read."""
        with self._waiting:
            if not self._is_read:
                with contextlib.suppress(OSError), self._content or _OpenFile(self.path) as content:
                    # Another file may have had its name when it was opened.
                    if content.status == self._found:
                        self._value = content.digest()
                self._content, self._is_read = None, True
        return self._value


def stat_signature(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file does."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _settled(status: os.stat_result) -> tuple[int, ...]:
    """The same; nothing for a file so new that its times may not show a change."""
    last = max(status.st_mtime_ns, status.st_ctime_ns)
    return () if time.time_ns() - last < _SETTLED_NS else stat_signature(status)


class _Pieces:
    """The pieces of a content. Threads share them: each takes the next that nobody took."""

    def __init__(self, size: int, hasher: Callable[[], Callable[[slice], bytes]]) -> None:
        """`hasher` makes what one thread hashes pieces with."""
        self.count = max(1, -(-size // PIECE))
        self._size, self._hasher = size, hasher
        self._numbers = iter(range(self.count))
        self._digests = [b""] * self.count
        self._failures: list[OSError] = []
        self._workers: list[threading.Thread] = []

    def start(self, threads: int) -> None:
        """Begin, on so many threads at most, and leave a core to this one."""
        for _ in range(min(threads, usable_cores() - 1)):
            self._workers.append(threading.Thread(target=self._work, daemon=True))
            self._workers[-1].start()

    def digest(self) -> str:
        """Of the whole, once all are done; this thread takes part. One piece is its own digest;
        those of several are hashed by another function, so that no content looks like a list of
        digests.
        """
        self._work()
        for worker in self._workers:
            worker.join()
        if self._failures:
            raise self._failures[0]
        if self.count == 1:
            return self._digests[0].hex()
        listed = self._size.to_bytes(8, "little") + b"".join(self._digests)
        return hashlib.blake2b(listed, digest_size=32).hexdigest()

    def _work(self) -> None:
        hasher = self._hasher()
        try:
            for number in self._numbers:
                begin = number * PIECE
                self._digests[number] = hasher(slice(begin, min(begin + PIECE, self._size)))
        except OSError as error:
            self._failures.append(error)


class _OpenFile:
    """A file that is open for hashing, until the end of a `with`. It is read, not mapped: others
    may make it shorter meanwhile.
    """

    def __init__(self, path: Path, permit: threading.Semaphore | None = None) -> None:
        """`permit` is one that was acquired, and is released when the file is closed."""
        self._path, self._permit, self._handle = path, permit, -1
        try:
            self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.status = stat_signature(path.stat())
            self._size = os.fstat(self._handle).st_size
        except OSError:
            self._close()
            raise
        self.pieces = _Pieces(self._size, self._hasher)
        self.pieces.start(min(self.pieces.count, MOST_THREADS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __del__(self) -> None:
        """Nobody asked for its digest."""
        self._close()

    def _close(self) -> None:
        handle, self._handle = self._handle, -1
        permit, self._permit = self._permit, None
        if handle >= 0:
            os.close(handle)
        if permit is not None:
            permit.release()

    def digest(self) -> str:
        found = self.pieces.digest()
        if os.fstat(self._handle).st_size != self._size:
            raise OSError(0, "it changed while it was read", str(self._path))
        return found

    def _hasher(self) -> Callable[[slice], bytes]:
        # Not from the heap: what a thread frees there stays with the process.
        memory = memoryview(mmap.mmap(-1, max(1, min(PIECE, self._size))))

        def digest(part: slice) -> bytes:
            size, done = part.stop - part.start, 0
            while done < size and (
                read := os.preadv(self._handle, [memory[done:size]], part.start + done)
            ):
                done += read
            return hashlib.sha256(memory[:done]).digest()

        return digest

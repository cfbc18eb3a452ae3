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
from typing import Self

from whence.codegen.target import usable_cores

PIECE = 4 * 1024**2
MOST_THREADS = 8
# No file system has coarser times.
_SETTLED_NS = 2_000_000_000


def digest_of(data: bytes | bytearray | memoryview, threads: int = MOST_THREADS) -> str:
    """Of content in memory, in 64 hexadecimal digits, by so many threads at most."""
    view = memoryview(data).cast("B")
    pieces = _Pieces(view.nbytes, lambda: lambda part: hashlib.sha256(view[part]).digest())
    pieces.start(min(pieces.count, threads) - 1)
    return pieces.digest()


def digest_of_file(path: Path, threads: int = MOST_THREADS) -> str:
    """As `digest_of` the content of a file that nobody changes; `OSError` if unreadable."""
    return digest_of(map_file(path), threads)


def map_file(path: Path) -> memoryview:
    """A file's content, mapped: read when looked at, and shared with other processes."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return memoryview(b"")
        # All of it is about to be looked at; asking for it at once saves a fault for every few
        # pages.
        return memoryview(
            mmap.mmap(
                file.fileno(),
                size,
                flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0),
                prot=mmap.PROT_READ,
            )
        )


class FileDigest:
    """The digest of a file, computed in the background from the moment this is made, on all cores
    but one. Whoever waits for it helps.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.beside: dict[str, FileDigest] = {}
        """Of files in the same folder, by name, that are known or being computed."""
        self._value = ""
        self._status: tuple[int, ...] = ()
        self._content: _OpenFile | None = None
        self._waiting = threading.Lock()
        with contextlib.suppress(OSError):
            self._status = _settled_status(path)
            self._content = _OpenFile(path)
            self._content.pieces.start(min(self._content.pieces.count, MOST_THREADS))

    def __reduce__(self) -> tuple[Callable[..., FileDigest], tuple[object, ...]]:
        """For another process, which need not read the files once more."""
        return _known_digest, (self.path, self.value, self._status, self.beside)

    def of_beside(self, name: str) -> FileDigest:
        """Of a file in the same folder, which is read once however often it is asked for."""
        if name not in self.beside:
            self.beside[name] = FileDigest(self.path.parent / name)
        return self.beside[name]

    def is_current(self) -> bool:
        """Does the file still hold what was read? Read again only if its times differ."""
        value = self.value
        if self._status:
            with contextlib.suppress(OSError):
                if _settled_status(self.path) == self._status:
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
            if self._content is not None:
                with self._content as content, contextlib.suppress(OSError):
                    self._value = content.digest()
                self._content = None
        return self._value


def _known_digest(
    path: Path, value: str, status: tuple[int, ...], beside: dict[str, FileDigest]
) -> FileDigest:
    found = FileDigest.__new__(FileDigest)
    found.beside = beside
    found.path, found._value, found._status, found._content = path, value, status, None
    found._waiting = threading.Lock()
    return found


def _settled_status(path: Path) -> tuple[int, ...]:
    """What changes when a file does; nothing for a file so new that its times may not show it."""
    status = path.stat()
    last = max(status.st_mtime_ns, status.st_ctime_ns)
    if time.time_ns() - last < _SETTLED_NS:
        return ()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


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
    """A file open for hashing, within a `with`; read, not mapped, as others may make it shorter."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._handle).st_size
        self.pieces = _Pieces(self._size, self._hasher)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

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

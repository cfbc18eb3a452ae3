"""What tells one content from another: SHA-256, of long contents in pieces, on all cores.

What a model is found by is always read and hashed whole. An index of sizes and times of change
would be quicker and wrong now and then: a mapped file may change without its times saying so. Only
whether a file changed in the seconds since it was hashed is taken from its times. With the pieces
spread over two cores, 100 MB take some 50 ms.
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

from whence.codegen.target import usable_cores

PIECE = 4 * 1024**2
MOST_THREADS = 8
# It is hashed while it is still in the cache; and what a thread frees at its end stays with the
# process.
_AT_ONCE = 256 * 1024
# No file system has coarser times.
_SETTLED_NS = 2_000_000_000


def digest_of(data: bytes | bytearray | memoryview) -> str:
    """Of content in memory, in 64 hexadecimal digits."""
    view = memoryview(data).cast("B")
    return _digest(
        view.nbytes,
        lambda number: hashlib.sha256(view[number * PIECE : (number + 1) * PIECE]).digest(),
    )


def digest_of_file(path: Path, threads: int = MOST_THREADS) -> str:
    """Of a file's content, the same as `digest_of` that content, by so many threads at most. Raises
    `OSError` when it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(handle).st_size
        found = _digest(
            size,
            lambda number: _piece(handle, number * PIECE, min(PIECE, size - number * PIECE)),
            threads,
        )
        if os.fstat(handle).st_size != size:
            raise OSError(0, "it changed while it was read", str(path))
        return found
    finally:
        os.close(handle)


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
        return memoryview(
            mmap.mmap(
                file.fileno(),
                size,
                flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0),
                prot=mmap.PROT_READ,
            )
        )


class FileDigest:
    """The digest of a file, computed in the background from the moment this is made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._value = ""
        self._status: tuple[int, ...] = ()
        self._worker: threading.Thread | None = threading.Thread(target=self._read, daemon=True)
        self._worker.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            self._status = _settled_status(self.path)
            self._value = digest_of_file(self.path)

    def __reduce__(self) -> tuple[Callable[..., FileDigest], tuple[Path, str, tuple[int, ...]]]:
        """For another process, which need not read the file once more."""
        return _known_digest, (self.path, self.value, self._status)

    def is_current(self) -> bool:
        """Does the file still hold what it held when it was read? Read again only if its times do
        not say so.
        """
        value = self.value
        if self._status:
            with contextlib.suppress(OSError):
                if _settled_status(self.path) == self._status:
                    return True
        return FileDigest(self.path).value == value

    @property
    def value(self) -> str:
        """Empty when the file cannot be read."""
        if self._worker is not None:
            self._worker.join()
        return self._value


def _known_digest(path: Path, value: str, status: tuple[int, ...]) -> FileDigest:
    found = FileDigest.__new__(FileDigest)
    found.path, found._value, found._status, found._worker = path, value, status, None
    return found


def _settled_status(path: Path) -> tuple[int, ...]:
    """What changes when a file does; nothing of one that changed just now, since it may change
    again without its times showing it.
    """
    status = path.stat()
    last = max(status.st_mtime_ns, status.st_ctime_ns)
    if time.time_ns() - last < _SETTLED_NS:
        return ()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _piece(handle: int, offset: int, size: int) -> bytes:
    """The digest of a piece of a file, or of what there is of it."""
    digest = hashlib.sha256()
    end = offset + size
    while offset < end and (data := os.pread(handle, min(_AT_ONCE, end - offset), offset)):
        digest.update(data)
        offset += len(data)
    return digest.digest()


def _digest(size: int, piece: Callable[[int], bytes], most_threads: int = MOST_THREADS) -> str:
    """One piece is its own digest; those of several are hashed by another function, so that no
    content looks like a list of digests.
    """
    count = max(1, -(-size // PIECE))
    if count == 1:
        return piece(0).hex()
    threads = min(usable_cores(), most_threads, count)
    digests = [b""] * count
    failures: list[OSError] = []

    def work(first: int) -> None:
        try:
            for number in range(first, count, threads):
                digests[number] = piece(number)
        except OSError as error:
            failures.append(error)

    workers = [
        threading.Thread(target=work, args=(first,), daemon=True) for first in range(1, threads)
    ]
    for worker in workers:
        worker.start()
    work(0)
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return hashlib.blake2b(
        size.to_bytes(8, "little") + b"".join(digests), digest_size=32
    ).hexdigest()

"""Compiling kernels while further ones are still being written.

Functions are handed over one by one. Whenever enough of them came together, a compiler is started
for them, which leaves its object in the cache; the library that is linked in the end finds it
there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from whence.codegen.functions import KernelFunction, batches
from whence.codegen.toolchain import Progress, SourceUnit, Toolchain
from whence.errors import WhenceError

# Enough to make starting a compiler worth it, few enough that the first starts early.
_LINES = 1200


class CompileAhead:
    """Compiles functions for units like one, `toolchain.jobs` compilers at a time."""

    def __init__(self, toolchain: Toolchain, like: SourceUnit) -> None:
        self._toolchain, self._like = toolchain, like
        self._waiting: list[KernelFunction] = []
        self._lines = 0
        self._pool: ThreadPoolExecutor | None = None
        self._running: list[Future[None]] = []

    def add(self, function: KernelFunction) -> None:
        """A function that the library will have."""
        self._waiting.append(function)
        self._lines += function.text.count("\n")
        if self._lines >= _LINES:
            self._start(self._take())

    def finish(self, progress: Progress | None = None) -> None:
        """If any were started, compile the rest too, and wait for all. Whatever failed is left to
        the library, which fails for the same reason and says so.
        """
        if self._pool is None:
            return
        # What is left is for the compilers that would be idle while the others end.
        idle = self._toolchain.jobs - len(self._running) % self._toolchain.jobs
        for batch in batches(self._take(), idle, per_job=1):
            self._start(batch)
        for done, future in enumerate(as_completed(self._running), 1):
            with contextlib.suppress(WhenceError, OSError):
                future.result()
            if progress is not None:
                progress(f"kernels{done}", done, len(self._running))
        self._pool.shutdown()

    def _take(self) -> list[KernelFunction]:
        taken, self._waiting, self._lines = self._waiting, [], 0
        return taken

    def _start(self, functions: Sequence[KernelFunction]) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._toolchain.jobs)
        self._running.append(
            self._pool.submit(self._toolchain.compile_functions, self._like, functions)
        )

"""Streams: runs submitted in order and done in the background, each with its own profiler."""

from __future__ import annotations

import enum
import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from whence.errors import InputError, WhenceError
from whence.runtime.engine import Engine
from whence.runtime.profiler import Profiler, ProfilingDataKind


class StreamFlags(enum.IntFlag):
    """How a stream works. Numbers as in oneDNN.

    Example:

        >>> whence.StreamFlags.PROFILING in whence.StreamFlags(4)
        True
    """

    IN_ORDER = 0x1
    OUT_OF_ORDER = 0x2
    PROFILING = 0x4
    DEFAULT = IN_ORDER


class StreamError(WhenceError):
    """A stream was used in a way it does not allow.

    Example:

        >>> whence.num_entries(whence.Stream(whence.Engine()))
        Traceback (most recent call last):
        whence.runtime.stream.StreamError: cannot count profiling entries: the stream was not created ...
    """


class Stream:
    """Runs submitted to a stream happen in order, in the background; `wait` returns when all are
    done.

    A stream that nobody holds any more does what was submitted to it and then ends its thread.

        >>> model = whence.compile("model.onnx")
        >>> stream = whence.Stream(model.engine)
        >>> run = model.execute(stream, np.zeros((1, 3, 32, 32), np.float32))
        >>> stream.wait()
        >>> run.outputs[0].shape
        (1, 10)
    """

    def __init__(
        self, engine: Engine, flags: int = StreamFlags.DEFAULT, *, queue: Any = None
    ) -> None:
        if not isinstance(engine, Engine):
            raise InputError(
                f"a stream is made for an engine, not {type(engine).__name__}; a model has its own,"
                " model.engine"
            )
        if not isinstance(flags, int) or flags & ~int(
            StreamFlags.IN_ORDER | StreamFlags.OUT_OF_ORDER | StreamFlags.PROFILING
        ):
            raise InputError(
                f"stream flags {flags!r} are not known; there are"
                f" {', '.join(str(each.name) for each in StreamFlags)}"
            )
        flags = StreamFlags(flags)
        if StreamFlags.PROFILING in flags and StreamFlags.OUT_OF_ORDER in flags:
            raise InputError("a stream that profiles must be in order")
        if StreamFlags.OUT_OF_ORDER in flags:
            raise InputError("streams are in order")
        self.engine = engine
        self.flags = flags
        profiling = StreamFlags.PROFILING in flags
        self.queue = queue if queue is not None else engine.backend.queue(profiling=profiling)
        """The device queue of its runs, ours or the application's; `None` on the CPU."""
        self.profiler: Profiler | None = engine.backend.profiler() if profiling else None
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._change = threading.Condition()
        self._submitted = self._done = self._waited = 0
        self._failure: BaseException | None = None
        self._process = os.getpid()
        # The worker holds the queue, not the stream, so that a stream nobody holds any more ends
        # its worker.
        self._worker = threading.Thread(
            target=_work, args=(self._jobs,), name="whence-stream", daemon=True
        )
        self._worker.start()
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def submit(self, job: Callable[[Profiler | None], None]) -> None:
        """Do `job` after everything submitted before it."""
        if os.getpid() != self._process:
            raise StreamError(
                "the stream was made before this process was forked, and its thread stayed behind;"
                " make a new one"
            )

        def run() -> None:
            failure: BaseException | None = None
            try:
                job(self.profiler)
            except BaseException as error:
                failure = error
            with self._change:
                self._failure = self._failure or failure
                self._done += 1
                self._change.notify_all()

        # Under the lock, so that jobs stand in the queue in the order in which they are counted.
        with self._change:
            self._submitted += 1
            self._jobs.put(run)

    def wait(self) -> None:
        """Return when everything submitted so far is done. Raises the first error that happened
        since the last wait; the stream stays usable.

            >>> model = whence.compile("model.onnx")
            >>> stream = whence.Stream(model.engine)
            >>> run = model.execute(stream, np.zeros((1, 3, 32, 32), np.float32))
            >>> stream.wait()
        """
        with self._change:
            awaited = self._submitted
            self._change.wait_for(lambda: self._done >= awaited)
            self._waited = max(self._waited, awaited)
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @property
    def is_waited_for(self) -> bool:
        """Was everything that was submitted waited for? Being done by chance is not enough."""
        with self._change:
            return self._waited == self._submitted


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        # A job holds its stream, and this thread may sleep for long before it gets the next.
        del job


def check_stream(stream: object) -> None:
    """Raise `InputError` for what is no stream."""
    if not isinstance(stream, Stream):
        raise InputError(
            f"a stream is made with whence.Stream(model.engine), not {type(stream).__name__}"
        )


def _profiler(stream: Stream, doing: str) -> Profiler:
    check_stream(stream)
    if stream.profiler is None:
        raise StreamError(f"cannot {doing}: the stream was not created with StreamFlags.PROFILING")
    if not stream.is_waited_for:
        raise StreamError(
            f"cannot {doing}: work was submitted that was not waited for, call stream.wait() first"
        )
    return stream.profiler


def reset_profiling(stream: Stream) -> None:
    """Forget all executions of this stream.

    Example:

        >>> stream = whence.Stream(whence.Engine(), whence.StreamFlags.PROFILING)
        >>> whence.reset_profiling(stream)
    """
    _profiler(stream, "reset profiling").reset()


def num_entries(stream: Stream) -> int:
    """How many executions since the last reset have profiling data: those that ran at least one
    step.

        >>> stream = whence.Stream(whence.Engine(), whence.StreamFlags.PROFILING)
        >>> whence.num_entries(stream)
        0
    """
    return len(_profiler(stream, "count profiling entries").times())


def get_profiling_data(stream: Stream, kind: int) -> list[int]:
    """One number per execution since the last reset, in the order they were submitted.
    `ProfilingDataKind.TIME` is in nanoseconds.

    Data is kept until `reset_profiling`, so a stream that is never reset needs ever more memory.

        >>> model = whence.compile("model.onnx")
        >>> stream = whence.Stream(model.engine, whence.StreamFlags.PROFILING)
        >>> for _ in range(3):
        ...     run = model.execute(stream, np.zeros((1, 3, 32, 32), np.float32))
        >>> stream.wait()
        >>> len(whence.get_profiling_data(stream, whence.ProfilingDataKind.TIME))
        3
    """
    profiler = _profiler(stream, "query profiling data")
    if kind != ProfilingDataKind.TIME:
        raise InputError(
            f"profiling data of kind {kind!r} is not known; there is ProfilingDataKind.TIME"
        )
    return profiler.times()

"""Several runs at once: callers that share a model's weights, each with an arena of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")

# Runs that wait for a caller, for each caller: enough that none waits for the next input.
_AHEAD = 2


def run_in_order(
    run: Callable[[Given], Made], calls: Iterable[Given], streams: int
) -> Iterator[Made]:
    """What `run` gives for each of the calls, in their order, with so many of them at a time. No
    more calls are drawn than will run soon, so there may be more of them than memory holds.
    """
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(streams, thread_name_prefix="whence-stream") as callers:
        try:
            for call in calls:
                waiting.append(callers.submit(run, call))
                if len(waiting) >= _AHEAD * streams:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

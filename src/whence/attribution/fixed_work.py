"""A fixed piece of work between the runs of a model: how long it takes at least says how fast the
machine was then, whatever the model is.
"""

from __future__ import annotations

import time
import zlib

_BYTES = bytes(1 << 14)


def time_fixed_work() -> int:
    """Nanoseconds that one thread takes for a checksum of memory that its nearest cache holds: some
    ten microseconds. A first one brings memory and code there, as the run before left neither.
    """
    zlib.crc32(_BYTES)
    begin = time.perf_counter_ns()
    zlib.crc32(_BYTES)
    return time.perf_counter_ns() - begin

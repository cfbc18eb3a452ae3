"""A fixed piece of work between the runs of a model: how long it takes at least says how fast the
machine was then, whatever the model is.
"""

from __future__ import annotations

import time

import numpy as np

# All three matrices fit the nearest cache, and the product is too small to be shared among threads.
_SIZE, _PRODUCTS = 48, 4
_ONES = np.ones((_SIZE, _SIZE), np.float32)


def time_fixed_work() -> int:
    """Nanoseconds that one thread takes for some products of small matrices, ten or twenty
    microseconds: like the kernels of a model it keeps the vector units busy, which a neighbour on
    the same core takes a part of while code that computes little is as fast as ever. A first one
    brings memory and code near, as the run before left neither.
    """
    made = np.matmul(_ONES, _ONES)
    begin = time.perf_counter_ns()
    for _ in range(_PRODUCTS):
        np.matmul(_ONES, _ONES, out=made)
    return time.perf_counter_ns() - begin

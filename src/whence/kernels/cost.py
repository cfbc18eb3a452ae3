"""What the cost models of several kernels have in common: weights on their way, workers that
wait.
"""

from __future__ import annotations

_NOT_HIDDEN = 0.3
_WORKERS = 2
_UNEVEN = 0.1


def overlapped(computing: float, fetching: float) -> float:
    """Cycles where what is far is asked for while something else is multiplied, which hides most of
    the way.
    """
    return max(computing, fetching) + min(computing, fetching) * _NOT_HIDDEN


def idleness(tasks: int) -> float:
    """What it costs on average that work items cannot be divided evenly among workers: nothing when
    they can, a quarter when there is only one.

    Where others run on the same machine, workers are not equally fast either, and a quick one can
    only take over what a slow one has not begun.
    """
    return (3 + -(-tasks // _WORKERS) * _WORKERS / tasks) / 4 + _UNEVEN / tasks

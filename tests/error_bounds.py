"""How far two correct results may lie apart: bounds on rounding, which hold on every machine and
for every order of adding.
"""

from __future__ import annotations

import numpy as np


def product_bound(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The largest difference between two float32 products a @ b, element by element.

    A sum of n products added in any order, fused or not, is off by at most n·u/(1 - n·u) times the
    sum of their magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 3.1), u being
    half the distance from 1 to the next number. Two results may be off in opposite directions.
    """
    n, u = a.shape[-1], np.finfo(np.float32).eps / 2
    magnitudes: np.ndarray = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    return np.asarray(2 * n * u / (1 - n * u) * magnitudes)

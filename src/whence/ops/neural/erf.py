"""The error function over whole arrays, which NumPy does not have.

Rational approximations after W. J. Cody (Mathematics of Computation 23, 1969), one for each of
three ranges of |x|. Everything is computed in float64: float64 results are good to about 1e-15,
float32 results are correctly rounded almost everywhere.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Floats: TypeAlias = NDArray[np.float64]
_Coefficients: TypeAlias = tuple[float, ...]

# Numerators and denominators, highest power first.
_SMALL: tuple[_Coefficients, _Coefficients] = (
    (
        1.85777706184603153e-1,
        3.16112374387056560e0,
        1.13864154151050156e2,
        3.77485237685302021e2,
        3.20937758913846947e3,
    ),
    (
        1.0,
        2.36012909523441209e1,
        2.44024637934444173e2,
        1.28261652607737228e3,
        2.84423683343917062e3,
    ),
)
_MIDDLE: tuple[_Coefficients, _Coefficients] = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594e0,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ),
    (
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ),
)
_LARGE: tuple[_Coefficients, _Coefficients] = (
    (
        1.63153871373020978e-2,
        3.05326634961232344e-1,
        3.60344899949804439e-1,
        1.25781726111229246e-1,
        1.60837851487422766e-2,
        6.58749161529837803e-4,
    ),
    (
        1.0,
        2.56852019228982242e0,
        1.87295284992346725e0,
        5.27905102951428412e-1,
        6.05183413124413191e-2,
        2.33520497626869185e-3,
    ),
)
_SMALL_END = 0.46875
_MIDDLE_END = 4.0
# Beyond this erf is 1 in float64.
_ONE_FROM = 5.93
# Elements worked on at a time, so that the temporaries stay in the cache.
_CHUNK = 1 << 14


def erf(x: np.ndarray) -> np.ndarray:
    """erf(x) for a floating-point array of any shape, in the same type. NaN stays NaN."""
    result = np.empty(x.shape, x.dtype)
    source, target = np.ascontiguousarray(x).reshape(-1), result.reshape(-1)
    for start in range(0, source.size, _CHUNK):
        part = source[start : start + _CHUNK].astype(np.float64)
        target[start : start + _CHUNK] = _erf(part).astype(x.dtype)
    return result


def _erf(x: _Floats) -> _Floats:
    size = np.abs(x)
    # NaN fails every comparison and passes through as it is; so do zeros, with their sign.
    result = x.copy()
    small = size <= _SMALL_END
    middle = (size > _SMALL_END) & (size <= _MIDDLE_END)
    large = (size > _MIDDLE_END) & (size < _ONE_FROM)
    if small.any():
        t = x[small]
        result[small] = t * _ratio(_SMALL, t * t)
    if middle.any():
        t = size[middle]
        result[middle] = np.copysign(1.0 - np.exp(-t * t) * _ratio(_MIDDLE, t), x[middle])
    if large.any():
        t = size[large]
        inverse = 1.0 / (t * t)
        tail = np.exp(-t * t) / t * (1.0 / math.sqrt(math.pi) - inverse * _ratio(_LARGE, inverse))
        result[large] = np.copysign(1.0 - tail, x[large])
    beyond = size >= _ONE_FROM
    result[beyond] = np.sign(x[beyond])
    return result


def _ratio(polynomials: tuple[_Coefficients, _Coefficients], t: _Floats) -> _Floats:
    numerator, denominator = polynomials
    return _polynomial(numerator, t) / _polynomial(denominator, t)


def _polynomial(coefficients: _Coefficients, t: _Floats) -> _Floats:
    value = np.full_like(t, coefficients[0])
    for coefficient in coefficients[1:]:
        value *= t
        value += coefficient
    return value

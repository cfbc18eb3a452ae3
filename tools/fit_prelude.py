"""Find the coefficients of the float32 functions in `whence/codegen/prelude.py`, and print them
with their errors.

Needs mpmath (`pip install mpmath`) and a minute. A function is written with a polynomial in a
variable that spans a short interval; its coefficients minimise the largest relative error of the
whole function there (Lawson's reweighting of least squares, in 40 digits). They are rounded to
float32 one after the other, and those still free are found again each time, so that they make up
for the rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import mpmath as mp
import numpy as np

mp.mp.dps = 40
NODES = 120
ROUNDS = 40

Real = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Fit:
    """Find P with `value(x) ≈ P(t(x))`."""

    name: str
    low: float
    high: float
    value: Real
    t: Real
    scale: Real
    """The function's relative error is this times the absolute error of `value`."""
    degree: int


def chebyshev(low: float, high: float) -> list[mp.mpf]:
    middle, half = (mp.mpf(low) + high) / 2, (mp.mpf(high) - low) / 2
    return [middle + half * mp.cos(mp.pi * (2 * k + 1) / (2 * NODES)) for k in range(NODES)]


def solve(fit: Fit, known: Mapping[int, mp.mpf]) -> tuple[dict[int, mp.mpf], mp.mpf]:
    """All coefficients by degree, those known among them, and the largest relative error."""
    points = [(fit.t(x), fit.value(x), abs(fit.scale(x))) for x in chebyshev(fit.low, fit.high)]
    free = [k for k in range(fit.degree + 1) if k not in known]
    size = max(abs(t) for t, _, _ in points)  # keeps the columns of like magnitude
    lawson = [mp.mpf(1) / NODES] * NODES
    best: tuple[dict[int, mp.mpf], mp.mpf] = ({}, mp.inf)
    for _ in range(ROUNDS if free else 1):
        found = dict(known)
        if free:
            rows, right = [], []
            for (t, value, scale), weight in zip(points, lawson, strict=True):
                w = mp.sqrt(weight) * scale
                rows.append([w * (t / size) ** k for k in free])
                right.append(w * (value - sum(c * t**k for k, c in known.items())))
            matrix, vector = mp.matrix(rows), mp.matrix(right)
            solution = mp.lu_solve(matrix.T * matrix, matrix.T * vector)
            found |= {k: solution[position] / size**k for position, k in enumerate(free)}
        errors = [
            abs(sum(c * t**k for k, c in found.items()) - value) * scale
            for t, value, scale in points
        ]
        if max(errors) < best[1]:
            best = (found, max(errors))
        total = sum(w * e for w, e in zip(lawson, errors, strict=True))
        lawson = [w * e / total + mp.mpf(10) ** -30 for w, e in zip(lawson, errors, strict=True)]
    return best


def solve_rounded(fit: Fit) -> tuple[dict[int, mp.mpf], mp.mpf, mp.mpf]:
    """Coefficients in float32, the error they leave, and the error that unrounded ones would."""
    known: dict[int, mp.mpf] = {}
    found, ideal = solve(fit, known)
    error = ideal
    for k in range(fit.degree, -1, -1):
        known[k] = mp.mpf(float(np.float32(float(found[k]))))
        found, error = solve(fit, known)
    return found, error, ideal


FITS = (
    # e^r = 1 + r + r²·P(r) where |r| ≤ ln 2 / 2
    Fit(
        "exp",
        -0.3466,
        0.3466,
        lambda r: (mp.exp(r) - 1 - r) / r**2,
        lambda r: r,
        lambda r: r**2 / mp.exp(r),
        4,
    ),
    # log(1 + f) = f - f²/2 + f³·P(f) where 1 + f lies between √½ and √2
    Fit(
        "log",
        -0.29290,
        0.41422,
        lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
        lambda f: f,
        lambda f: f**3 / mp.log1p(f),
        7,
    ),
    # tanh x = x + x³·P(x²) where |x| < 0.6; beyond, 1 - 2/(e^2x + 1) is exact enough
    Fit(
        "tanh",
        1e-4,
        0.601,
        lambda x: (mp.tanh(x) / x - 1) / x**2,
        lambda x: x**2,
        lambda x: x**3 / mp.tanh(x),
        4,
    ),
    # erf x = x + x·P(x²) where |x| < 1
    Fit(
        "erf, small",
        1e-4,
        1.001,
        lambda x: mp.erf(x) / x - 1,
        lambda x: x**2,
        lambda x: x / mp.erf(x),
        6,
    ),
    # erf x = 1 - P(x - 2.4) from there to where it rounds to 1
    Fit(
        "erf, large",
        0.999,
        3.925,
        mp.erfc,
        lambda x: x - mp.mpf("2.4"),
        lambda x: 1 / mp.erf(x),
        12,
    ),
)


def solve_quotient(
    t: np.ndarray, value: np.ndarray, degree: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """P and Q of this degree, lowest first and Q(0) = 1, and the largest relative error of P / Q.

    P - value·Q is linear in what is sought; dividing it by the Q of the round before makes its
    error that of the quotient.
    """
    size = t.max()
    powers = np.vander(t / size, degree + 1, increasing=True)
    columns = np.hstack([powers, -value[:, None] * powers[:, 1:]])
    lawson, below = np.ones(len(t)), np.ones(len(t))
    best, least = np.zeros(2 * degree + 1), np.inf
    for _ in range(300):
        weight = np.sqrt(lawson) / (value * below)
        found, *_ = np.linalg.lstsq(columns * weight[:, None], value * weight, rcond=1e-16)
        below = 1 + powers[:, 1:] @ found[degree + 1 :]
        error = np.abs(powers @ found[: degree + 1] / below / value - 1)
        if error.max() < least:
            best, least = found, error.max()
        lawson = lawson * (error / error.max() + 1e-3)
        lawson /= lawson.mean()
    scale = size ** np.arange(degree + 1)
    return best[: degree + 1] / scale, np.append(1.0, best[degree + 1 :]) / scale, least


def show_erf_plus_1() -> None:
    """erf x = x·P(x²) / Q(x²) up to where it rounds to 1, for a sum that takes only its first
    digits.
    """
    t = 3.925**2 * (np.cos(np.pi * (np.arange(1200) + 0.5) / 1200) + 1) / 2
    value = np.array([float(mp.erf(x) / x) for x in np.sqrt(t)])
    above, below, error = solve_quotient(t, value, 5)
    print(f"erf + 1: largest relative error {error:.3g} before rounding")
    for name, found in (("P", above), ("Q", below)):
        print(
            f"  {name}, highest degree first:",
            ", ".join(c_text(np.float32(c)) for c in found[::-1]),
        )


def c_text(value: mp.mpf) -> str:
    mantissa, exponent = float(value).hex().split("p")
    return f"{mantissa.rstrip('0')}p{exponent}f"


def main() -> None:
    for fit in FITS:
        found, error, ideal = solve_rounded(fit)
        print(
            f"{fit.name}: largest relative error {mp.nstr(error, 3)}, before rounding"
            f" {mp.nstr(ideal, 3)}"
        )
        print(
            "  highest degree first:",
            ", ".join(c_text(found[k]) for k in range(fit.degree, -1, -1)),
        )
    show_erf_plus_1()


if __name__ == "__main__":
    main()

"""Nights that nobody measured: profiles of made-up models with the noise of real runs."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.simulated_profile import profile_of
from whence.fleet.cell import Cell
from whence.fleet.cell_result import CellResult, Status

NOISE = Path(__file__).with_name("noise.json")
FIRST = datetime.date(2026, 1, 1)


def real_noise() -> np.ndarray:
    """By profile and operator: the time beside its median, see `record_noise`."""
    return np.array(json.loads(NOISE.read_text(encoding="utf-8")))


def night_name(number: int) -> str:
    return (FIRST + datetime.timedelta(days=number)).isoformat()


def base_times(model: str, operators: int) -> np.ndarray:
    """What the operators of a made-up model take, in nanoseconds: always the same."""
    seed = int.from_bytes(hashlib.sha256(model.encode()).digest()[:4])
    return np.random.default_rng(seed).lognormal(11.0, 1.2, operators)


def cell_of(model: str, night: int, **facts: Any) -> Cell:
    digest = hashlib.sha256(model.encode()).hexdigest()
    return Cell(
        model, digest, version=f"0.1.{night}", machine="made-up", night=night_name(night), **facts
    )


def series_of(
    model: str,
    nights: int,
    rng: np.random.Generator,
    *,
    operators: int = 24,
    slower: tuple[int, int, float] | None = None,
    prefix: str = "",
) -> Iterator[tuple[Cell, CellResult]]:
    """So many nights of a model. `slower` makes an operator slower, from a night on, by a factor.

    Each night has the noise of one real profile, all of its operators together: what disturbs one
    disturbs its neighbours.
    """
    noise = real_noise()
    base = base_times(model, operators)
    for night in range(nights):
        times = base * noise[rng.integers(len(noise))][np.arange(operators) % noise.shape[1]]
        if slower is not None and night >= slower[1]:
            times[slower[0]] *= slower[2]
        began = f"{night_name(night)}T02:00:00.000000Z"
        yield (
            cell_of(model, night),
            CellResult(
                Status.DONE, profile_of(model, times, prefix=prefix), began=began, seconds=1.0
            ),
        )

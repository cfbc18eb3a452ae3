"""Profiles of models that do not exist, for measuring and testing what is done with profiles."""

from __future__ import annotations

from typing import Any

import numpy as np


def profile_of(model: str, times: np.ndarray, runs: int = 20, prefix: str = "") -> dict[str, Any]:
    """The contents of a profile.json whose operators took these times in each run."""
    sources, kernels, total = [], [], 0
    for number, time in enumerate(times.astype(np.int64).tolist(), 1):
        total += time * runs
        sources.append(
            {
                "id": number,
                "name": f"{prefix}/layer{number // 4}/op{number}",
                "op": ("Conv", "Relu", "Add", "MatMul")[number % 4],
                "fate": "live",
                "time_ns": time * runs,
                "kernels": [number - 1],
                "module": f"layer{number // 4}",
                "line": f"model.py:{10 + number}",
                "became": "fused with the next",
                "band_ns": [time, time, time],
            }
        )
        kernels.append(
            {
                "id": number - 1,
                "name": f"kernel{number}",
                "ops": ["Conv", "Relu"],
                "time_ns": time * runs,
                "calls": runs,
                "min_ns": time,
                "waited_ns": 0,
                "why_reference": "",
            }
        )
    wall = total // runs + 1000
    return {
        "model": model,
        "runs": runs,
        "wall_ns": wall * runs,
        "residual_ns": {"dispatch": wall * runs - total},
        "runs_ns": [wall] * runs,
        "sources": sources,
        "kernels": kernels,
        "environment": {"cpu": "made up"},
    }

"""Reading profile.json back."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

from whence.attribution.profile import SCHEMA, Profile
from whence.building.json_records import MISREAD, decoded
from whence.building.machine_record import decode
from whence.errors import ModelError


def read_profile(path: str | Path) -> Profile:
    """The profile in a `profile.json`, or in a folder that holds one. It cannot be drawn as a
    graph: that is not in the file.
    """
    path = Path(path)
    file = path / "profile.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"'{file}': no such file") from None
    except OSError as error:
        raise ModelError(f"'{file}' cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"'{file}' is not a profile, which is JSON; `whence profile MODEL -o FOLDER` writes one"
            f" ({error})"
        ) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else None
        raise ModelError(f"'{file}' is not a profile: its schema is {found!r}, not {SCHEMA!r}")
    try:
        found = decoded(Profile, {"policy": "", **content, "machine": None})
        _check_numbers(found)
        machine = content.get("machine")
        return replace(found, rates=decode(machine) if machine else None)
    except MISREAD as error:
        raise ModelError(
            f"'{file}' is a damaged profile: {type(error).__name__} {error}"
        ) from error


def _check_numbers(profile: Profile) -> None:
    """Raises `ValueError` where a row names an operator or a kernel that has no row, where a weight
    is none, and where there are no runs to divide by.
    """
    sources, kernels = ({row.id for row in rows} for rows in (profile.sources, profile.kernels))
    for kind, known, named in (
        ("operator", sources, (part.id for row in profile.kernels for part in row.origin)),
        ("kernel", kernels, (number for row in profile.sources for number in row.kernels)),
        ("kernel", kernels, (event.kernel for event in profile.timeline)),
        ("kernel", kernels, (event.kernel for event in profile.workers)),
    ):
        if missing := set(named) - known:
            raise ValueError(f"there is no {kind} {min(missing)}")
    for row in profile.kernels:
        for part in row.origin:
            if not 0 <= part.weight < math.inf:
                raise ValueError(f"{part.weight} as a weight")
    if profile.runs < 1:
        raise ValueError(f"{profile.runs} runs")

"""Reading profile.json back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from whence.attribution.profile import SCHEMA, Profile
from whence.calibration.json_records import MISREAD, decoded
from whence.calibration.record import decode
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
        machine = content.get("machine")
        return replace(found, rates=decode(machine) if machine else None)
    except MISREAD as error:
        raise ModelError(
            f"'{file}' is a damaged profile: {type(error).__name__} {error}"
        ) from error

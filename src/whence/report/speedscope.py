"""speedscope.json: a flame graph of all the time, and the timeline of one run. Opens at
speedscope.app and offline.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whence.attribution.profile import Profile
from whence.attribution.rows import KernelRow, SourceRow
from whence.plural import counted
from whence.report.stacks import location, parts_of_event, stacks


def write_speedscope(profile: Profile, folder: Path) -> list[Path]:
    file = folder / "speedscope.json"
    file.write_text(json.dumps(speedscope(profile)) + "\n", encoding="utf-8")
    return [file]


def speedscope(profile: Profile) -> dict[str, Any]:
    frames = _Frames()
    profiles = [_flame(profile, frames)]
    if profile.timeline:
        profiles.append(_timeline(profile, frames))
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": profile.model,
        "activeProfileIndex": 0,
        "exporter": "whence",
        # Not part of the format, which leaves room for more; for those who read the file.
        "policy": profile.policy,
        "environment": dict(profile.environment),
        "notes": list(profile.notes),
        "shared": {"frames": frames.rows},
        "profiles": profiles,
    }


class _Frames:
    """Frames are told apart by what they stand for, not by name: two operators may share one."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._numbers: dict[tuple[str, object], int] = {}

    def number(self, kind: str, key: object, name: str, place: tuple[str, int] = ("", 0)) -> int:
        if (kind, key) not in self._numbers:
            self._numbers[kind, key] = len(self.rows)
            row = {"name": name, "file": place[0], "line": place[1]}
            self.rows.append(
                {field: value for field, value in row.items() if value or field == "name"}
            )
        return self._numbers[kind, key]

    def operator(self, row: SourceRow) -> int:
        return self.number("operator", row.id, f"{row.name} ({row.op})", location(row))

    def kernel(self, row: KernelRow) -> int:
        return self.number("kernel", row.id, f"kernel {row.id} {row.name}")


def _flame(profile: Profile, frames: _Frames) -> dict[str, Any]:
    samples, weights = [], []
    root = frames.number("model", 0, profile.model or "model")
    for stack in stacks(profile):
        path = [root]
        for depth in range(len(stack.modules)):
            path.append(frames.number("module", stack.modules[: depth + 1], stack.modules[depth]))
        if stack.source is not None and stack.kernel is not None:
            path += [frames.operator(stack.source), frames.kernel(stack.kernel)]
        else:
            path.append(frames.number("residual", stack.residual, f"({stack.residual})"))
        samples.append(path)
        weights.append(stack.time_ns)
    return {
        "type": "sampled",
        "name": f"by operator, {counted(profile.runs, 'run')}",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _timeline(profile: Profile, frames: _Frames) -> dict[str, Any]:
    rows = {row.id: row for row in profile.sources}
    kernels = {row.id: row for row in profile.kernels}
    events: list[dict[str, Any]] = []

    for event in profile.timeline:
        kernel, at = kernels[event.kernel], event.begin_ns
        frame = frames.kernel(kernel)
        events.append({"type": "O", "at": event.begin_ns, "frame": frame})
        for row, length in parts_of_event(event, kernel, rows):
            inner = frames.operator(row)
            events.append({"type": "O", "at": at, "frame": inner})
            at += length
            events.append({"type": "C", "at": at, "frame": inner})
        events.append({"type": "C", "at": event.end_ns, "frame": frame})
    return {
        "type": "evented",
        "name": "one run",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": max(profile.timeline_ns, profile.timeline[-1].end_ns),
        "events": events,
    }

"""speedscope.json: a flame graph of all the time, and the timeline of one run. Opens at
speedscope.app and offline.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whence.attribution.profile import Profile
from whence.attribution.rows import KernelRow
from whence.attribution.split import largest_remainder
from whence.report.stacks import location, stacks


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
        known = self._numbers.get((kind, key))
        if known is not None:
            return known
        row: dict[str, Any] = {"name": name}
        if place[0]:
            row["file"] = place[0]
        if place[1]:
            row["line"] = place[1]
        self.rows.append(row)
        self._numbers[kind, key] = len(self.rows) - 1
        return len(self.rows) - 1

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
            path.append(
                frames.number(
                    "operator",
                    stack.source.id,
                    f"{stack.source.name} ({stack.source.op})",
                    location(stack.source),
                )
            )
            path.append(frames.kernel(stack.kernel))
        else:
            path.append(frames.number("residual", stack.residual, f"({stack.residual})"))
        samples.append(path)
        weights.append(stack.time_ns)
    return {
        "type": "sampled",
        "name": f"by operator, {profile.runs} runs",
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

    def slice_of(frame: int, begin: int, end: int, inner: list[tuple[int, int]]) -> None:
        events.append({"type": "O", "at": begin, "frame": frame})
        at = begin
        for each, length in inner:
            events.append({"type": "O", "at": at, "frame": each})
            at += length
            events.append({"type": "C", "at": at, "frame": each})
        events.append({"type": "C", "at": end, "frame": frame})

    for event in profile.timeline:
        kernel = kernels[event.kernel]
        lengths = (
            largest_remainder(
                event.end_ns - event.begin_ns, [part.time_ns for part in kernel.origin]
            )
            if kernel.origin
            else []
        )
        inner = [
            (
                frames.number(
                    "operator",
                    part.id,
                    f"{rows[part.id].name} ({rows[part.id].op})",
                    location(rows[part.id]),
                ),
                length,
            )
            for part, length in zip(kernel.origin, lengths, strict=True)
            if length
        ]
        slice_of(frames.kernel(kernel), event.begin_ns, event.end_ns, inner)
    return {
        "type": "evented",
        "name": "one run",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": max(profile.timeline_ns, profile.timeline[-1].end_ns),
        "events": events,
    }

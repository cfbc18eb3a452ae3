"""Reading profile.json back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whence.attribution.memory_use import Held, MemoryUse
from whence.attribution.profile import SCHEMA, Profile
from whence.attribution.row_json import decode_kernel, decode_source
from whence.attribution.rows import Event, WorkerEvent
from whence.attribution.throughput import Throughput
from whence.calibration.record import decode
from whence.errors import ModelError
from whence.graph.outcomes import Coverage


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
        return _profile(content)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"'{file}' is a damaged profile: {type(error).__name__} {error}"
        ) from error


def _profile(content: Mapping[str, Any]) -> Profile:
    return Profile(
        model=str(content["model"]),
        engine=str(content["engine"]),
        threads=int(content["threads"]),
        runs=int(content["runs"]),
        wall_ns=int(content["wall_ns"]),
        residual_ns={str(name): int(time) for name, time in content["residual_ns"].items()},
        overhead_ratio=float(content["overhead_ratio"]),
        coverage=Coverage(**{str(name): int(count) for name, count in content["coverage"].items()}),
        sources=tuple(decode_source(row) for row in content["sources"]),
        kernels=tuple(decode_kernel(row) for row in content["kernels"]),
        passes={str(name): int(time) for name, time in content.get("passes", {}).items()},
        runs_ns=tuple(int(time) for time in content.get("runs_ns", ())),
        fixed_products_ns=tuple(int(time) for time in content.get("fixed_products_ns", ())),
        timeline=tuple(Event(*map(int, event)) for event in content.get("timeline", ())),
        timeline_ns=int(content.get("timeline_ns", 0)),
        workers=tuple(WorkerEvent(*map(int, event)) for event in content.get("workers", ())),
        throughput=(
            Throughput.from_dict(content["throughput"]) if content.get("throughput") else None
        ),
        policy=str(content.get("policy", "")),
        notes=tuple(str(note) for note in content.get("notes", ())),
        memory=_memory(content["memory"]) if content.get("memory") else None,
        rates=decode(content["machine"]) if content.get("machine") else None,
        environment={str(name): str(fact) for name, fact in content.get("environment", {}).items()},
    )


def _memory(content: Mapping[str, Any]) -> MemoryUse:
    return MemoryUse(
        int(content["weights_bytes"]),
        int(content["arena_bytes"]),
        int(content["scratch_bytes"]),
        tuple(int(size) for size in content["alive_bytes"]),
        tuple(
            Held(int(size), int(first), int(last), tuple(int(each) for each in sources), str(kind))
            for size, first, last, sources, kind in content["held"]
        ),
    )

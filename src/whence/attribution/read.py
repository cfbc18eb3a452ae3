"""Reading profile.json back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whence.attribution.memory_use import Held, MemoryUse
from whence.attribution.profile import SCHEMA, Profile
from whence.attribution.rows import (
    Band,
    Distribution,
    Event,
    KernelRow,
    Part,
    SourceRow,
    WorkerEvent,
)
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
        sources=tuple(_source(row) for row in content["sources"]),
        kernels=tuple(_kernel(row) for row in content["kernels"]),
        passes={str(name): int(time) for name, time in content.get("passes", {}).items()},
        runs_ns=tuple(int(time) for time in content.get("runs_ns", ())),
        fixed_work_ns=tuple(int(time) for time in content.get("fixed_work_ns", ())),
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


def _source(row: Mapping[str, Any]) -> SourceRow:
    return SourceRow(
        id=int(row["id"]),
        name=str(row["name"]),
        op=str(row["op"]),
        fate=str(row["fate"]),
        time_ns=int(row["time_ns"]),
        share=float(row["share"]),
        kernels=tuple(int(kernel) for kernel in row["kernels"]),
        module=str(row.get("module", "")),
        module_from=str(row.get("module_from", "")),
        line=str(row.get("line", "")),
        scope=str(row.get("scope", "")),
        positions=(
            None
            if row.get("positions") is None
            else tuple(int(position) for position in row["positions"])
        ),
        table_id=None if row.get("table_id") is None else int(row["table_id"]),
        became=str(row.get("became", "")),
        inserted_ns=int(row.get("inserted_ns", 0)),
        band=Band(*map(int, row.get("band_ns", (0, 0, 0)))),
        distribution=Distribution(*map(int, row.get("distribution_ns", (0, 0, 0, 0)))),
        blocks=tuple(int(time) for time in row.get("blocks_ns", ())),
        error_ns=int(row.get("error_ns", 0)),
        flops=int(row.get("flops", 0)),
        bytes=int(row.get("bytes", 0)),
        of_peak=float(row.get("of_peak", 0.0)),
        bound=str(row.get("bound", "")),
    )


def _kernel(row: Mapping[str, Any]) -> KernelRow:
    return KernelRow(
        id=int(row["id"]),
        name=str(row["name"]),
        origin=tuple(
            Part(
                int(part["id"]),
                float(part["weight"]),
                int(part.get("time_ns", 0)),
                int(part.get("inserted_ns", 0)),
            )
            for part in row["origin"]
        ),
        time_ns=int(row["time_ns"]),
        calls=int(row["calls"]),
        min_ns=int(row["min_ns"]),
        native=bool(row["native"]),
        why_reference=str(row.get("why_reference", "")),
        inserted=bool(row.get("inserted", False)),
        ops=tuple(str(op) for op in row.get("ops", ())),
        shape=str(row.get("shape", "")),
        waited_ns=int(row.get("waited_ns", 0)),
        runs_ns=tuple(int(time) for time in row.get("runs_ns", ())),
        shortest_busy_ns=tuple(int(time) for time in row.get("shortest_busy_ns", ())),
        error=float(row.get("error", 0.0)),
        flops=int(row.get("flops", 0)),
        bytes=int(row.get("bytes", 0)),
        defined_flops=int(row.get("defined_flops", 0)),
        executed_flops=int(row.get("executed_flops", 0)),
        executed_bytes=int(row.get("executed_bytes", 0)),
        least_ns=float(row.get("least_ns", 0.0)),
        bound=str(row.get("bound", "")),
        items=int(row.get("items", 1)),
        workers=int(row.get("workers", 1)),
        is_contraction=bool(row.get("is_contraction", False)),
        trait_kind=str(row.get("trait_kind", "")),
        trait=str(row.get("trait", "")),
        reach=float(row.get("reach", 1.0)),
        reads=tuple(int(each) for each in row.get("reads", ())),
        made_bytes=int(row.get("made_bytes", 0)),
        inserted_by=str(row.get("inserted_by", "")),
        evidence=str(row.get("evidence", "")),
        uncertain=str(row.get("uncertain", "")),
    )

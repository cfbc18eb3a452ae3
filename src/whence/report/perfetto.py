"""trace.pftrace: one run on a timeline, for ui.perfetto.dev. Kernels on one track, the operators in
them on another, tied together by flows; and where threads noted what they did, a track for each,
waiting among it.

Field numbers are those of Perfetto's trace_packet.proto, track_event.proto and
track_descriptor.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whence.attribution.profile import Profile
from whence.attribution.rows import KernelRow, SourceRow
from whence.plural import counted
from whence.report import wire
from whence.report.lanes import lanes
from whence.report.stacks import location, parts_of_event

_PROCESS, _KERNELS, _OPERATORS, _FIRST_WORKER = 1, 2, 3, 4
_BEGIN, _END = 1, 2
_SEQUENCE = 1
_STATE_CLEARED = 1


def write_perfetto(profile: Profile, folder: Path) -> list[Path]:
    file = folder / "trace.pftrace"
    file.write_bytes(perfetto(profile))
    return [file]


def perfetto(profile: Profile) -> bytes:
    """The message `perfetto.protos.Trace`."""
    return b"".join(wire.message(1, packet) for packet in _packets(profile))


def _packets(profile: Profile) -> Iterator[bytes]:
    process = wire.number(1, 1) + wire.text(6, f"whence {profile.engine}: {profile.model}")
    yield _track(_PROCESS, process=process, first=True)
    threads = counted(profile.threads, "thread")
    thread = wire.number(1, 1) + wire.number(2, 1) + wire.text(5, f"kernels ({threads})")
    yield _track(_KERNELS, parent=_PROCESS, thread=thread)
    yield _track(_OPERATORS, parent=_PROCESS, name="operators of the file")
    rows = {row.id: row for row in profile.sources}
    kernels = {row.id: row for row in profile.kernels}
    yield _event(
        0,
        _BEGIN,
        _KERNELS,
        name="run",
        notes={
            "policy": profile.policy,
            **profile.environment,
            **{f"note {number}": note for number, note in enumerate(profile.notes, 1)},
        },
    )
    last = profile.timeline_ns
    for position, event in enumerate(profile.timeline):
        kernel = kernels[event.kernel]
        last = max(last, event.end_ns)
        shown = parts_of_event(event, kernel, rows)
        flows = [position << 20 | number for number in range(1, len(shown) + 1)]
        yield _event(
            event.begin_ns,
            _BEGIN,
            _KERNELS,
            name=f"{kernel.id} {kernel.name}",
            category="kernel",
            flows=flows,
            notes=_kernel_notes(kernel),
        )
        if event.waited_ns:
            waits = event.end_ns - event.waited_ns
            name = "waiting for other threads"
            yield from _slice(waits, event.end_ns, _KERNELS, name=name, category="waiting")
        yield _event(event.end_ns, _END, _KERNELS)
        at = event.begin_ns
        for (row, length), flow in zip(shown, flows, strict=True):
            yield from _slice(
                at,
                at + length,
                _OPERATORS,
                name=row.name,
                category="operator",
                flows=[flow],
                source=row,
                notes=_source_notes(row),
            )
            at += length
    yield _event(last, _END, _KERNELS)
    yield from _workers(profile, kernels)


def _workers(profile: Profile, kernels: Mapping[int, KernelRow]) -> Iterator[bytes]:
    """A track for each thread: what it did of each kernel, and where it waited during one."""
    for worker, spans in lanes(profile).items():
        track = _FIRST_WORKER + worker
        # Process and thread numbers only have to differ; the kernels' track is thread 1.
        name = f"thread {worker}" + (" (caller)" if worker == 0 else "")
        thread = wire.number(1, 1) + wire.number(2, 2 + worker) + wire.text(5, name)
        yield _track(track, parent=_PROCESS, thread=thread)
        for span in spans:
            kernel = kernels[span.kernel]
            name, category = f"{kernel.id} {kernel.name}", "work"
            if span.is_waiting:
                name = category = "waiting"
            yield from _slice(span.begin_ns, span.end_ns, track, name=name, category=category)


def _track(
    uuid: int,
    *,
    parent: int = 0,
    name: str = "",
    process: bytes = b"",
    thread: bytes = b"",
    first: bool = False,
) -> bytes:
    content = wire.number(1, uuid)
    content += wire.text(2, name) if name else b""
    content += wire.message(3, process) if process else b""
    content += wire.message(4, thread) if thread else b""
    content += wire.number(5, parent) if parent else b""
    flags = wire.number(13, _STATE_CLEARED) if first else b""
    return wire.number(10, _SEQUENCE) + flags + wire.message(60, content)


def _slice(begin: int, end: int, track: int, **about: Any) -> Iterator[bytes]:
    """From begin to end, with nothing else of the track between."""
    yield _event(begin, _BEGIN, track, **about)
    yield _event(end, _END, track)


def _event(
    at: int,
    kind: int,
    track: int,
    *,
    name: str = "",
    category: str = "",
    flows: list[int] | None = None,
    source: SourceRow | None = None,
    notes: dict[str, str | int] | None = None,
) -> bytes:
    content = b"".join(wire.message(4, _note(key, value)) for key, value in (notes or {}).items())
    content += wire.number(9, kind) + wire.number(11, track)
    content += wire.text(22, category) if category else b""
    content += wire.text(23, name) if name else b""
    content += b"".join(wire.fixed64(47, flow) for flow in flows or [])
    if source is not None:
        content += wire.number(52, source.id)
        file, line = location(source)
        if file:
            frame = (
                wire.text(1, source.module or source.name)
                + wire.text(2, file)
                + wire.number(3, line)
            )
            content += wire.message(55, wire.message(1, frame))
    return wire.number(8, at) + wire.number(10, _SEQUENCE) + wire.message(11, content)


def _note(key: str, value: str | int) -> bytes:
    return wire.text(10, key) + (
        wire.number(4, value) if isinstance(value, int) else wire.text(6, value)
    )


def _kernel_notes(kernel: KernelRow) -> dict[str, str | int]:
    notes: dict[str, str | int] = {
        "operators": ", ".join(kernel.ops),
        "native": "yes" if kernel.native else kernel.why_reference or "no",
    }
    if kernel.inserted:
        notes["inserted"] = "a layout change, charged to the operators that caused it"
    return notes


def _source_notes(row: SourceRow) -> dict[str, str | int]:
    notes: dict[str, str | int] = {
        "source_id": row.id,
        "type": row.op,
        "became": row.became,
        "time_ns in all runs": row.time_ns,
    }
    optional = {"module": row.module, "line": row.line}
    return notes | {key: value for key, value in optional.items() if value}

"""A recording of ExecuTorch, from an ETDump (what its event tracer wrote on the device) and the
ETRecord that was generated when the program was exported.

1. Events have the number of the instruction they belong to: `OPERATOR_CALL`, `DELEGATE_CALL`, and
   what a delegate noted of its own operators, with a delegate debug id. `Method::execute` is a run.
2. The ETRecord maps instructions to debug handles, and delegate ids to several of them. Operators of
   the edge program in it have such a handle, and the names of the operators that they stem from in
   the program of `torch.export`.
3. A delegate that published no such map (XNNPACK) has ids of its own for what it notes: its time is
   that of the call, which has the operators of the whole delegated part.

Field numbers are those of ExecuTorch's etdump_schema_flatcc.fbs.
"""

from __future__ import annotations

import itertools
import json
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flatbuffers.encode
import flatbuffers.number_types as types
import numpy as np
from flatbuffers.table import Table

from whence.errors import ModelError
from whence.foreign.reading import reading
from whence.foreign.recording import EngineNode, Recording
from whence.foreign.source import SourceGraph

IDENTIFIER = b"ED00"
_CALLS = frozenset({"OPERATOR_CALL", "DELEGATE_CALL"})
_EXECUTE = "Method::execute"
_KERNEL = "native_call_"
_PROGRAM = "edge_dialect_exported_program"
_MOST_EVENTS = 5_000_000
"""A small file may claim many: its lists may overlap."""
Key = tuple[int, str]
"""An instruction, and the delegate's own id of an operator in it; empty for the whole call."""


class ProfileEvent(NamedTuple):
    name: str
    instruction: int
    delegate_id: str
    begin: int
    end: int


class _Run(NamedTuple):
    wall_ns: int
    spent_ns: Mapping[Key, int]
    names: Mapping[Key, str]


def read_executorch(source: SourceGraph, dump: Path, record: Path) -> Recording:
    blocks = read_etdump(dump)
    handles = read_handles(record)
    runs = [found for events in blocks if (found := _run(events, handles)) is not None]
    if not runs:
        raise ModelError(
            f"'{dump}' has no profiled operators: is the runtime built with the event tracer"
            " (EXECUTORCH_ENABLE_EVENT_TRACER)?"
        )
    keys = sorted({key for run in runs for key in run.spent_ns})
    names = {key: name for run in runs for key, name in run.names.items()}
    nodes = tuple(
        EngineNode(
            number,
            f"{key[0]}{f'.{key[1]}' if key[1] else ''} {names[key]}",
            names[key],
            holds=source.running(handles.get(key, ())),
            is_composite=True,
        )
        for number, key in enumerate(keys)
    )
    spent = np.array(
        [[run.spent_ns.get(key, 0) for key in keys] for run in runs], np.int64
    ).reshape(len(runs), len(keys))
    return Recording(
        engine="executorch",
        nodes=nodes,
        runs_ns=tuple(run.wall_ns for run in runs),
        node_ns=spent,
        node_calls=np.array([sum(key in run.spent_ns for run in runs) for key in keys], np.int64),
        residual_ns={"dispatch": sum(run.wall_ns for run in runs) - int(spent.sum())},
        has_edges=False,
        notes=("an ETDump has no edges: where kernels get their operands is not checked",),
    )


def _run(events: list[ProfileEvent], handles: Mapping[Key, tuple[str, ...]]) -> _Run | None:
    """Of one block of events; none where no operator ran."""
    spent: dict[Key, int] = defaultdict(int)
    names: dict[Key, str] = {}
    inside: dict[int, int] = defaultdict(int)
    for event in events:
        key = (event.instruction, event.delegate_id)
        if event.delegate_id:
            if key not in handles and handles.get((event.instruction, "")):
                continue
            inside[event.instruction] += event.end - event.begin
        elif event.name not in _CALLS:
            # The kernel that an OPERATOR_CALL calls: its name says what the call does.
            if event.name.startswith(_KERNEL):
                names[key] = event.name.removeprefix(_KERNEL)
            continue
        spent[key] += event.end - event.begin
        names.setdefault(key, event.name or event.delegate_id)
    for instruction, time in inside.items():
        if (instruction, "") in spent:
            spent[instruction, ""] = max(0, spent[instruction, ""] - time)
    wall = sum(event.end - event.begin for event in events if event.name == _EXECUTE)
    return _Run(max(wall, sum(spent.values())), spent, names) if spent else None


def read_handles(record: Path) -> dict[Key, tuple[str, ...]]:
    """By instruction, or operator of a delegate: the names of the operators it stands for."""
    with reading(record, "is no ETRecord"):
        with zipfile.ZipFile(record) as file:
            listed = file.namelist()
            programs = _programs(file, listed)
            instructions = _json(file, listed, "debug_handle_map")
            delegates = _json(file, listed, "delegate_map")
        found: dict[Key, tuple[str, ...]] = {}
        for method, program in programs.items():
            operators = _operators(program)
            told: dict[Key, Any] = {
                (int(instruction), ""): handles
                for instruction, handles in instructions.get(method, {}).items()
            }
            for instruction, delegate in delegates.get(method, {}).items():
                for number, handles in (delegate.get("delegate_map") or {}).items():
                    told[int(instruction), str(number)] = handles
            for key, handles in told.items():
                names = _named(operators, handles)
                # Events do not say which method they are of: what two disagree on is not known.
                found[key] = names if found.get(key, names) == names else ()
        return found


def _programs(file: zipfile.ZipFile, listed: list[str]) -> dict[str, Any]:
    """By method: its edge program. Records of one method may have it without the method's name."""
    found = {}
    for name in listed:
        method = name.removeprefix(_PROGRAM).removeprefix("/")
        if name.startswith(_PROGRAM) and not method.endswith(
            ("_state_dict", "_constants", "_example_inputs")
        ):
            found[method or "forward"] = json.loads(file.read(name))
    if not found:
        raise ValueError("it has no edge program; generate it with generate_etrecord=True")
    return found


def _json(file: zipfile.ZipFile, listed: list[str], name: str) -> dict[str, Any]:
    found = json.loads(file.read(name)) if name in listed else {}
    # Older records have one method, and no level for it.
    flat = found and not all(isinstance(value, dict) for value in found.values())
    return {"forward": found} if flat else found


def _named(operators: Mapping[int, list[str]], handles: int | list[int]) -> tuple[str, ...]:
    each = handles if isinstance(handles, list) else [handles]
    return tuple(dict.fromkeys(name for handle in each for name in operators.get(int(handle), ())))


def _operators(program: Mapping[str, Any]) -> dict[int, list[str]]:
    """By debug handle: the operators of the exported program that its edge operators stem from."""
    found: dict[int, list[str]] = defaultdict(list)
    for node in program["graph_module"]["graph"]["nodes"]:
        metadata = node.get("metadata", {})
        if "debug_handle" not in metadata:
            continue
        names = [*_ancestors(json.loads(metadata.get("from_node", "[]")))]
        if not names:
            names = [
                output["as_tensor"]["name"]
                for output in node.get("outputs", ())
                if "as_tensor" in output
            ]
        found[int(metadata["debug_handle"])] += names
    return found


def _ancestors(nodes: list[Mapping[str, Any]]) -> Iterator[str]:
    """The oldest ones."""
    for node in nodes:
        before = node.get("from_node") or []
        if before:
            yield from _ancestors(before)
        else:
            yield str(node["name"])


def root_at(data: bytes) -> int | None:
    """Where the flat buffer begins, if it is an ETDump: ExecuTorch's runtime writes its size in
    front of it.
    """
    return next((at for at in (0, 4) if data[at + 4 : at + 8] == IDENTIFIER), None)


def read_etdump(path: Path) -> list[list[ProfileEvent]]:
    """The profiling events of every run."""
    with reading(path, "is a damaged ETDump"):
        data = path.read_bytes()
        begin = root_at(data)
        if begin is None:
            raise ModelError(f"'{path}' is no ETDump: it has no identifier {IDENTIFIER.decode()}")
        data = data[begin:]
        root = Table(
            bytearray(data), flatbuffers.encode.Get(types.UOffsetTFlags.packer_type, data, 0)
        )
        count = itertools.count()
        return [
            [
                _event(profile)
                for event in _tables(run, 3)
                if _within_limit(next(count)) and (profile := _table(event, 0)) is not None
            ]
            for run in _tables(root, 1)
        ]


def _within_limit(count: int) -> bool:
    if count >= _MOST_EVENTS:
        raise ValueError(f"more than {_MOST_EVENTS} events")
    return True


def _event(table: Table) -> ProfileEvent:
    number = _scalar(table, 3, types.Int32Flags, -1)
    text = _text(table, 4)
    return ProfileEvent(
        _text(table, 0),
        _scalar(table, 2, types.Int32Flags, -1),
        text or (str(number) if number >= 0 else ""),
        _scalar(table, 6, types.Uint64Flags, 0),
        _scalar(table, 7, types.Uint64Flags, 0),
    )


def _slot(table: Table, field: int) -> int:
    return int(table.Offset(4 + 2 * field))


def _scalar(table: Table, field: int, flags: Any, default: int) -> int:
    at = _slot(table, field)
    return int(table.Get(flags, at + table.Pos)) if at else default


def _text(table: Table, field: int) -> str:
    at = _slot(table, field)
    return bytes(table.String(at + table.Pos)).decode("utf-8", "replace") if at else ""


def _table(table: Table, field: int) -> Table | None:
    at = _slot(table, field)
    return Table(table.Bytes, table.Indirect(at + table.Pos)) if at else None


def _tables(table: Table, field: int) -> Iterator[Table]:
    at = _slot(table, field)
    for index in range(table.VectorLen(at) if at else 0):
        yield Table(table.Bytes, table.Indirect(table.Vector(at) + 4 * index))

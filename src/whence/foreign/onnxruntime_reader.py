"""A recording of ONNX Runtime, from the graph that it ran and its profile: a list of events in
JSON, with times in whole microseconds.

A run is `model_run`; in it `SequentialExecutor::Execute`, in it `NAME_kernel_time` of every node.
The nodes of a nested graph lie within the time of the If or Loop that holds it, which has the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from whence.attribution.rows import Event
from whence.errors import ModelError
from whence.foreign.onnxruntime_graph import CONTROL, read_graph
from whence.foreign.reading import read_json, reading
from whence.foreign.recording import EngineNode, Recording
from whence.foreign.source import SourceGraph

_SUFFIX = "_kernel_time"
MICROSECONDS = (
    "times of single kernels are whole microseconds, rounded down; what that leaves is in dispatch"
)
UNKNOWN_NODE = "unattributed: not in the optimised model"


class _Event(NamedTuple):
    begin: int
    length: int
    node: int
    """-1 for one that the graph does not have."""
    shape: str

    @property
    def end(self) -> int:
        return self.begin + self.length


class _Run(NamedTuple):
    wall_ns: int
    residual_ns: Mapping[str, int]
    timeline: Sequence[Event]
    """The nodes that the graph has, each without those that are nested in it."""


def read_onnxruntime(
    source: SourceGraph,
    trace: Path,
    optimised: Path,
    walls: Sequence[int] = (),
    *,
    skip: int = 0,
) -> Recording:
    """`trace` is what `enable_profiling` wrote, `optimised` what `optimized_model_filepath` did."""
    with reading(optimised, "is not an ONNX model"):
        nodes = read_graph(source, onnx.load(optimised, load_external_data=False))
    return read_trace(trace, nodes, walls, skip=skip)


def read_trace(
    path: Path, nodes: Sequence[EngineNode], walls: Sequence[int] = (), *, skip: int = 0
) -> Recording:
    """The runs after the first `skip`. `walls` are how long the caller waited for each, where that
    is known.
    """
    events = _load(path)
    runs = sorted(
        (each for each in events if each.get("name") == "model_run"), key=lambda each: each["ts"]
    )[skip:]
    if not runs or (walls and len(walls) != len(runs)):
        raise ModelError(
            f"'{path}' has {len(runs)} runs (events named model_run) after the first {skip};"
            f" {len(walls) or 'at least one'} expected"
        )
    known: dict[str, list[EngineNode]] = defaultdict(list)
    for node in nodes:
        known[node.name].append(node)
    with reading(path, "is not a profile of ONNX Runtime"):
        ran = [_node_event(each, known) for each in events if _is_node(each)]
        ran.sort(key=lambda each: (each.begin, -each.length))
        executes = [each for each in events if each.get("name") == "SequentialExecutor::Execute"]
        found = [
            _read_run(run, ran, executes, nodes, wall)
            for run, wall in zip(runs, walls or [0] * len(runs), strict=True)
        ]
        spent = np.zeros((len(found), len(nodes)), np.int64)
        calls = np.zeros(len(nodes), np.int64)
        residual: Counter[str] = Counter()
        for row, each in enumerate(found):
            residual.update(each.residual_ns)
            for event in each.timeline:
                spent[row, event.kernel] += event.end_ns - event.begin_ns
                calls[event.kernel] += 1
    shapes = {each.node: each.shape for each in ran if each.shape}
    typical = sorted(found, key=lambda each: each.wall_ns)[len(found) // 2]
    return Recording(
        engine="onnxruntime",
        nodes=tuple(replace(node, shape=shapes.get(node.number, "")) for node in nodes),
        runs_ns=tuple(each.wall_ns for each in found),
        node_ns=spent,
        node_calls=calls,
        residual_ns=dict(residual),
        timeline=tuple(typical.timeline),
        timeline_ns=typical.wall_ns,
        notes=(MICROSECONDS,),
    )


def _load(path: Path) -> list[dict[str, Any]]:
    found = read_json(path)
    if not isinstance(found, list) or not all(
        isinstance(each, dict) and isinstance(each.get("ts"), int) for each in found
    ):
        raise ModelError(f"'{path}' is not a profile of ONNX Runtime: a list of events is expected")
    return found


def _is_node(each: Mapping[str, Any]) -> bool:
    return each.get("cat") == "Node" and str(each.get("name", "")).endswith(_SUFFIX)


def _node_event(each: Mapping[str, Any], known: Mapping[str, list[EngineNode]]) -> _Event:
    details = each.get("args", {})
    candidates = known.get(str(each["name"]).removesuffix(_SUFFIX), [])
    node = next(
        (node for node in candidates if node.op == details.get("op_name")),
        candidates[0] if candidates else None,
    )
    shape = ", ".join(
        f"{kind}[{','.join(map(str, dims))}]"
        for output in details.get("output_type_shape", ())
        for kind, dims in output.items()
    )
    return _Event(int(each["ts"]), int(each["dur"]), -1 if node is None else node.number, shape)


def _read_run(
    run: Mapping[str, Any],
    ran: Sequence[_Event],
    executes: Sequence[Mapping[str, Any]],
    nodes: Sequence[EngineNode],
    wall_ns: int,
) -> _Run:
    begin, end = int(run["ts"]), int(run["ts"]) + int(run["dur"])
    inside = [each for each in ran if begin <= each.begin and each.end <= end]
    inner = max(
        (int(each["dur"]) for each in executes if begin <= int(each["ts"]) <= end), default=0
    )
    own = _own_lengths(inside, nodes)
    inner = min(max(inner, sum(own)), end - begin)
    # Rounded down: what the caller saw is at least what the engine says.
    wall = max(wall_ns, (end - begin) * 1000)
    residual = {
        "dispatch": (inner - sum(own)) * 1000,
        "executor": (end - begin - inner) * 1000,
        "session": wall - (end - begin) * 1000,
    }
    timeline = []
    for each, length in zip(inside, own, strict=True):
        at = (each.begin - begin) * 1000
        if each.node >= 0:
            timeline.append(Event(each.node, at, at + length * 1000))
        elif length:
            residual[UNKNOWN_NODE] = residual.get(UNKNOWN_NODE, 0) + length * 1000
    return _Run(wall, residual, timeline)


def _own_lengths(events: Sequence[_Event], nodes: Sequence[EngineNode]) -> list[int]:
    """How long each took by itself, without the nodes of graphs nested in it."""
    own = [each.length for each in events]
    open_: list[int] = []
    for position, each in enumerate(events):
        while open_ and events[open_[-1]].end < each.end:
            open_.pop()
        if open_:
            own[open_[-1]] -= each.length
        if each.node >= 0 and nodes[each.node].op in CONTROL:
            open_.append(position)
    return own

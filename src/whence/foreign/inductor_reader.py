"""A recording of Inductor (`torch.compile`), from its provenance mappings and a Chrome trace of
`torch.profiler`.

`inductor_provenance_tracking_node_mappings.json` is written with TORCH_COMPILE_DEBUG=1 and
`torch._inductor.config.trace.provenance_tracking_level = 1`. It leads from a kernel
(`cpp_fused_relu_2:3`, its name and debug handle) to nodes after AOTAutograd, and from those to
nodes of the program. Kernels of C++ are in a trace only with
`torch._inductor.config.cpp.enable_kernel_profile = True`, as `graph_0_cpp_fused_relu_2`, without
their handle: one that is called several times is matched in order. Library calls
(`extern_kernels.convolution:2`) are ATen operators in the trace, and matched in order as well.

A generated kernel that lists an operator which a library call computes lays out its operands: it is
a change of layout for that call, or does so beside what else it lists.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from whence.errors import ModelError
from whence.foreign.reading import read_json, reading
from whence.foreign.recording import EngineNode, Recording
from whence.foreign.source import SourceGraph

_GRAPH = re.compile(r"^graph_\d+_")
_LIBRARY = ("extern_kernels.", "torch.ops.", "aten.")
_CALL = re.compile(r"^(## Call CompiledFxGraph|Torch-Compiled Region)")

_Lowered = Mapping[str, tuple[str, ...]]
"""By node after AOTAutograd: the nodes of the program that it stems from."""


class _Called(NamedTuple):
    """A kernel in the trace, in microseconds."""

    name: str
    begin: float
    end: float


def read_inductor(
    source: SourceGraph,
    trace: Path,
    mappings: Path,
) -> Recording:
    """A run is a call of compiled code, as the trace has it: what the caller waits for besides is
    torch.profiler, which starts and stops with it.
    """
    kernels = _kernels(mappings)
    columns: dict[str, list[int]] = defaultdict(list)
    for column, key in enumerate(kernels):
        columns[key.rpartition(":")[0]].append(column)
    events = _events(trace)
    regions = sorted(
        (each for each in events if _CALL.match(each.name)), key=lambda each: each.begin
    )
    # A region of compiled code holds a call of its graph: the outermost of both is a run.
    runs: list[_Called] = []
    for each in regions:
        if not runs or each.begin >= runs[-1].end:
            runs.append(each)
    if not runs:
        raise ModelError(f"'{trace}' has no call of compiled code: is it a trace of torch.compile?")
    called = _library_calls(columns) | {name: name for name in columns}
    spent = np.zeros((len(runs), len(kernels)), np.int64)
    calls = np.zeros(len(kernels), np.int64)
    for row, run in enumerate(runs):
        seen: Counter[str] = Counter()
        for each in _outermost(events, run, called):
            own = columns[each.name]
            column = own[min(seen[each.name], len(own) - 1)]
            seen[each.name] += 1
            spent[row, column] += round((each.end - each.begin) * 1000)
            calls[column] += 1
    walls = [
        max(round((run.end - run.begin) * 1000), int(mine))
        for run, mine in zip(runs, spent.sum(axis=1), strict=True)
    ]
    return Recording(
        engine="inductor",
        nodes=_nodes(source, kernels),
        runs_ns=tuple(walls),
        node_ns=spent,
        node_calls=calls,
        residual_ns={"dispatch": sum(walls) - int(spent.sum())},
        has_edges=False,
        notes=(
            "Inductor's mappings have no edges: where kernels get their operands is not checked",
        ),
    )


def _nodes(source: SourceGraph, kernels: Mapping[str, _Lowered]) -> tuple[EngineNode, ...]:
    callers: dict[str, int] = {}
    for position, (key, lowered) in enumerate(kernels.items()):
        if key.startswith(_LIBRARY):
            callers |= dict.fromkeys(lowered, position)
    prepares: dict[int, list[int]] = defaultdict(list)
    made = []
    for position, (key, lowered) in enumerate(kernels.items()):
        computed = {
            node: before
            for node, before in lowered.items()
            if callers.get(node, position) == position
        }
        for node in lowered.keys() - computed:
            prepares[callers[node]].append(position)
        # A node after AOTAutograd may have the name that another one has in the program: an add_1
        # of a normalisation, say. Only what the mappings say counts.
        names = [name for each in computed.values() for name in each]
        made.append(
            EngineNode(
                position,
                key,
                key.rpartition(":")[0],
                holds=source.running(names),
                is_whole=True,
                is_layout=not computed,
                is_composite=True,
            )
        )
    return tuple(replace(node, inputs=tuple(prepares[node.number])) for node in made)


def _kernels(path: Path) -> dict[str, _Lowered]:
    """By kernel and debug handle, in the order of the handles."""
    content = read_json(path)
    with reading(path, "has no mappings of Inductor"):
        before: Mapping[str, list[str]] = content["postToPre"]
        found = {
            str(key): {str(node): tuple(map(str, before.get(node, ()))) for node in nodes}
            for key, nodes in content["cppCodeToPost"].items()
        }
        return dict(sorted(found.items(), key=lambda each: int(each[0].rpartition(":")[2] or 0)))


def _events(path: Path) -> list[_Called]:
    content = read_json(path)
    rows = content.get("traceEvents") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise ModelError(f"'{path}' is no Chrome trace: it has no traceEvents")
    with reading(path, "is no trace of torch.profiler"):
        return [
            _Called(_GRAPH.sub("", str(row["name"])), begin, begin + float(row["dur"]))
            for row in rows
            if isinstance(row, dict) and row.get("ph") == "X" and "dur" in row and "name" in row
            for begin in (float(row["ts"]),)
        ]


def _library_calls(known: Iterable[str]) -> dict[str, str]:
    """By what an ATen operator is called in a trace: the kernel it is in the mappings."""
    return {
        f"{space}::{name.rpartition('.')[2]}": name
        for name in known
        if name.startswith(_LIBRARY)
        for space in ("aten", "mkldnn", "mkl")
    }


def _outermost(events: list[_Called], run: _Called, called: Mapping[str, str]) -> list[_Called]:
    """The kernels of a run in order, each by its name in the mappings, to which `called` leads from
    those in a trace. What they call in turn is part of them.
    """
    found: list[_Called] = []
    inside = [each for each in events if run.begin <= each.begin and each.end <= run.end]
    for each in sorted(inside, key=lambda each: (each.begin, -each.end)):
        name = called.get(each.name, "")
        if name and not (found and each.begin < found[-1].end):
            found.append(each._replace(name=name))
    return found

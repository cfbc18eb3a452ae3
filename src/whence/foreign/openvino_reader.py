"""A recording of OpenVINO's CPU plugin, from its runtime model and its performance counters.

1. A node of the runtime model lists the operators it was made of (`originalLayersNames`), of those
   that were not replaced on the way: a convolution whose normalisation was folded into its weights
   is missing, while the normalisation is there. So names are members, and the cut finds the rest.
2. Some lists have the operator before, too, which a node of its own does: what a node is called
   after is that node's, whoever else lists it.
3. Tensors have no names there. Nodes that passes made are called after others, with something
   behind it. Nodes that prepare weights have names of operators, and do not run.
   What converts a result of the model to the element type that the file states is called after
   that result, with the number of the output behind it, though it may be a Subgraph.
4. The counters are averages over all runs since the model was compiled, in whole microseconds: the
   time of some runs is the difference of two sums.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from whence.attribution.split import largest_remainder
from whence.foreign.reading import read_json, reading
from whence.foreign.recording import EngineNode, Recording, one_after_another
from whence.foreign.source import SourceGraph

AVERAGES = (
    "OpenVINO keeps averages in whole microseconds, over all runs: those of single runs follow the"
    " lengths of the runs, and what rounding leaves is in dispatch"
)
SCALED = "rounded counters were {percent:.1f} % more than the runs took; scaled to fit"
_HEAVY = frozenset({
    "Convolution", "Deconvolution", "DeformableConvolution", "FullyConnected", "GRUCell", "GRUSequence", "Gather_MatMul", "LSTMCell",
    "LSTMSequence", "MHA", "MatMul", "RNNCell", "RNNSeq", "ScaledDotProductAttention", "ScaledDotProductAttentionWithKVCache",
})  # fmt: skip
_CONTROL = frozenset({"If", "Loop", "TensorIterator"})
_IMPLEMENTS = {"MVN": ("InstanceNormalization", "LayerNormalization", "MeanVarianceNormalization")}
_CALLED_AFTER = {"Multiply": ("Mul", "Div")}
_MERGES = {"Split": ("Slice",)}
_LAYOUT = frozenset({"Convert", "Reorder", "Reshape", "Transpose"})
_NOT_RUN = frozenset({"Const", "Input", "Output"})
_NUMBER = re.compile(r"_\d+$")
_OUTPUT = re.compile(r"\.\d+$")
_SUFFIX = re.compile(
    r"(/WithoutBiases|/WithoutReshape|_original|_reshape|/[Rr]eshape\w*|/Transpose\w*|/fq_\w+"
    r"|/sum\w*|/MulAdd\w*|/DequantizationMultiply\w*|/DequantizationSubtract\w*|/[A-Za-z_]+\d*"
    r"|_\d+|\.\d+)$"
)


def read_openvino(source: SourceGraph, path: Path, walls: Sequence[int]) -> Recording:
    """`path` has the nodes of the runtime model and the counters before and after the runs."""
    content = read_json(path)
    with reading(path, "is no recording of OpenVINO"):
        nodes = read_nodes(source, content["nodes"])
        return recording(nodes, _times(nodes, content), walls)


def recording(
    nodes: tuple[EngineNode, ...], times: Mapping[int, int], walls: Sequence[int]
) -> Recording:
    """`times` are nanoseconds over all runs, by node."""
    wall, spent, notes = sum(walls), sum(times.values()), [AVERAGES]
    totals = [times.get(node.number, 0) for node in nodes]
    if spent > wall:
        notes.append(SCALED.format(percent=100 * (spent / wall - 1)))
        totals, spent = largest_remainder(wall, totals), wall
    per_run = [largest_remainder(total, list(walls)) for total in totals]
    events = one_after_another(
        (node.number, total // len(walls))
        for node, total in zip(nodes, totals, strict=True)
        if node.number in times
    )
    return Recording(
        engine="openvino",
        nodes=nodes,
        runs_ns=tuple(walls),
        node_ns=np.array(per_run, np.int64).reshape(len(nodes), len(walls)).T,
        node_calls=np.array([len(walls) * (node.number in times) for node in nodes], np.int64),
        residual_ns={"dispatch": wall - spent},
        timeline=events,
        timeline_ns=wall // len(walls),
        notes=tuple(notes),
    )


def read_nodes(source: SourceGraph, rows: Sequence[Mapping[str, Any]]) -> tuple[EngineNode, ...]:
    number = {str(row["name"]): position for position, row in enumerate(rows)}
    constant: set[str] = set()
    for row in rows:
        kind = row["info"]["layerType"]
        if kind == "Const" or (row["inputs"] and constant.issuperset(row["inputs"])):
            constant.add(str(row["name"]))
    running = {
        str(row["name"]) for row in rows if row["info"]["layerType"] not in _NOT_RUN
    } - constant
    return tuple(_node(source, position, row, number, running) for position, row in enumerate(rows))


def _node(
    source: SourceGraph,
    position: int,
    row: Mapping[str, Any],
    number: Mapping[str, int],
    running: Set[str],
) -> EngineNode:
    name, kind = str(row["name"]), str(row["info"]["layerType"])
    names = [*_names(source, str(row["info"].get("originalLayersNames", ""))), name]
    # As far as its type and its names tell, it only changes layout or element type.
    may_be_inserted = kind in _LAYOUT or (
        kind == "Subgraph" and all(_is_converted_result(source, each) for each in names)
    )
    # A change of layout that was put in is called after what it is there for.
    look = _exactly if may_be_inserted else _find
    found = dict.fromkeys(look(source, each) for each in names) if name in running else {}
    # What another node is called after is that node's.
    members = tuple(
        each
        for each in found
        if each in source.live and (source[each].name == name or source[each].name not in running)
    )
    return EngineNode(
        position,
        name,
        kind,
        tuple(dict.fromkeys(number[each] for each in row["inputs"] if each in number)),
        holds=members,
        runs=name in running,
        # One that only constants go through runs before the first inference, and takes time too.
        is_layout=not members and may_be_inserted,
        is_heavy=kind in _HEAVY,
        is_composite=kind in _CONTROL
        or (kind == "Subgraph" and any(source[each].is_heavy for each in members)),
        implements=_IMPLEMENTS.get(kind, ()),
        called_after=_CALLED_AFTER.get(_NUMBER.sub("", name), ()),
        merges=_MERGES.get(kind, ()),
        shape=", ".join(map(str, row.get("shapes", ()))),
        kernel=str(row["info"].get("primitiveType", "")),
    )


def _is_converted_result(source: SourceGraph, name: str) -> bool:
    """Is it the name of a result with the number of the output behind it, and of nothing else?"""
    is_known = name in source.by_name or name in source.by_output
    return not is_known and _OUTPUT.sub("", name) in source.by_output


def _names(source: SourceGraph, text: str) -> Iterator[str]:
    """The names in a list with commas between them, some of which may have commas in them."""
    parts = text.split(",") if text else []
    first = 0
    while first < len(parts):
        for last in range(len(parts), first, -1):
            name = ",".join(parts[first:last])
            if last == first + 1 or name in source.by_name or name in source.by_output:
                yield name
                first = last
                break


def _exactly(source: SourceGraph, name: str) -> int | None:
    """The operator of this name; or the one whose results are several, numbered behind its name."""
    found = source.by_name.get(name)
    if found is None:
        found = source.by_name.get(_NUMBER.sub("", name))
        return found if found is not None and len(source[found].outputs) > 1 else None
    return found


def _find(source: SourceGraph, name: str) -> int | None:
    while name:
        found = source.by_name.get(name)
        if found is None:
            found = source.by_output.get(name)
        if found is not None:
            return found
        shorter = _SUFFIX.sub("", name, count=1)
        if shorter == name:
            return None
        name = shorter
    return None


def _times(nodes: Sequence[EngineNode], content: Mapping[str, Any]) -> dict[int, int]:
    """Nanoseconds over the runs that count, by node that was executed."""
    runs, before = int(content["runs"]), content["before"]
    found = {}
    for node in nodes:
        if node.name in content["averages"]:
            after = runs * int(content["averages"][node.name])
            earlier = int(before["runs"]) * int(before["averages"].get(node.name, 0))
            found[node.number] = max(0, after - earlier) * 1000
    return found

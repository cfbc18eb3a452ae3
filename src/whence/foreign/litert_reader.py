"""A recording of LiteRT, from the events of its profiler.

1. An operator that LiteRT runs itself has an event with its number in the file: that is exact.
2. The XNNPACK delegate runs the others as operators of its own, in the order of the file, and says
   only their types (`Convolution (NHWC, F32) IGEMM`). Convolutions, products and the like are
   matched with those of the file one by one, in order, if there are as many of each kind; what
   stands between two of them is matched by type, where only one operator there has it.
3. What XNNPACK takes into another operator is in no event: an activation goes into what computes
   its input, a padding into the convolution that reads it.
4. What cannot be told apart that way is uncertain: the kernel is one of several operators.

Times are whole microseconds.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from whence.errors import ModelError
from whence.foreign.reading import read_json, reading
from whence.foreign.recording import EngineNode, Recording, one_after_another
from whence.foreign.source import SourceGraph

_OPERATOR, _DELEGATED = 2, 8
_INVOKE = "Invoke"
MICROSECONDS = "times of single operators are whole microseconds; what that leaves is in dispatch"
# What XNNPACK calls its operators, and what they are made of: the first that matches.
_KINDS = (
    (r"Deconvolution", ("TRANSPOSE_CONV", "CUSTOM:Convolution2DTransposeBias")),
    (r"Convolution .*DWConv", ("DEPTHWISE_CONV_2D", "CONV_2D")),
    (r"Convolution", ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")),
    (r"Fully Connected", ("FULLY_CONNECTED", "CONV_2D")),
    (r"Batch Matrix Multiply", ("BATCH_MATMUL",)),
    (r"Max Pooling", ("MAX_POOL_2D",)),
    (r"Mean Squared", ("MEAN",)),
    (r"(Global )?(Average Pooling|Mean)", ("AVERAGE_POOL_2D", "MEAN")),
    (r"Sum|Reduce Sum", ("SUM", "MEAN", "AVERAGE_POOL_2D")),
    (r"(Reduce )?Max \(ND\)", ("REDUCE_MAX",)),
    (r"(Reduce )?Min \(ND\)", ("REDUCE_MIN",)),
    (r"Resize Bilinear", ("RESIZE_BILINEAR",)),
    (r"Soft[Mm]ax", ("SOFTMAX",)),
    (r"Sigmoid", ("LOGISTIC",)),
    (r"Tanh", ("TANH",)),
    (r"Hard ?[Ss]wish", ("HARD_SWISH",)),
    (r"Leaky ?ReLU", ("LEAKY_RELU",)),
    (r"PReLU|Prelu", ("PRELU",)),
    (r"E[Ll][Uu]", ("ELU",)),
    (r"G[Ee][Ll][Uu]", ("GELU",)),
    (r"Abs", ("ABS",)),
    (r"Negate", ("NEG",)),
    (r"Exp", ("EXP",)),
    (r"Log", ("LOG",)),
    (r"Square Root", ("SQRT",)),
    (r"Reciprocal Square Root", ("RSQRT",)),
    (r"Squared Difference", ("SQUARED_DIFFERENCE",)),
    (r"Square \(NC\)", ("SQUARE", "MUL")),
    (r"Floor", ("FLOOR",)),
    (r"Ceiling", ("CEIL",)),
    (r"Bankers' Rounding", ("ROUND",)),
    (r"Cosine", ("COS",)),
    (r"Sine", ("SIN",)),
    (r"Depth To Space", ("DEPTH_TO_SPACE",)),
    (r"Space To Depth", ("SPACE_TO_DEPTH",)),
    (r"Add", ("ADD",)),
    (r"Subtract", ("SUB",)),
    (r"Multiply", ("MUL",)),
    (r"Divide", ("DIV",)),
    (r"Maximum", ("MAXIMUM",)),
    (r"Minimum", ("MINIMUM",)),
    (r"Clamp", ("RELU", "RELU6", "RELU_N1_TO_1", "MAXIMUM", "MINIMUM")),
    (r"Transpose", ("TRANSPOSE",)),
    (r"Constant Pad", ("PAD", "PADV2")),
    (r"Slice", ("SLICE", "STRIDED_SLICE", "SPLIT", "SPLIT_V")),
    (r"Convert", ("QUANTIZE", "DEQUANTIZE", "CAST")),
    (r"Static Reshape", ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")),
    (r"Copy", ("CONCATENATION", "RESHAPE", "READ_VARIABLE", "ASSIGN_VARIABLE", "PACK")),
)  # fmt: skip
_HEAVY = frozenset({
    "BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV",
    "CUSTOM:Convolution2DTransposeBias",
})  # fmt: skip
_ANCHORS = _HEAVY | {"MAX_POOL_2D", "RESIZE_BILINEAR", "SOFTMAX"}
# What XNNPACK takes into the operator that computes its input, and into the one that reads it.
_INTO_ITS_INPUT = frozenset({"RELU", "RELU6", "RELU_N1_TO_1"})
_INTO_ITS_READER = {"PAD": frozenset({"CONV_2D", "DEPTHWISE_CONV_2D"})}


class _Step(NamedTuple):
    """One operator as it ran."""

    tag: str
    operator: int
    """Its number in the file; -1 for one of the delegate's."""
    elapsed_us: int


def read_litert(source: SourceGraph, path: Path, walls: Sequence[int]) -> Recording:
    with reading(path, "is no recording of LiteRT"):
        runs = read_json(path)["runs"]
        steps = [_steps(run) for run in runs]
        invoked = [
            max((row[2] for row in run if row[0] == _INVOKE and row[1] == 1), default=0)
            for run in runs
        ]
    if not steps or len(steps) != len(walls) or len({len(run) for run in steps}) != 1:
        raise ModelError(f"'{path}': the runs of LiteRT are not alike, or not {len(walls)}")
    nodes = _nodes(source, steps[-1])
    spent = np.array([[step.elapsed_us * 1000 for step in run] for run in steps], np.int64)
    residual = {"dispatch": 0, "session": 0}
    wall = []
    for mine, outer, inner in zip(spent.sum(axis=1).tolist(), walls, invoked, strict=True):
        within = max(inner * 1000, mine)
        wall.append(max(int(outer), within))
        residual["dispatch"] += within - mine
        residual["session"] += wall[-1] - within
    return Recording(
        engine="litert",
        nodes=nodes,
        runs_ns=tuple(wall),
        node_ns=spent,
        node_calls=np.full(len(nodes), len(walls), np.int64),
        residual_ns=residual,
        timeline=one_after_another(enumerate(spent[-1].tolist())),
        timeline_ns=wall[-1],
        has_edges=False,
        notes=(MICROSECONDS, "LiteRT says nothing of edges between its operators"),
    )


def _steps(run: Sequence[Sequence[object]]) -> list[_Step]:
    """Operators of the main graph, in order. Those of others run within one of them."""
    found = []
    for tag, kind, elapsed, operator, subgraph in run:
        if subgraph == 0 and kind in (_OPERATOR, _DELEGATED):
            number = int(str(operator)) if kind == _OPERATOR else -1
            found.append(_Step(str(tag), number, int(str(elapsed))))
    return found


def _nodes(source: SourceGraph, steps: Sequence[_Step]) -> tuple[EngineNode, ...]:
    place = {
        position: origin.id
        for origin in source.graph.ledger.sources
        for position in (() if origin.scope else origin.positions or ())
    }
    own = {step.operator for step in steps if step.operator >= 0}
    left = [place[position] for position in sorted(place) if position not in own]
    delegated = [position for position, step in enumerate(steps) if step.operator < 0]
    matched = _match(source, [steps[position].tag for position in delegated], left)
    fitting = {position: matched[index] for index, position in enumerate(delegated)}
    certain = {each[0] for each in matched if len(each) == 1}
    taken_in = _taken_in(source, left, matched)
    found = []
    for position, step in enumerate(steps):
        possible = fitting.get(position, ())
        number = possible[0] if len(possible) == 1 else place.get(step.operator)
        found.append(
            EngineNode(
                position,
                f"{position} {step.tag}",
                step.tag,
                holds=() if number is None else (number, *taken_in.get(number, ())),
                may_be=tuple(each for each in possible if each not in certain),
                is_whole=True,
                is_composite=number is not None and source[number].op in _HEAVY,
            )
        )
    return tuple(found)


def _match(
    source: SourceGraph, tags: Sequence[str], operators: Sequence[int]
) -> list[tuple[int, ...]]:
    """For each of the delegate's operators: the operators of the file that it may be; one where
    that is certain.
    """
    kinds = [_kinds(tag) for tag in tags]
    anchors = [at for at, kind in enumerate(kinds) if set(kind) & _ANCHORS]
    candidates = [number for number in operators if source[number].op in _ANCHORS]
    if len(anchors) != len(candidates) or any(
        source[number].op not in kinds[at] for at, number in zip(anchors, candidates, strict=False)
    ):
        return [_one_of(source, kind, operators) for kind in kinds]
    found: dict[int, tuple[int, ...]] = {
        at: (number,) for at, number in zip(anchors, candidates, strict=True)
    }
    bounds = [(-1, -1), *((at, operators.index(found[at][0])) for at in anchors)]
    bounds.append((len(tags), len(operators)))
    for before, after in itertools.pairwise(bounds):
        found |= _match_between(source, kinds, operators, before, after)
    return [found[at] for at in range(len(tags))]


def _match_between(
    source: SourceGraph,
    kinds: Sequence[Sequence[str]],
    operators: Sequence[int],
    before: tuple[int, int],
    after: tuple[int, int],
) -> dict[int, tuple[int, ...]]:
    """What stands between two of the delegate's operators whose own are known: by their number, and
    that in `operators`. What only one operator there can be bounds what else is there.
    """
    (first, low), (last, high) = before, after
    between = range(low + 1, high)
    certain = [before]
    for at in range(first + 1, last):
        fitting = [number for number in between if source[operators[number]].op in kinds[at]]
        alike = [other for other in range(first + 1, last) if kinds[other] == kinds[at]]
        if len(fitting) == len(alike):
            certain.append((at, fitting[alike.index(at)]))
    certain.append(after)
    in_order = all(one[1] < other[1] for one, other in itertools.pairwise(certain))
    if len(certain) == 2 or not in_order:
        those = operators[low + 1 : high]
        return {at: _one_of(source, kinds[at], those) for at in range(first + 1, last)}
    found: dict[int, tuple[int, ...]] = {at: (operators[number],) for at, number in certain[1:-1]}
    for one, other in itertools.pairwise(certain):
        found |= _match_between(source, kinds, operators, one, other)
    return found


def _taken_in(
    source: SourceGraph, operators: Sequence[int], matched: Sequence[tuple[int, ...]]
) -> Mapping[int, list[int]]:
    """By an operator that has a kernel: those without one that are in it."""
    possible = {number for each in matched for number in each}
    found: dict[int, list[int]] = defaultdict(list)
    holders = {each[0]: each[0] for each in matched if len(each) == 1}
    for number in operators:
        if number in possible:
            continue
        each = source[number]
        near: Sequence[int] = ()
        if each.op in _INTO_ITS_INPUT:
            near = each.feeds_from
        elif each.op in _INTO_ITS_READER:
            readers = source.readers(number)
            near = [one for one in readers if source[one].op in _INTO_ITS_READER[each.op]]
            near = near if len(near) == len(readers) else ()
        if len(near) == 1 and near[0] in holders:
            holder = holders[number] = holders[near[0]]
            found[holder].append(number)
    return found


def _one_of(source: SourceGraph, kinds: Sequence[str], operators: Sequence[int]) -> tuple[int, ...]:
    return tuple(number for number in operators if source[number].op in kinds)


def _kinds(tag: str) -> tuple[str, ...]:
    return next((kinds for pattern, kinds in _KINDS if re.match(pattern, tag)), ())

"""The debug database of a compiled program.

1. `source` has every operator of the file under its number, 1, 2, ... Shapes are those of the graph
   as it was read, when that is given. Of a file that says what its own sources were, `source` has
   those; `file_operator` has every operator of the file that came from one, and the ids of the
   file's tables.
2. `optimised` has every operator of the graph as it runs, nested graphs included, and the constants
   that operators were folded into.
   Inputs, outputs and weights are left out, as in Vela. `source_id` is the source operator with the
   largest weight.
3. `queue` has a row for each operator of each step, in execution order. `offset` is 4 × the step's
   number: the command stream is the sequence of steps, each taken for one word. There is one
   stream, which lies in no file, so its `file_offset` is 0.
4. `member.weight` splits a step over its operators, `origin.weight` an operator over its source
   operators. A profile gives both (`weights`). Without one they are estimated: by the time that
   arithmetic and memory traffic would take, an operator that was folded away at compile time weighs
   nothing, an elementwise one what it costs per element of the result, and products and
   convolutions share the rest.
5. `pass` and `rule` have what the passes reported, as the ledger keeps it. Of a graph that was
   prepared when its file was written and not since, they have what its edges tell: passes that
   changed something, in order, without times.
6. `ofm_*` and `kernel_*`: of tensors with four dimensions or more, depth is the second, and height
   and width are the last two (ONNX keeps channels first; a channel-blocked tensor counts whole); of
   smaller ones, depth is the last, as in Vela. What is not known is left empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from whence.building.program import Program, ProgramStep
from whence.debugdb.rows import (
    NONE,
    WORD,
    CmdstreamRow,
    EndingRow,
    FileOperatorRow,
    MemberRow,
    OperatorRow,
    OptimisedRow,
    OriginRow,
    PassRow,
    QueueRow,
    RuleRow,
    SampleRow,
    SourceOperatorRow,
    StepRow,
    TombstoneRow,
)
from whence.debugdb.tables import DebugDatabase
from whence.graph import Graph, Node
from whence.graph.outcomes import eliminated, outcomes
from whence.kernels.ir import Member
from whence.ops.registry import REGISTRY
from whence.passes.pipeline import PREPARE
from whence.provenance import NO_ORIGIN, Ledger, Origin, PassReport
from whence.types import TensorType

Weights = Mapping[tuple[int, int], float]
"""By (node, source operator): the share of the source operator in the node. By (step, node): the
share of the node in the step.
"""

_FLOPS_PER_NS = 40
_BYTES_PER_NS = 8
_NO_SHAPE = (None, None, None, None, None)
_Shape = tuple[int | None, int | None, int | None, int | None, int | None]


def from_program(
    program: Program,
    model_path: str = "",
    *,
    read: Graph | None = None,
    weights: Weights | None = None,
    member_weights: Weights | None = None,
) -> DebugDatabase:
    """Everything known about a program before it runs. `read` is the graph before its passes.

    `weights` and `member_weights` are taken instead of the estimate for the nodes and steps they
    hold.
    """
    graph, ledger = program.graph, program.graph.ledger
    db = DebugDatabase(model_path)
    places: Counter[str] = Counter()
    as_read = {}
    if read is not None:
        as_read = {node.id: (nested, node) for nested in read.nested() for node in nested}
    for source, fate in zip(ledger.sources, outcomes(graph), strict=True):
        shape = _shape(*as_read[source.id]) if source.id in as_read else _NO_SHAPE
        known = source.positions
        position = places[source.scope] if known is None else next(iter(known), None)
        db.source.append(SourceOperatorRow(source.id, source.op, *shape, position))
        db.file_operator.extend(
            FileOperatorRow(source.id, source.table_id, each)
            for each in ((position,) if known is None else known or (None,))
        )
        db.operator.append(
            OperatorRow(
                source.id,
                source.name,
                source.scope,
                source.module,
                source.line,
                source.stack,
                fate.value,
            )
        )
        places[source.scope] += 1
    members = {member.node: member for step in program.steps for member in step.members}
    folded = ledger.folded_origins()
    for nested in graph.nested():
        for node in nested:
            if node.is_a("Input", "Output") or (node.is_const and not node.origin):
                continue
            shares = _shares(
                nested, node, folded.get(node.id, NO_ORIGIN), members.get(node.id), weights or {}
            )
            dominant = min(shares, key=lambda source: (-shares[source], source), default=NONE)
            db.optimised.append(OptimisedRow(node.id, dominant, node.op, *_shape(nested, node)))
            db.origin.extend(OriginRow(node.id, source, share) for source, share in shares.items())
    db.cmdstream.append(CmdstreamRow(0, 0))
    for step in program.steps:
        _add_step(db, step, member_weights or {})
    for number, stone in enumerate(ledger.tombstones):
        origin = sorted(stone.origin) or [NONE]
        db.tombstone.extend(
            TombstoneRow(
                number,
                stone.node,
                source,
                stone.reason.value,
                stone.pass_name,
                stone.rule,
                stone.into,
            )
            for source in origin
        )
    db.ending.extend(EndingRow(*end) for end in eliminated(graph))
    for number, report in enumerate(ledger.passes or _remembered(ledger), 1):
        db.passes.append(
            PassRow(
                number,
                report.name,
                report.summary,
                report.nanoseconds,
                report.added,
                report.removed,
                # What left without a rule is a change, too.
                report.changes or report.removed,
                report.skipped,
            )
        )
        db.rule.extend(RuleRow(number, rule, count) for rule, count in report.rules.items())
    return db


def _remembered(ledger: Ledger) -> Iterator[PassReport]:
    """What edges and tombstones tell of passes that did not report."""
    summaries = {each.name: each.summary for each in PREPARE}
    rules: dict[str, Counter[str]] = {}
    added: dict[str, set[int]] = {}
    for edges in ledger.steps():
        name = edges[0].pass_name
        rules.setdefault(name, Counter())[edges[0].rule] += 1
        added.setdefault(name, set()).update(
            edge.child for edge in edges if edge.child > ledger.n_sources
        )
    removed = Counter(stone.pass_name for stone in ledger.tombstones)
    for stone in ledger.tombstones:
        rules.setdefault(stone.pass_name, Counter())
    for name, counts in rules.items():
        made = len(added.get(name, ()))
        yield PassReport(name, summaries.get(name, ""), 0, made, removed[name], counts)


def sample_rows(samples: np.ndarray) -> Iterable[SampleRow]:
    """The samples of a profiler as rows, to add to `db.sample`."""
    columns = (samples[name].tolist() for name in ("execution", "step", "begin", "end"))
    return (SampleRow(*row) for row in zip(*columns, strict=True))


def _add_step(db: DebugDatabase, step: ProgramStep, weights: Weights) -> None:
    costs = {member.node: member for member in step.members}
    flops = sum(member.flops for member in step.members)
    moved = sum(member.bytes for member in step.members)
    db.kernel.append(StepRow(step.number, step.name, step.symbol, flops, moved, step.why_reference))
    given = [weights.get((step.number, node), 0.0) for node in step.nodes]
    times = given if any(given) else [_time(costs.get(node)) for node in step.nodes]
    for node, share in zip(step.nodes, _normalised(times), strict=True):
        db.queue.append(QueueRow(step.number * WORD, 0, node))
        member = costs.get(node)
        cost = (0, 0) if member is None else (member.flops, member.bytes)
        db.member.append(MemberRow(step.number, node, *cost, share))


def _time(member: Member | None) -> float:
    return 0.0 if member is None else member.flops / _FLOPS_PER_NS + member.bytes / _BYTES_PER_NS


def _normalised(parts: Sequence[float]) -> list[float]:
    total = sum(parts)
    return [part / total for part in parts] if total else [1 / len(parts) for _ in parts]


def _shares(
    graph: Graph, node: Node, folded: Origin, member: Member | None, weights: Weights
) -> dict[int, float]:
    """The share of each source operator in the node, by id."""
    sources = sorted(node.origin)
    given = {source: weights[node.id, source] for source in sources if (node.id, source) in weights}
    if given:
        return {source: float(given.get(source, 0.0)) for source in sources}
    working = [] if node.is_const else [source for source in sources if source not in folded]
    if not working and not node.is_const:
        # All of it was folded, and yet it runs: nothing tells the parts apart.
        working = sources
    elements = node.type.elements or 1 if node.outputs and isinstance(node.type, TensorType) else 1
    light: dict[int, float] = {}
    for source in working:
        definition = REGISTRY.get(graph.ledger.source(source).op)
        flops = 1 if definition is None else definition.flops
        if isinstance(flops, int):
            light[source] = float(max(flops, 1) * elements)
    heavy = [source for source in working if source not in light]
    if heavy:
        total = sum(light.values())
        # A convolution that does less than what was fused into it is still more than nothing.
        rest = max((member.flops if member is not None else 0) - total, total, 1.0)
        light.update((source, rest / len(heavy)) for source in heavy)
    parts = dict(zip(light, _normalised(list(light.values())), strict=True)) if light else {}
    return {source: parts.get(source, 0.0) for source in sources}


def _shape(graph: Graph, node: Node) -> _Shape:
    """Kernel width and height, then the result's width, height and depth."""
    kind = node.type if node.outputs else None
    dims = list(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else None
    if dims is None:
        return (*_window(graph, node), None, None, None)
    if "Blocked" in node.op and len(dims) == 5:
        blocks, block = dims[1], dims.pop()
        dims[1] = blocks * block if isinstance(blocks, int) and isinstance(block, int) else None
    if len(dims) >= 4:
        width, height, depth = dims[-1], dims[-2], dims[1]
    else:
        height, width, depth = (*(1 for _ in range(3 - len(dims))), *dims)[:3]
    return (*_window(graph, node), _known(width), _known(height), _known(depth))


def _window(graph: Graph, node: Node) -> tuple[int | None, int | None]:
    """Width and height of what slides over the input; 1 × 1 when nothing does."""
    shape: object = node.attrs.get("kernel_shape")
    weights = node.operand("W", "w")
    if shape is None and "Conv" in node.op and weights is not None:
        kind = graph.tensor_type(weights)
        shape = (None,) if kind is None or kind.shape is None else kind.shape[2:]
    if not isinstance(shape, tuple) or not shape:
        return 1, 1
    return _known(shape[-1]), _known(shape[-2]) if len(shape) > 1 else 1


def _known(dim: object) -> int | None:
    return dim if isinstance(dim, int) else None

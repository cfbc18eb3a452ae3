"""What the page is told: a profile, the optimised graph and the kernels' code, and which belongs to
which.

Operators, nodes, kernels and functions are named by their position in the lists here. A list of
rows is written as a table of columns: a large model has thousands of them. All text from the model
is made printable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from whence.attribution.findings import Finding
from whence.attribution.profile import Background, Profile
from whence.attribution.rows import SourceRow
from whence.graph import Graph, Node
from whence.graph.escaping import escape
from whence.graph.printer import print_attrs
from whence.report.html.source_edges import operands
from whence.report.lanes import lanes
from whence.report.stacks import modules
from whence.report.terminal import (
    closure,
    cost_of_profiling,
    fate_counts,
    policy_line,
    throughput_line,
)

_LONGEST_ATTRIBUTES = 240
_KERNEL_FACTS = (
    *("id", "time_ns", "min_ns", "waited_ns", "calls"),
    *("native", "inserted", "flops", "bytes", "bound"),
)
"""What the page is told of kernels as it is."""


def content(profile: Profile) -> dict[str, Any]:
    """Depends on the profile only: the same profile gives the same page."""
    number = {row.id: position for position, row in enumerate(profile.sources)}
    kernel_number = {row.id: position for position, row in enumerate(profile.kernels)}
    functions = _functions(profile.background)
    return {
        "model": escape(profile.model),
        "engine": escape(profile.engine),
        "threads": None if profile.is_imported else profile.threads,
        "runs": profile.runs,
        "unprofiled_ns": profile.unprofiled_ns,
        "wall_ns": profile.wall_ns,
        "band_ns": list(profile.band),
        "profiling_cost": cost_of_profiling(profile),
        "policy": profile.policy,
        "environment": [[escape(name), escape(fact)] for name, fact in profile.environment.items()],
        "policy_short": policy_line(profile).strip(),
        "notes": [escape(note) for note in profile.notes],
        "fates": [list(each) for each in fate_counts(profile)],
        "source_ops": profile.coverage.source_ops,
        "sum": [[escape(name), time, tenths] for name, time, tenths in closure(profile)],
        "operators": {
            **_operators(profile.sources, kernel_number),
            "operands": operands(profile.background, number),
        },
        "nodes": _nodes(profile.background, number, kernel_number),
        "kernels": _kernels(profile, number, functions),
        "functions": [text for _, text in functions.values()],
        "timeline": [
            [kernel_number[event.kernel], event.begin_ns, event.end_ns, event.waited_ns]
            for event in profile.timeline
        ],
        "timeline_ns": profile.timeline_ns,
        "workers": [
            [
                [kernel_number[span.kernel], span.begin_ns, span.end_ns]
                for span in spans
                if not span.is_waiting
            ]
            for spans in lanes(profile).values()
        ],
        "throughput": (
            "" if profile.throughput is None else throughput_line(profile.throughput).strip()
        ),
        "findings": [_finding(each, number, kernel_number) for each in profile.findings],
        "roofline": _roofline(profile),
        "memory": _memory(profile, number),
        "distribution_ns": list(profile.distribution),
        "has_graph": profile.background is not None,
    }


def _operators(
    sources: Sequence[SourceRow], kernel_number: Mapping[int, int]
) -> dict[str, list[Any]]:
    return {
        "name": [escape(row.name) for row in sources],
        "type": [escape(row.op) for row in sources],
        "fate": [row.fate for row in sources],
        "time_ns": [row.time_ns for row in sources],
        "inserted_ns": [row.inserted_ns for row in sources],
        "modules": [[escape(part) for part in modules(row)] for row in sources],
        "line": [escape(row.line) for row in sources],
        "became": [escape(row.became) for row in sources],
        "kernels": [[kernel_number[kernel] for kernel in row.kernels] for row in sources],
        "of_peak": [round(row.of_peak, 4) for row in sources],
        "bound": [row.bound for row in sources],
    }


def _finding(
    each: Finding, number: Mapping[int, int], kernel_number: Mapping[int, int]
) -> dict[str, Any]:
    return {
        "title": escape(each.title),
        "advice": escape(each.advice),
        "prize_ns": each.prize_ns,
        "evidence": [escape(fact) for fact in each.evidence],
        "kernels": [kernel_number[kernel] for kernel in each.kernels if kernel in kernel_number],
        "operators": [number[source] for source in each.sources if source in number],
    }


def _roofline(profile: Profile) -> dict[str, Any] | None:
    """What the machine does at most with as many threads: GFLOP/s, and GB/s by level."""
    rates = profile.rates
    if rates is None:
        return None
    return {
        "measured": rates.measured,
        "peaks": [
            [str(unit), rate.at(profile.threads, rates.threads)]
            for unit, rate in rates.peak.items()
        ],
        "levels": [
            [level.name, rates.bandwidth_of(level, profile.threads)] for level in rates.levels
        ],
    }


def _memory(profile: Profile, number: Mapping[int, int]) -> dict[str, Any] | None:
    use = profile.memory
    if use is None:
        return None
    return {
        "weights_bytes": use.weights_bytes,
        "arena_bytes": use.arena_bytes,
        "alive_bytes": list(use.alive_bytes),
        "peak_step": use.peak_step,
        "held": [
            [held.bytes, [number[each] for each in held.sources if each in number], held.type]
            for held in use.held
        ],
    }


def _kernels(
    profile: Profile, number: Mapping[int, int], functions: Mapping[str, tuple[int, str]]
) -> dict[str, list[Any]]:
    symbols = {}
    if profile.background is not None:
        symbols = {step.number: step.symbol for step in profile.background.program.steps}

    called = [functions.get(symbols.get(row.id, "")) for row in profile.kernels]
    rows = profile.kernels
    return {
        **{name: [getattr(row, name) for row in rows] for name in _KERNEL_FACTS},
        "name": [escape(row.name) for row in rows],
        "ops": [[escape(op) for op in row.ops] for row in rows],
        "why_reference": [escape(row.why_reference) for row in rows],
        "parts": [[[number[part.id], part.time_ns] for part in row.origin] for row in rows],
        "function": [-1 if each is None else each[0] for each in called],
        "executed_part": [round(row.executed_part, 3) for row in rows],
        "of_peak": [round(row.of_peak, 4) for row in rows],
    }


def _functions(background: Background | None) -> dict[str, tuple[int, str]]:
    """By symbol: the position and the text of each function that a step calls."""
    if background is None:
        return {}
    called = {step.symbol for step in background.program.steps}
    found: dict[str, tuple[int, str]] = {}
    for unit in background.program.units:
        for function in unit.functions:
            if function.symbol in called:
                found.setdefault(function.symbol, (len(found), function.whole_text))
    return found


def _nodes(
    background: Background | None, number: Mapping[int, int], kernel_number: Mapping[int, int]
) -> dict[str, list[Any]]:
    passes: Mapping[int, Iterable[str]] = {}
    kernels: dict[int, list[int]] = {}
    placed: list[tuple[Node, int, int]] = []
    if background is not None:
        placed, passes = list(_placed(background.program.graph)), _passes(background.program.graph)
        for step in background.program.steps:
            for node in step.nodes:
                kernels.setdefault(node, []).append(kernel_number[step.number])
    nodes = [node for node, _, _ in placed]
    return {
        "id": [node.id for node in nodes],
        "op": [escape(node.op) for node in nodes],
        "type": [", ".join(escape(str(kind)) for kind in node.outputs) for node in nodes],
        "attributes": [_cut(" ".join(print_attrs(node))) for node in nodes],
        "passes": [list(passes.get(node.id, ())) for node in nodes],
        "origin": [sorted(number[source] for source in node.origin) for node in nodes],
        "kernels": [kernels.get(top, []) for _, _, top in placed],
        "depth": [depth for _, depth, _ in placed],
    }


def _placed(graph: Graph, depth: int = 0, top: int = 0) -> Iterator[tuple[Node, int, int]]:
    """In execution order: nodes, in how many graphs each is nested, and the node of the main graph
    that it belongs to, itself unless it is nested. Inputs, outputs and the file's own constants are
    left out: they have no origin.
    """
    for node in graph:
        if node.origin:
            yield node, depth, top or node.id
        for body in node.bodies.values():
            yield from _placed(body, depth + 1, top or node.id)


def _passes(graph: Graph) -> dict[int, dict[str, None]]:
    """By node: the passes that had a hand in it or in what it came from, in their order."""
    found: dict[int, dict[str, None]] = {}
    for edge in graph.ledger.edges:
        mine = found.setdefault(edge.child, {})
        mine.update(found.get(edge.parent, {}))
        mine[edge.pass_name] = None
    return found


def _cut(text: str) -> str:
    """An attribute can be a table of thousands of numbers."""
    return text if len(text) <= _LONGEST_ATTRIBUTES else text[: _LONGEST_ATTRIBUTES - 1] + "…"

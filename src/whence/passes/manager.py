"""Running passes in order: skipping, timing, checking, and a report of what each did."""

from __future__ import annotations

import enum
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence

from whence.errors import WhenceError
from whence.graph import Check, Graph, Rewriter, check_graph
from whence.passes.base import Pass
from whence.passes.equivalence import EquivalenceProbe
from whence.provenance import PassReport


class CheckLevel(enum.IntEnum):
    """How much to verify after every pass. That no source operator was lost is checked at every
    level.
    """

    OFF = 0
    INVARIANTS = 1
    """All graph invariants and every origin, from scratch."""
    OUTPUTS = 2
    """And the graph's outputs on random inputs, before and after."""

    @classmethod
    def from_environment(cls) -> CheckLevel:
        text = os.environ.get("WHENCE_CHECK", "0")
        if text not in ("0", "1", "2"):
            raise WhenceError(
                f"WHENCE_CHECK is '{text}'; it takes 0 (off), 1 (invariants after every pass) or 2"
                " (and outputs)"
            )
        return cls(int(text))


Progress = Callable[[str, int, int], None]
"""Called before each pass with its name, its position and how many there are."""


def run_passes(
    graph: Graph,
    passes: Sequence[Pass],
    *,
    check: CheckLevel | None = None,
    progress: Progress | None = None,
) -> list[PassReport]:
    """Run the passes over the graph and all graphs nested in it; the ledger keeps the reports.
    Raises an error that names the pass when one breaks a promise, and one that names none when the
    graph was broken before.
    """
    level = CheckLevel.from_environment() if check is None else check
    # What is wrong before the first pass is not its fault.
    graph.ledger.check_conserved()
    if level >= CheckLevel.INVARIANTS:
        check_graph(graph, Check.HASH | Check.ORIGIN)
    probe = EquivalenceProbe(graph) if level >= CheckLevel.OUTPUTS else None
    reports = []
    for position, each in enumerate(passes):
        if progress is not None:
            progress(each.name, position, len(passes))
        report = _run_one(graph, each)
        reports.append(report)
        graph.ledger.passes.append(report)
        graph.ledger.check_conserved(each.name)
        if level >= CheckLevel.INVARIANTS and not report.skipped:
            check_graph(graph, Check.HASH | Check.ORIGIN | each.ensures, after=each.name)
        if probe is not None and report.changes:
            # From there on the graph computes something else, by some quanta: the passes after it
            # are held to that.
            probe = (
                probe.renewed(graph, each.name)
                if each.rounds_otherwise
                else probe.compare(graph, each.name)
            )
    return reports


def _run_one(graph: Graph, each: Pass) -> PassReport:
    began = time.perf_counter_ns()
    rules: Counter[str] = Counter()
    added = removed = 0
    reasons = []
    # Nested graphs are looked up as the walk reaches them: the pass may drop some, or make some, in
    # the graph around them.
    for nested in graph.nested():
        reason = each.why_skip(nested)
        if reason:
            reasons.append(reason)
            continue
        reasons.append("")
        rewriter = Rewriter(nested, each.name)
        each.run(rewriter)
        rules.update(rewriter.rules)
        added += rewriter.added
        removed += rewriter.removed
    skipped = reasons[0] if all(reasons) else ""
    return PassReport(
        each.name,
        each.summary,
        time.perf_counter_ns() - began,
        added,
        removed,
        dict(rules),
        skipped,
    )

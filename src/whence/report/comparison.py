"""A comparison of two profiles for programs: JSON, and what GitHub's actions read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from whence.attribution.compare import Comparison, Difference, Verdict
from whence.graph.escaping import escape
from whence.report.terminal import duration

SCHEMA = "whence.diff/1"
_MUCH_UNCLEAR = 0.05


def as_json(found: Comparison, warnings: Sequence[str]) -> str:
    return json.dumps(
        {
            "schema": SCHEMA,
            "warnings": list(warnings),
            "total": _row(found.total),
            "operators": [_row(each) for each in found.operators],
            "unclear": sorted(found.unclear),
        }
    )


def _row(each: Difference) -> dict[str, Any]:
    return {
        "name": each.name,
        "verdict": each.verdict.value,
        "before_ns": list(each.before),
        "after_ns": list(each.after),
        "change_ns": each.change_ns,
        "ratio": each.ratio if math.isfinite(each.ratio) else None,
    }


def as_annotations(found: Comparison, warnings: Sequence[str], over: Sequence[Difference]) -> str:
    """Workflow commands, which GitHub shows beside the change: an error for each difference that is
    over the limit.
    """
    lines = [f"::warning title=whence::{_data(text)}" for text in warnings]
    lines += [f"::error title=whence::{_data(f'{each.name}: {_change(each)}')}" for each in over]
    lines.append(f"::notice title=whence::{_data(f'{found.total.name}: {_change(found.total)}')}")
    return "\n".join(lines)


def as_markdown(found: Comparison, warnings: Sequence[str], limit: int = 20) -> str:
    """A summary: the whole model, and the operators that changed."""
    changed = [each for each in found.operators if each.verdict is not Verdict.SAME]
    changed = [each for each in changed if each.change_ns][: limit or None]
    lines = [f"> {_cell(text)}" for text in warnings]
    lines += ["", "| before | after | change | | operator |", "|--:|--:|--:|---|---|"]
    for each in (found.total, *changed):
        before, after = duration(each.before.median_ns), duration(each.after.median_ns)
        name = _cell(each.name)
        lines.append(f"| {before} | {after} | {percent(each)} | {each.verdict.value} | {name} |")
    same = len(found.operators) - len(changed)
    lines += ["", f"{same} of {len(found.operators)} operators are within the noise."]
    if unclear := unclear_line(found):
        lines += ["", f"{_cell(unclear)}."]
    return "\n".join(lines).strip() + "\n"


def unclear_line(found: Comparison) -> str:
    """What the noise hides; empty where that is next to nothing."""
    if found.total.verdict is Verdict.UNKNOWN:
        return (
            "whether the whole model changed is not known: the machine was too busy; profile again"
            " when it is not, or take more runs (--runs 200)"
        )
    rows = [each for each in found.operators if each.name in found.unclear]
    whole = sum(each.before.median_ns for each in found.operators)
    part = sum(each.before.median_ns for each in rows) / whole if whole else 0.0
    if part < _MUCH_UNCLEAR:
        return ""
    return (
        f"for {len(rows)} of them, {100 * part:.0f} % of the time, noise would hide a change of 20 %:"
        " more runs tell more (--runs 200)"
    )


def percent(each: Difference) -> str:
    """By how much the time changed, with a sign."""
    sign = "+" if each.change_ns > 0 else "-" if each.change_ns < 0 else ""
    return "new" if math.isinf(each.ratio) else f"{sign}{abs(each.ratio) * 100:.1f} %"


def _change(each: Difference) -> str:
    before, after = duration(each.before.median_ns), duration(each.after.median_ns)
    return f"{before} → {after} per run ({percent(each)}, {each.verdict.value})"


def _data(text: str) -> str:
    """A command is one line, in which these mean something."""
    return escape(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _cell(text: str) -> str:
    return escape(text).replace("|", "\\|").replace("<", "&lt;")

"""compare.html: a treemap for each engine on one scale, linked, and the same as a table."""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath
from typing import Any

from whence.attribution.profile import Profile, module_of
from whence.foreign.engine_comparison import EngineComparison
from whence.graph.escaping import escape
from whence.report.html.document import document

_SCRIPTS = ("wording.js", "squarify.js", "pages.js", "engines.js")


def engines_page(found: EngineComparison) -> str:
    """One file, that anybody can open without a network."""
    data = page_content(found)
    title = f"{data['model']}: {', '.join(found.engines)} · whence"
    styles = ["colours.css", "engines.css"]
    return document("whence.report.html", "engines.html", styles, _SCRIPTS, title, data)


def page_content(found: EngineComparison) -> dict[str, Any]:
    """What the page is told. Operators are named by their position in the list."""
    first = found.profiles[0]
    position = {row.id: number for number, row in enumerate(first.sources)}
    companions = [_companions(profile) for profile in found.profiles]
    lines = {line.operators[0]: line for line in found.lines("op") if len(line.operators) == 1}
    return {
        "model": escape(PurePath(found.model).name),
        "threads": first.threads,
        "engines": [
            {
                "name": name,
                "engine": escape(profile.engine),
                "run_ns": total,
                "median_ns": profile.band.median_ns,
                "rest_ns": max(0, total - round(profile.attributed_ns / profile.runs)),
                "kernels": len(profile.kernels),
            }
            for name, profile, total in zip(
                found.engines, found.profiles, found.totals_ns, strict=True
            )
        ],
        "operators": [
            {
                "name": escape(row.name),
                "op": escape(row.op),
                "module": escape(module_of(row)),
                "ns": list(lines[row.id].times_ns),
                "fastest": lines[row.id].fastest,
                "with": [
                    sorted(position[other] for other in each.get(row.id, ())) for each in companions
                ],
            }
            for row in first.sources
        ],
        "fusions": [
            {
                "from": position[each.maker],
                "to": position[each.reader],
                "fused_by": list(each.fused_by),
                "not_by": list(each.not_by),
            }
            for each in found.fusions
        ],
    }


def _companions(profile: Profile) -> dict[int, set[int]]:
    """By operator: the others in its kernels."""
    found: dict[int, set[int]] = defaultdict(set)
    for kernel in profile.kernels:
        members = {part.id for part in kernel.origin} if not kernel.inserted else set()
        for number in members:
            found[number] |= members - {number}
    return found

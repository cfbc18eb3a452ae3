"""Two profiles as one page: a treemap for each, on one scale and with one order, and the operators
that changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from whence.attribution.compare import Comparison, Difference
from whence.attribution.profile import Profile, module_of
from whence.graph.escaping import escape
from whence.report.html.document import document

STYLES = ("colours.css", "engines.css", "diff.css")
SCRIPTS = ("wording.js", "squarify.js", "pages.js", "diff.js")


def diff_page(
    before: Profile, after: Profile, found: Comparison, warnings: Sequence[str] = ()
) -> str:
    """A page that anybody can open, without a network."""
    title = f"{before.model} and {after.model} · whence diff"
    data = diff_content(before, after, found, warnings)
    return document("whence.report.html", "diff.html", STYLES, SCRIPTS, title, data)


def diff_content(
    before: Profile, after: Profile, found: Comparison, warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """What the page is told. All text from the models is made printable."""
    rows = {row.name: row for profile in (before, after) for row in profile.sources}
    return {
        "warnings": [escape(text) for text in warnings],
        "profiles": [_profile(each) for each in (before, after)],
        "total": _change(found.total),
        "operators": [
            {
                **_change(each),
                "type": escape(rows[each.name].op),
                "module": escape(module_of(rows[each.name])),
            }
            for each in found.operators
        ],
    }


def _profile(profile: Profile) -> dict[str, Any]:
    return {
        "model": escape(profile.model),
        "engine": escape(profile.engine),
        "threads": profile.threads,
        "runs": profile.runs,
        "median_ns": profile.band.median_ns,
        "facts": [
            escape(profile.environment[name])
            for name in ("cpu", "whence", "date")
            if name in profile.environment
        ],
    }


def _change(each: Difference) -> dict[str, Any]:
    return {
        "name": escape(each.name),
        "ns": [each.before.median_ns, each.after.median_ns],
        "verdict": each.verdict.value,
        "ratio": each.ratio if math.isfinite(each.ratio) else None,
    }

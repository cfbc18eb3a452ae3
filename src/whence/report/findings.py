"""What to do next, for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from whence.attribution.findings import Finding
from whence.attribution.profile import Profile
from whence.graph.escaping import escape
from whence.report.terminal import duration, print_wrapped

_INDENT = " " * 4


def print_findings(console: Console, profile: Profile, limit: int = 10) -> None:
    """Those with a prize, by its size; then what makes the figures doubtful. `limit` 0 prints
    all.
    """
    findings = profile.findings
    prized = [each for each in findings if each.prize_ns]
    for number, each in enumerate(prized[: limit or None], 1):
        _print(console, profile, f"{number:2}. ", each, "bold")
    if limit and len(prized) > limit:
        console.print(Text(f" ... and {len(prized) - limit} more; --limit 0 shows all", "dim"))
    for each in findings:
        if not each.prize_ns:
            _print(console, profile, " !  ", each, "yellow")
    if not findings:
        console.print(Text(" nothing stands out"))


def _print(console: Console, profile: Profile, mark: str, each: Finding, style: str) -> None:
    lines = [(each.title, style)]
    if each.prize_ns:
        lines.append((f"saves up to {prize(profile, each)}", "green"))
    lines += [(fact, "dim") for fact in each.evidence]
    for text, shown in [*lines, (f"→ {each.advice}", "")]:
        print_wrapped(console, escape(text), mark, _INDENT, shown, 20)
        mark = _INDENT


def prize(profile: Profile, each: Finding) -> str:
    """What mending it would save in a run, as a time and as a part."""
    whole = profile.unprofiled_ns
    part = 100 * each.prize_ns / whole if whole else 0.0
    return f"{duration(each.prize_ns)} of {duration(whole)} ({part:.0f} %)"

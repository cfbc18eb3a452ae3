"""What tuning found, as a short table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from whence.backends.cpu.tune import TunedProblem
from whence.report.terminal import duration

_NAMES = {
    "direct": "convolutions",
    "winograd": "transformed convolutions",
    "depthwise": "depthwise convolutions",
    "product": "matrix products",
}


def print_findings(console: Console, findings: Sequence[TunedProblem]) -> None:
    """By the algorithm that the cost model takes: how many problems, how many it would have run
    otherwise, and what that saves in a run.
    """
    if not findings:
        console.print("nothing to tune: no kernel of this model leaves a choice")
        return
    known = sum(not each.is_new for each in findings)
    console.print(
        f"tuned {len(findings)}"
        f" problem{'s' if len(findings) > 1 else ''}{f', {known} of them before' if known else ''}"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("  kernels")
    for heading in (
        "layers",
        "problems",
        "winner differs",
        "cost model",
        "winners",
        "predicted gain",
    ):
        table.add_column(heading, justify="right")
    for kind, name in _NAMES.items():
        if rows := [each for each in findings if each.kind == kind]:
            table.add_row(*_row(name, rows))
    if len({each.kind for each in findings}) > 1:
        table.add_row(*_row("all", findings))
    console.print(table)


def _row(name: str, findings: Sequence[TunedProblem]) -> tuple[str, ...]:
    usual = sum(each.layers * each.winner.usual_nanoseconds for each in findings)
    best = sum(each.layers * each.winner.nanoseconds for each in findings)
    layers = sum(each.layers for each in findings)
    differing = sum(each.differs for each in findings)
    return (
        f"  {name}",
        str(layers),
        str(len(findings)),
        str(differing),
        duration(usual),
        duration(best),
        f"{(usual - best) / max(usual, 1):.1%}",
    )

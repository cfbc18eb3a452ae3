"""What memory a run needs, for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whence.attribution.profile import Profile
from whence.graph.escaping import fit
from whence.report.terminal import in_unit

_ROWS = 10


def print_memory(console: Console, profile: Profile) -> None:
    """Weights, arena, the peak and who holds it."""
    use = profile.memory
    if use is None:
        console.print(Text(" memory: not known for this engine"))
        return
    peak = profile.kernels[use.peak_step].id if profile.kernels else 0
    facts = (
        f" memory: weights {size(use.weights_bytes)}, arena {size(use.arena_bytes)}, of which"
        f" {size(use.peak_bytes)} are alive at kernel {peak}; scratch"
        f" {size(use.scratch_bytes)} per thread"
    )
    console.print(Text(facts), soft_wrap=True)
    table = Table(box=None, header_style="dim", padding=(0, 1))
    for name in ("bytes", "kernels"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("held at the peak: result of", no_wrap=True, overflow="ellipsis")
    table.add_column("type", no_wrap=True, style="dim")
    names = {row.id: row.name for row in profile.sources}
    room = max(20, console.width - 60)
    for held in use.held[:_ROWS]:
        made = ", ".join(names[each] for each in held.sources if each in names)
        span = f"{held.first}-{held.last}" if held.first != held.last else str(held.first)
        table.add_row(size(held.bytes), span, Text(fit(made, room)), Text(fit(held.type, 30)))
    console.print(table)


def size(count: int) -> str:
    """Bytes with three digits or so."""
    return in_unit(count, {"GB": 1e9, "MB": 1e6, "kB": 1e3}) or f"{count} B"

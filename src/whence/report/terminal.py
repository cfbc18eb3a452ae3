"""A profile as a table for the terminal. Fits its width; names lose their middle, and nothing in
them takes effect.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whence.attribution.outcome_text import tail
from whence.attribution.profile import COMPILED_FOR, Profile, module_of
from whence.attribution.rows import KernelRow, RowGroup, SourceRow
from whence.attribution.split import largest_remainder
from whence.attribution.throughput import Throughput
from whence.graph.escaping import escape, fit, shorten
from whence.plural import counted

# A model's name is shortened to this many characters at most to have the header in a line.
_NAME_WIDTH = 24
_ALWAYS = ("kernels", "dispatch", "idle")
_HEADINGS = {
    "type": "type",
    "module": "module",
    "line": "line of the program",
    "pass": "pass that made the nodes",
}
_LEAST_WIDTH = 40
_LEAST_MODULE = 8
# What became of an operator has this much room at least beside a column for modules.
_BECAME = "what became of it"
_LEAST_BECAME = 24
_RATE_WIDTH, _WIDE = 7, 130


def print_profile(
    console: Console,
    profile: Profile,
    by: str = "op",
    limit: int = 20,
    title: str = "",
    depth: int = 0,
) -> None:
    """The header, the rows with most time, and the footer that adds up. `limit` 0 prints all rows;
    `title` replaces the header; `depth` is how many modules deep to look, 0 for all.
    """
    console.print(
        Text(escape(title) or header(profile, console.width), style="bold"), soft_wrap=True
    )
    if by == "op":
        rows = sorted(profile.sources, key=lambda row: -row.time_ns)
        _print_operators(console, profile, rows[: limit or len(rows)])
        left = len(rows) - limit if limit else 0
    else:
        groups = profile.by(by, depth)
        shown = groups[: limit or len(groups)]
        if by == "kernel":
            _print_kernels(console, profile, shown)
        else:
            _print_groups(console, profile, by, shown)
        left = len(groups) - limit if limit else 0
    if left > 0:
        console.print(Text(f"  ... and {left} more; --limit 0 shows all", style="dim"))
    console.print(Text(fates_line(profile)), soft_wrap=True)
    console.print(Text(closure_line(profile)), soft_wrap=True)
    console.print(Text(policy_line(profile), style="dim"), soft_wrap=True)
    if len(profile.runs_ns) > 1:
        console.print(Text(distribution_line(profile), style="dim"), soft_wrap=True)
    if profile.throughput is not None:
        console.print(Text(throughput_line(profile.throughput)), soft_wrap=True)
    if best := next_line(profile):
        print_wrapped(console, best, " ", "   ")


def print_wrapped(
    console: Console, text: str, first: str, others: str, style: str = "", least: int = 0
) -> None:
    """Lines with these indents, as wide as the terminal, and not narrower than `least`."""
    for line in textwrap.wrap(
        text,
        max(least, console.width),
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
    ):
        console.print(Text(line, style=style), soft_wrap=True)


def throughput_line(found: Throughput) -> str:
    """` 2 streams, batch 4: 31.2 runs/s, 125 samples/s · a run takes 61 ms, p90 70 ms, p99 71
    ms`
    """
    samples = f", {_per_second(found.samples_per_second)} samples/s" if found.batch > 1 else ""
    batch = f", batch {found.batch}" if found.batch > 1 else ""
    return (
        f" {counted(found.streams, 'stream')}{batch}:"
        f" {_per_second(found.runs_per_second)} runs/s{samples} · a run takes"
        f" {duration(found.latency.p50_ns)}, p90 {duration(found.latency.p90_ns)}, p99"
        f" {duration(found.latency.p99_ns)}"
    )


def _per_second(rate: float) -> str:
    return f"{rate:.3g}" if rate < 100 else f"{rate:.0f}"


def header(profile: Profile, width: int) -> str:
    """What was run, in a line; in several where that would be longer than `width`."""
    threads = f", {counted(profile.threads, 'thread')}"
    threads = "" if profile.is_imported else threads
    runs = counted(profile.runs, "run")
    facts = (
        f"{profile.engine}{threads}{_version(profile)}",
        runs,
        per_run(profile),
        f"profiling cost {cost_of_profiling(profile)}",
    )
    line = "".join(f" · {fact}" for fact in facts)
    if width - len(line) >= min(_NAME_WIDTH, len(profile.model)):
        return fit(profile.model, width - len(line)) + line
    # On a narrow terminal, lines of whole facts below the name.
    lines = [fit(profile.model, max(12, width))]
    for fact in facts:
        longer = f"{lines[-1]} · {fact}"
        if len(lines) > 1 and len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(f" {fact}")
    return "\n".join(lines)


def _version(profile: Profile) -> str:
    """Which program ran, where a model with open sizes has several."""
    found = profile.environment.get(COMPILED_FOR)
    return f", {found}" if found else ""


def per_run(profile: Profile) -> str:
    """The mean, of which all times in the tables are parts; also the median, as `whence diff`
    compares it, where the two are far apart.
    """
    mean = profile.run_ns
    median = profile.band.median_ns if profile.runs_ns else mean
    also = f" (mean; median {duration(median)})" if abs(mean - median) > 0.1 * median else ""
    return f"{duration(mean)} per run{also}"


def cost_of_profiling(profile: Profile) -> str:
    if profile.is_imported:
        return "not known"
    ratio = profile.overhead_ratio
    if not profile.overhead_is_credible:
        return f"{ratio * 100:+.0f} %: too noisy to believe"
    return f"{ratio * 100:.1f} %" if ratio >= 0.0005 else "below 0.1 %"


def fates_line(profile: Profile) -> str:
    return (
        f" {profile.coverage.source_ops} operators:"
        f" {', '.join(f'{count} {name}' for name, count in fate_counts(profile))}"
    )


def fate_counts(profile: Profile) -> list[tuple[str, int]]:
    """How many operators met each fate. That none was lost is always said; that none was dead is
    not.
    """
    counts = dataclasses.asdict(profile.coverage)
    del counts["source_ops"]
    return [(name, count) for name, count in counts.items() if count or name != "dead"]


def closure_line(profile: Profile) -> str:
    """`kernels 99.1 % + dispatch 0.6 % + idle 0.3 % = 100 %`. What rounds to nothing is left
    out.
    """
    parts = closure(profile)
    shown = [
        f"{escape(name)} {tenths / 10:.1f} %"
        for name, _, tenths in parts
        if tenths or name in _ALWAYS
    ]
    return f" {' + '.join(shown)} = {sum(tenths for _, _, tenths in parts) // 10} %"


def closure(profile: Profile) -> list[tuple[str, int, int]]:
    """What the wall time consists of: name, nanoseconds, and tenths of a per cent, rounded so that
    they add up to 1000.
    """
    parts = {"kernels": profile.attributed_ns, **profile.residual_ns}
    tenths = (
        largest_remainder(1000, list(parts.values())) if any(parts.values()) else [0] * len(parts)
    )
    return [(name, time, tenth) for (name, time), tenth in zip(parts.items(), tenths, strict=True)]


def policy_line(profile: Profile) -> str:
    """In short how kernels were split, and how well the threads kept each other busy. The whole
    policy is in every file.
    """
    waited = profile.waited_ns / profile.attributed_ns if profile.attributed_ns else 0.0
    found = [f" shares within kernels: {policy_name(profile)}"]
    if profile.notes:
        found.append(f"{counted(len(profile.notes), 'note')} in profile.json")
    if waited >= 0.005:
        found.append(f"threads waited for others {waited * 100:.1f} %")
    return " · ".join(found)


def distribution_line(profile: Profile) -> str:
    """How long the runs took."""
    least, half, most, nearly_all = profile.distribution
    return (
        f" runs: shortest {duration(least)}, p50 {duration(half)}, p90 {duration(most)}, p99"
        f" {duration(nearly_all)}"
    )


def next_line(profile: Profile) -> str:
    """The finding with the largest prize, in a line; empty where there is none."""
    best = next((each for each in profile.findings if each.prize_ns), None)
    if best is None or not profile.run_ns:
        return ""
    part = 100 * best.prize_ns / profile.unprofiled_ns
    return f"next, up to {part:.0f} %: {escape(best.title)} (whence advise)"


def policy_name(profile: Profile) -> str:
    """What stands before the colon of the policy, as part of a sentence; of one without, such as
    Vela's, the first sentence as it is.
    """
    first = profile.policy.partition(". ")[0]
    name, colon, _ = first.partition(": ")
    return escape(f"{name[:1].lower()}{name[1:]}" if colon else first)


def duration(nanoseconds: float) -> str:
    return in_unit(nanoseconds, {"s": 1e9, "ms": 1e6, "µs": 1e3}) or f"{nanoseconds:.0f} ns"


def in_unit(amount: float, units: Mapping[str, float]) -> str:
    """With three digits or so in the first of the units that it reaches, empty if none."""
    for unit, size in units.items():
        if amount >= size:
            value = amount / size
            return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"
    return ""


def _print_operators(console: Console, profile: Profile, rows: Sequence[SourceRow]) -> None:
    table = _table()
    rates = _Rates(table, console, rows)
    taken = 26 + rates.width
    modules = [_module_beside(row) for row in rows]
    longest = max((len(escape(row.name)) for row in rows), default=8)
    spare = console.width - taken - min(longest, console.width // 3) - _LEAST_BECAME
    longest_module = max(map(len, modules), default=0)
    # Short names take their heading's width; of long ones less than that much tells nothing.
    module_width = min(max(longest_module, len("module")), max(0, spare))
    if not longest_module or module_width < min(longest_module, _LEAST_MODULE):
        module_width = 0
    table.add_column("operator", no_wrap=True, overflow="ellipsis")
    if module_width:
        table.add_column("module", no_wrap=True, overflow="ellipsis")
    table.add_column(_BECAME, no_wrap=True, overflow="ellipsis", style="dim")
    taken += module_width + 2 if module_width else 0
    room = max(rates.least_room, console.width - taken)
    ends = max((len(_end(escape(row.became))) for row in rows), default=0)
    ends = max(ends, len(_BECAME))
    name_width = min(longest, max(room * 3 // 5, room - ends))
    shown = Counter(fit(row.name, name_width) for row in rows)
    for row, module in zip(rows, modules, strict=True):
        name = fit(row.name, name_width)
        name = (
            fit(f"#{row.id} {row.name}", name_width)
            if shown[name] > 1 and longest > name_width
            else name
        )
        inserted = ""
        if row.inserted_ns * 20 > row.time_ns > 0:
            inserted = f", {row.inserted_ns / row.time_ns:.0%} of it layout changes"
        outcome = _fit_became(row.became, inserted, room - name_width)
        beside = (Text(fit(module, module_width)),) if module_width else ()
        times = _times(profile, row.time_ns, row.share)
        table.add_row(*times, *rates.cells(row), Text(name), *beside, Text(outcome))
    console.print(table)


def _fit_became(outcome: str, inserted: str, width: int) -> str:
    """What became of an operator; where there is little room, only where it ended."""
    whole = escape(outcome)
    end = _end(whole)
    forms = (whole + inserted, end + inserted, end)
    return next((form for form in forms if len(form) <= width), shorten(end, width))


def _end(outcome: str) -> str:
    """Of what became of an operator, where it ended."""
    _, arrow, kernel = outcome.rpartition("→")
    return arrow + kernel


def of_peak(part: float) -> str:
    """As a percentage; nothing where it is not known."""
    return f"{part * 100:.0f} %" if part >= 0.0995 else f"{part * 100:.1f} %" if part else ""


def _module_beside(row: SourceRow) -> str:
    """The operator's module where its name does not say it."""
    module = module_of(row)
    said = row.name.strip("/").replace("/", ".")
    return "" if module.startswith("(") or said.startswith(module) else module


def _print_groups(console: Console, profile: Profile, by: str, groups: Sequence[RowGroup]) -> None:
    table = _table()
    table.add_column(_HEADINGS[by], no_wrap=True, overflow="ellipsis")
    has_counts = by != "pass"
    if has_counts:
        table.add_column("operators", justify="right", style="dim")
        table.add_column("kernels", justify="right", style="dim")
    width = max(_LEAST_WIDTH // 2, console.width - 26 - (20 if has_counts else 0))
    for group in groups:
        counts = (str(group.operators), str(group.kernels)) if has_counts else ()
        table.add_row(
            *_times(profile, group.time_ns, group.share), Text(fit(group.key, width)), *counts
        )
    console.print(table)


def _print_kernels(console: Console, profile: Profile, groups: Sequence[RowGroup]) -> None:
    """Each with the operators of the file in it, those with most time first, and what it makes."""
    table = _table()
    kernels = {f"{kernel.id} {kernel.name}": kernel for kernel in profile.kernels}
    rows = [kernels[group.key] for group in groups]
    rates = _Rates(table, console, rows, "GFLOP/s", "GB/s")
    table.add_column("#", justify="right")
    table.add_column("operators", no_wrap=True, overflow="ellipsis")
    table.add_column("makes", no_wrap=True, style="dim")
    names = {row.id: row.name for row in profile.sources}
    room = max(rates.least_room, console.width - 32 - rates.width)
    shape_width = min(max((len(row.shape) for row in rows), default=0), room // 2)
    for group, kernel in zip(groups, rows, strict=True):
        parts = sorted(kernel.origin, key=lambda part: -part.time_ns)
        first, *others = [names[part.id] for part in parts]
        text = ", ".join([first, *(tail(name, first) for name in others)])
        table.add_row(
            *_times(profile, group.time_ns, group.share),
            *rates.cells(kernel, _rate(kernel.gflops), _rate(kernel.gbytes)),
            str(kernel.id),
            Text(_from_left(text, room - shape_width)),
            Text(fit(kernel.shape, shape_width)),
        )
    console.print(table)


class _Rates:
    """Columns for how close rows come to the machine's peak, where that is known; and on a wide
    terminal for these figures, and for what they run into.
    """

    def __init__(
        self,
        table: Table,
        console: Console,
        rows: Sequence[SourceRow] | Sequence[KernelRow],
        *figures: str,
    ) -> None:
        self._is_known = any(row.of_peak for row in rows)
        self._is_wide = self._is_known and console.width >= _WIDE
        names = ["of peak"] * self._is_known + [*figures] * self._is_wide
        for name in names:
            table.add_column(name, justify="right", no_wrap=True, min_width=_RATE_WIDTH)
        self.width = len(names) * (_RATE_WIDTH + 2)
        self.least_room = _LEAST_WIDTH - (_RATE_WIDTH if self._is_known else 0)
        """That the names beside them have."""
        if self._is_wide:
            table.add_column("bound", no_wrap=True, style="dim")
            self.width += max(len("bound"), *(len(row.bound) for row in rows)) + 2

    def cells(self, row: SourceRow | KernelRow, *figures: str) -> tuple[str | Text, ...]:
        share = (of_peak(row.of_peak),) if self._is_known else ()
        return (*share, *figures, Text(escape(row.bound))) if self._is_wide else share


def _rate(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}" if rate >= 0.05 else ""


def _from_left(text: str, width: int) -> str:
    """A list of names, the most important first, as much of it as there is room for."""
    shown = escape(text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def _table() -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 1))
    table.add_column("share", justify="right", no_wrap=True, min_width=7)
    table.add_column("time/run", justify="right", no_wrap=True, min_width=9)
    return table


def _times(profile: Profile, time_ns: int, share: float) -> tuple[str, str]:
    return f"{share * 100:.1f} %", duration(time_ns / profile.runs) if time_ns else "0"

"""The tables of docs/performance.md, from `results.jsonl`.

    python -m benchmarks.tables             rewrite them
    python -m benchmarks.tables --check     say whether they are up to date; the exit code is 1 if not

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; everything else in the
document is written by hand and stays. Each kind of machine has a table of its own, with the newest
figures that were recorded on it.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.record import Kind, Row, read_rows

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
_MARKED = re.compile(r"(<!-- table: ([^>]+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_FEW_CORES = 2
_NAMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "litert": "LiteRT"}
_LABELS = {**_NAMES, "openvino cached": "OpenVINO cached"}


def latest(rows: Sequence[Row]) -> list[tuple[Row, Row | None]]:
    """For each key the row that counts and the one before it, in the order of first recording."""
    found: dict[tuple[str, str, int], tuple[Row, Row | None]] = {}
    for row in rows:
        before = found[row.key][0] if row.key in found else None
        found[row.key] = (row, before)
    return list(found.values())


def by_kind(rows: Sequence[Row]) -> dict[Kind, list[Row]]:
    kinds: dict[Kind, list[Row]] = {}
    for row in rows:
        kinds.setdefault(row.stamp.kind, []).append(row)
    return kinds


def heading(rows: Sequence[Row]) -> str:
    """When, where and with what these rows were measured, and what is to be known about them."""

    def each(values: Sequence[str]) -> str:
        return " and ".join(dict.fromkeys(value for value in values if value))

    stamps = [row.stamp for row in rows]
    used = {"whence", *(name for row in rows for name in row.peers)}
    known = {name for stamp in stamps for name in stamp.versions}
    # Where only ratios are known, so are not the peers that they are to.
    shown = [name for name in ("whence", *_NAMES) if name in (used if len(used) > 1 else known)]
    versions = [
        f"{_NAMES.get(name, name)} {each([stamp.versions.get(name, '') for stamp in stamps])}"
        for name in shown
    ]
    commits = each([stamp.commit for stamp in stamps])
    facts = [
        each([stamp.date for stamp in stamps]),
        f"{each([stamp.cpu for stamp in stamps])}, {stamps[0].kind}",
        ", ".join(versions),
        *([f"commit {commits}"] if commits else []),
        *dict.fromkeys(row.note for row in rows if row.note),
    ]
    return _wrapped("; ".join(facts) + ".")


def table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        f"| {' | '.join(cells)} |" if number != 1 else f"|{'---|' * len(columns)}"
        for number, cells in enumerate((columns, (), *lines))
    )


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def ratio(row: Row | None) -> str:
    return "" if row is None or row.ratio is None else f"{row.ratio:.2f}"


def name(model: str) -> str:
    """Without the prefix of exported models. `light_` stays: such a file has the graph of a model
    whose name it bears, but constant weights, and may stand beside it.
    """
    return model.removeprefix("t_")


def _wrapped(prose: str) -> str:
    return textwrap.fill(prose, 100, break_long_words=False, break_on_hyphens=False)


def _means(pairs: Sequence[tuple[Row, Row | None]]) -> str:
    """Geometric means by number of threads, now and before, and the lowest."""
    said = []
    for threads in sorted({row.threads for row, _ in pairs}):
        now = [row.ratio for row, _ in pairs if row.threads == threads and row.ratio]
        old = [old.ratio for row, old in pairs if row.threads == threads and old and old.ratio]
        if now:
            before = f" (before: {statistics.geometric_mean(old):.2f})" if old else ""
            said.append(f"{statistics.geometric_mean(now):.2f} on {threads}{before}")
    compared = [row for row, _ in pairs if row.ratio]
    lowest = min(compared, key=lambda row: row.ratio or 0.0)
    return _wrapped(
        f"Geometric means by number of threads: {', '.join(said)}. The lowest:"
        f" {name(lowest.model)} on {lowest.threads}, {ratio(lowest)}."
    )


def latency(rows: Sequence[Row]) -> str:
    pairs = latest(rows)
    lines = [
        (
            name(row.model),
            str(row.threads),
            *(
                number(row.figures.get(engine)) or "–"
                for engine in ("whence", "onnxruntime", "openvino")
            ),
            ratio(row),
            ratio(before),
            " / ".join(number(row.extra.get(f"{it} MB")) for it in ("whence", "onnxruntime")),
        )
        for row, before in pairs
    ]
    columns = ["model", "threads", "whence", "ONNX Runtime", "OpenVINO", "ratio", "before", "MB"]
    return f"{table(columns, lines)}\n\n{_means(pairs)}"


def by_threads(rows: Sequence[Row]) -> str:
    """Ratios only, a column for each number of threads."""
    pairs = latest(rows)
    threads = sorted({row.threads for row, _ in pairs})
    found = {(row.model, row.threads): row for row, _ in pairs}
    lines = [
        (name(model), *(ratio(found.get((model, count))) for count in threads))
        for model in dict.fromkeys(row.model for row, _ in pairs)
    ]
    columns = ["model", *(f"{count} thread{'s' * (count > 1)}" for count in threads)]
    return f"{table(columns, lines)}\n\n{_means(pairs)}"


def figures(rows: Sequence[Row]) -> str:
    """What was measured, by engine, and the ratio."""
    pairs = latest(rows)
    engines = list(dict.fromkeys(key for row, _ in pairs for key in (*row.figures, *row.extra)))
    columns = [
        "model",
        "streams" if rows[0].benchmark == "throughput" else "threads",
        *(_LABELS.get(engine, engine) for engine in engines),
        "ratio",
        "before",
    ]
    lines = [
        (
            name(row.model),
            str(row.threads),
            *(number({**row.figures, **row.extra}.get(engine)) for engine in engines),
            ratio(row),
            ratio(before),
        )
        for row, before in pairs
    ]
    return table(columns, lines)


def _few(row: Row) -> bool:
    return row.stamp.cores <= _FEW_CORES


def _all(row: Row) -> bool:
    return True


TABLES: dict[str, tuple[str, Callable[[Row], bool], Callable[[Sequence[Row]], str]]] = {
    "latency": ("latency", _few, latency),
    "latency on more cores": ("latency", lambda row: not _few(row), by_threads),
    "latency, 8 bits": ("latency, 8 bits", _all, by_threads),
    "throughput": ("throughput", _all, figures),
    "start-up, loading": ("start-up, loading", _all, figures),
    "start-up, process": ("start-up, process", _all, figures),
    "profiling": ("profiling", _all, figures),
    "prepare": ("prepare", _all, figures),
    "attribution": ("attribution", _all, figures),
}
"""By the name in the document: which benchmark, on which machines, and how it is shown."""


def generate(which: str, rows: Sequence[Row]) -> str:
    """One table for each kind of machine, or a line that says that there is none."""
    if which not in TABLES:
        raise SystemExit(f"no table is called '{which}'; there are: {', '.join(TABLES)}")
    benchmark, wanted, show = TABLES[which]
    chosen = [row for row in rows if row.benchmark == benchmark and wanted(row)]
    parts = []
    for of_kind in by_kind(chosen).values():
        counting = [row for row, _ in latest(of_kind)]
        parts.append(f"{heading(counting)}\n\n{show(of_kind)}\n")
    return "\n".join(parts) if parts else "Not recorded yet.\n"


def update(text: str, rows: Sequence[Row]) -> str:
    """The document with its tables made anew."""
    return _MARKED.sub(
        lambda found: f"{found[1]}\n{generate(found[2], rows)}\n{found[3]}",
        text,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = DOCUMENT.read_text(encoding="utf-8")
    made = update(text, read_rows())
    if options.check:
        sys.exit(made != text and f"{DOCUMENT.name} is older than results.jsonl: make tables")
    DOCUMENT.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()

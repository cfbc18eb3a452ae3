"""What was measured, where and with what: `results.jsonl`, to which benchmarks append with
`--record`, and from which the tables of docs/performance.md are made.

One line of JSON for each figure. Lines are never changed: the newest one of the same benchmark,
model and number of threads on the same kind of machine counts, the one before shows what a ratio is
worth there. After recording, `python -m benchmarks.tables` brings the document up to date.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from whence.codegen.target import AVX2, AVX512, Feature, Target
from whence.runtime.environment import processor_name, source_commit, version_of

RESULTS = Path(__file__).with_name("results.jsonl")
PEERS = {"onnxruntime": "onnxruntime", "openvino": "openvino", "litert": "ai-edge-litert"}
"""Peers by the names that figures have, and their packages."""
_RATES = ("runs/s",)


class Kind(NamedTuple):
    """Machines whose ratios are compared with each other: what instructions there are, and how many
    cores share the memory. Neither the maker nor the clock, which are the same for the peers.
    """

    level: str
    cores: int

    def __str__(self) -> str:
        return f"{self.cores} cores with {self.level}"


@dataclass(frozen=True, slots=True)
class Stamp:
    """When, where and with what something was measured."""

    date: str
    cpu: str
    level: str
    cores: int
    commit: str
    """Empty where it is not known."""
    versions: Mapping[str, str]

    @property
    def kind(self) -> Kind:
        return Kind(self.level, self.cores)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `figures` are what the ratio was made of, by engine, `extra` what else was
    measured; either may be empty. Above 1, whence is ahead; without a peer there is no ratio.
    """

    stamp: Stamp
    benchmark: str
    model: str
    threads: int
    unit: str
    ratio: float | None
    figures: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.benchmark, self.model, self.threads)

    @property
    def peers(self) -> set[str]:
        return set(self.figures) - {"whence"}

    def ratio_to(self, peers: Iterable[str]) -> float | None:
        """As `ratio`, to the best of these peers only."""
        return ratio({name: self.figures[name] for name in ("whence", *peers)}, self.unit)


def ratio(figures: Mapping[str, float], unit: str) -> float | None:
    """How far whence is ahead of the best peer: times are better if short, rates if high."""
    peers = [value for engine, value in figures.items() if engine != "whence"]
    if not peers or "whence" not in figures:
        return None
    ours = figures["whence"]
    return round(ours / max(peers) if unit in _RATES else min(peers) / ours, 3)


def measured(
    stamp: Stamp,
    benchmark: str,
    model: str,
    threads: int,
    unit: str,
    figures: Mapping[str, float],
    extra: Mapping[str, float] | None = None,
) -> Row:
    """A row whose ratio follows from its figures."""
    return Row(
        stamp,
        benchmark,
        model,
        threads,
        unit,
        ratio(figures, unit),
        {engine: float(f"{value:.4g}") for engine, value in figures.items()},
        {name: float(f"{value:.4g}") for name, value in (extra or {}).items()},
    )


def instruction_level(target: Target) -> str:
    """The widest arithmetic that kernels may use, in one word."""
    for level, needed in (
        ("AMX", frozenset({Feature.AMX_TILE, Feature.AMX_BF16})),
        ("AVX-512", AVX512),
        ("AVX2", AVX2),
        ("NEON", frozenset({Feature.NEON})),
    ):
        if needed <= target.features:
            return level
    return str(target.arch)


def stamp_now() -> Stamp:
    """This machine and this source, now."""
    target = Target.default()
    versions = {name: version_of(package) for name, package in PEERS.items()}
    return Stamp(
        datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        processor_name() or str(target.arch),
        instruction_level(target),
        target.cores,
        source_commit(),
        {
            "whence": version_of("whence"),
            **{name: version for name, version in versions.items() if version != "not installed"},
        },
    )


def to_line(row: Row) -> str:
    fields = dataclasses.asdict(row)
    stamp = fields.pop("stamp")
    return json.dumps({**fields, **stamp}, ensure_ascii=False)


def from_line(line: str) -> Row:
    fields: dict[str, Any] = json.loads(line)
    stamp = Stamp(**{each.name: fields.pop(each.name) for each in dataclasses.fields(Stamp)})
    return Row(stamp, **fields)


def read_rows(path: Path = RESULTS) -> list[Row]:
    """All rows, the oldest first."""
    return [from_line(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append_rows(rows: Iterable[Row], path: Path = RESULTS) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(to_line(row) + "\n" for row in rows)


def newest(rows: Iterable[Row], key: tuple[str, str, int], kind: Kind | None = None) -> Row | None:
    """What counts for a benchmark, model and number of threads: on this kind of machine, or on
    any.
    """
    found = None
    for row in rows:
        if row.key == key and kind in (None, row.stamp.kind):
            found = row
    return found

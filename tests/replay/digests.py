"""The committed list of digests, one line for each generated text, sorted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.replay.generated import Generated, generate, prelude_texts
from tests.replay.models_other import models

DIGESTS = Path(__file__).with_name("digests.txt")
_SHOWN = 40


def generate_all() -> dict[str, Generated]:
    found = prelude_texts()
    for model in models():
        found |= generate(model)
    return found


def summarise(found: Mapping[str, Generated]) -> dict[str, str]:
    return {key: found[key].summary for key in sorted(found)}


def read_digests(path: Path = DIGESTS) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return dict(line.split(" ", 1) for line in lines)


def write_digests(summaries: Mapping[str, str], path: Path = DIGESTS) -> None:
    text = "".join(f"{key} {summary}\n" for key, summary in summaries.items())
    path.write_text(text, encoding="utf-8")


def describe_changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Which kernels of which models are other than before, in a few lines; empty when none is."""
    gone = [f"gone     {key}" for key in before if key not in after]
    new = [f"new      {key}" for key in after if key not in before]
    changed = [
        f"changed  {key}: {before[key]} -> {after[key]}"
        for key in after
        if key in before and before[key] != after[key]
    ]
    lines = [*changed, *new, *gone]
    if not lines:
        return ""
    counts = Counter("/".join(line.split()[1].split("/")[:2]) for line in lines)
    places = ", ".join(f"{place} {count}" for place, count in sorted(counts.items()))
    more = [f"... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([f"{len(lines)} of {len(after)} texts: {places}", *lines[:_SHOWN], *more])

"""A cell of a sweep: one profile to be made, and the key by which the table knows it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from whence.plural import counted

WHENCE = "whence"
"""The engine that is ours; any other is one of `whence.foreign`."""
CURRENT = "current"
"""The version of whence that runs the sweep."""

_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


def thread_count(threads: int) -> str:
    """0 is every core."""
    return counted(threads, "thread") if threads else "all threads"


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured. Equal cells have equal keys, on any machine and in any process."""

    model: str
    """The name of the model: that of its file, without folder and suffix."""
    model_sha256: str
    """Of its content, and of the files that its weights are in."""
    engine: str = WHENCE
    engine_version: str = ""
    target: str = ""
    """What code is generated for, as WHENCE_TARGET says it; empty for what the machine has."""
    threads: int = 0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    version: str = CURRENT
    """Which whence measures: this one, a checkout or a wheel."""
    machine: str = ""
    """The kind of machine: a label of the cluster, or the processor's name."""
    night: str = ""
    """What tells this measurement from the next of the same kind: a date, unless named."""

    @property
    def key(self) -> str:
        """64 hexadecimal digits, the same for all that is measured the same way."""
        facts = {**asdict(self), "shapes": sorted((n, list(s)) for n, s in self.shapes.items())}
        del facts["model"]  # a model is its content; what its file is called may change
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def folder(self) -> str:
        """Where the cell lies in the table: by date, model name and digest."""
        model = f"{plain(self.model)}-{self.model_sha256[:8]}"
        return f"night={plain(self.night)}/model={model}"

    @property
    def shape_text(self) -> str:
        """`x=1x3x224x224 y=scalar`; empty where nobody asked for shapes."""
        return " ".join(
            f"{name}={'x'.join(map(str, shape)) or 'scalar'}"
            for name, shape in sorted(self.shapes.items())
        )

    def describe(self) -> str:
        """A few words for people."""
        parts = [self.model, self.engine, thread_count(self.threads)]
        parts += [each for each in (self.target, self.shape_text) if each]
        if self.version != CURRENT:
            parts.append(self.version)
        return " · ".join(parts)


def plain(text: str) -> str:
    """Text as part of a path: letters, digits, dots and dashes, and never hidden or empty."""
    found = _PLAIN.sub("_", text)[:80].lstrip(".")
    return found or "unnamed"

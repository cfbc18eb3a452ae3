"""profile.pb.gz: for `pprof` and everything that reads it. Each operator is a function inlined into
its kernel, called by its modules.

Field numbers are those of pprof's profile.proto.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from whence.attribution.profile import Profile
from whence.report import wire
from whence.report.stacks import Stack, location, stacks
from whence.report.terminal import policy_line


def write_pprof(profile: Profile, folder: Path) -> list[Path]:
    file = folder / "profile.pb.gz"
    file.write_bytes(gzip.compress(pprof(profile), mtime=0))
    return [file]


def pprof(profile: Profile) -> bytes:
    """The message `perftools.profiles.Profile`, not yet compressed."""
    tables = _Tables()
    samples = []
    for stack in stacks(profile):
        # Leaf first.
        locations = [
            *tables.innermost(stack),
            *tables.modules(stack),
            tables.location(("model",), [(tables.function(profile.model or "model"), 0)]),
        ]
        calls = stack.kernel.calls if stack.kernel is not None else profile.runs
        samples.append(
            wire.message(
                2,
                wire.packed(1, locations)
                + wire.packed(2, [calls, stack.time_ns])
                + tables.labels(stack),
            )
        )
    kinds = [
        wire.message(1, tables.value_type("calls", "count")),
        wire.message(1, tables.value_type("attributed", "nanoseconds")),
    ]
    period = wire.message(11, tables.value_type("wall", "nanoseconds")) + wire.number(12, 1)
    # pprof prints comments above everything else: what it takes a page to say is in profile.json.
    policy = f"{policy_line(profile).strip()}; how that is done: profile.json, policy"
    facts = [f"{name}: {fact}" for name, fact in profile.environment.items()]
    comments = wire.packed(13, [tables.string(text) for text in (policy, *facts, *profile.notes)])
    tail = (
        wire.number(10, profile.wall_ns)
        + period
        + comments
        + wire.number(14, tables.string("attributed"))
    )
    strings = b"".join(wire.text(6, value) for value in tables.strings)
    return b"".join([*kinds, *samples, *tables.locations, *tables.functions, strings, tail])


class _Tables:
    """Strings, functions and locations, each once, numbered as they come up."""

    def __init__(self) -> None:
        self.strings = {"": 0}
        self.functions: list[bytes] = []
        self._functions: dict[tuple[str, str, int], int] = {}
        self.locations: list[bytes] = []
        self._locations: dict[tuple[object, ...], int] = {}

    def string(self, value: str) -> int:
        return self.strings.setdefault(value, len(self.strings))

    def value_type(self, kind: str, unit: str) -> bytes:
        return wire.number(1, self.string(kind)) + wire.number(2, self.string(unit))

    def function(self, name: str, file: str = "", line: int = 0) -> int:
        key = name, file, line
        if key not in self._functions:
            number = self._functions[key] = len(self._functions) + 1
            label = self.string(name)
            fields = ((1, number), (2, label), (3, label), (4, self.string(file)), (5, line))
            self.functions.append(
                wire.message(5, b"".join(wire.number(field, value) for field, value in fields))
            )
        return self._functions[key]

    def location(self, key: tuple[object, ...], lines: list[tuple[int, int]]) -> int:
        """`lines` are functions with lines, the innermost first: all but the last are inlined."""
        if key not in self._locations:
            number = self._locations[key] = len(self._locations) + 1
            content = b"".join(
                wire.message(4, wire.number(1, function) + wire.number(2, line))
                for function, line in lines
            )
            self.locations.append(wire.message(4, wire.number(1, number) + content))
        return self._locations[key]

    def innermost(self, stack: Stack) -> list[int]:
        if stack.source is None or stack.kernel is None:
            return [
                self.location(
                    ("residual", stack.residual), [(self.function(f"({stack.residual})"), 0)]
                )
            ]
        file, line = location(stack.source)
        operator = self.function(f"{stack.source.name} ({stack.source.op})", file, line)
        kernel = self.function(f"kernel {stack.kernel.id} {stack.kernel.name}")
        return [
            self.location(
                ("operator", stack.source.id, stack.kernel.id), [(operator, line), (kernel, 0)]
            )
        ]

    def modules(self, stack: Stack) -> list[int]:
        paths = [stack.modules[: depth + 1] for depth in range(len(stack.modules))]
        return [
            self.location(("module", *path), [(self.function(".".join(path)), 0)])
            for path in reversed(paths)
        ]

    def labels(self, stack: Stack) -> bytes:
        if stack.source is None or stack.kernel is None:
            return b""
        texts = {
            "type": stack.source.op,
            "fate": stack.source.fate,
            "engine": "native" if stack.kernel.native else "reference",
        }
        found = [
            wire.number(1, self.string(key)) + wire.number(2, self.string(value))
            for key, value in texts.items()
        ]
        found += [
            wire.number(1, self.string(key)) + wire.number(3, value)
            for key, value in (("source_id", stack.source.id), ("kernel_id", stack.kernel.id))
        ]
        return b"".join(wire.message(3, label) for label in found)

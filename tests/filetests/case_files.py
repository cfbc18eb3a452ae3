"""The files of cases: text to be read by people first.

    # Whatever is said before the first case is what the file is about.

    run: cancel_transposes

    === two that undo each other leave
    %x f32[2,3,4] = Input()
    %a = Transpose(%x) perm=[2,0,1]
    ...
    --- becomes
    ...

A case is a title, a graph as `whence.graph.parse` reads it, and what comes out: `--- becomes` with
text, or `--- unchanged`. `run:` names the passes, with their options, or a way of fusing; standing
in a case, it is for that case alone. So are the other settings:

    tolerance: 3e-3        how much outputs may change, relative to the largest
    outputs: not compared  with a reason: the graph cannot be run on random inputs
    again: changes         with a reason: running the passes a second time finds more to do
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_SETTING = re.compile(r"(run|tolerance|outputs|again): +(.+)")
_TITLE, _RESULT = "=== ", "--- "


@dataclass(slots=True)
class Case:
    title: str
    line: int
    """Of its title, from 1."""
    settings: dict[str, str] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)
    """Lines before its graph."""
    graph: list[str] = field(default_factory=list)
    first: int = 0
    """The line its graph begins with."""
    expected: str | None = None
    """`None` for one that is yet to be blessed."""

    def __str__(self) -> str:
        head = [_TITLE + self.title, *self.comments]
        head += [f"{key}: {value}" for key, value in self.settings.items()]
        if self.expected is None:
            return "\n".join([*head, *self.graph]) + "\n"
        if not self.expected:
            return "\n".join([*head, *self.graph, f"{_RESULT}unchanged"]) + "\n"
        return "\n".join([*head, *self.graph, f"{_RESULT}becomes", self.expected])


@dataclass(slots=True)
class CaseFile:
    path: Path
    head: list[str]
    settings: dict[str, str]
    cases: list[Case]

    def setting(self, case: Case, key: str) -> str:
        return case.settings.get(key, self.settings.get(key, ""))

    def __str__(self) -> str:
        return "\n".join(["\n".join(self.head).strip() + "\n", *map(str, self.cases)])


def read_cases(path: Path) -> CaseFile:
    """The cases of a file. Raises `ValueError` that names the line for one that is not in order."""
    found = CaseFile(path, [], {}, [])
    part = "head"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        case = found.cases[-1] if found.cases else None
        if line.startswith(_TITLE):
            found.cases.append(Case(line.removeprefix(_TITLE), number))
            part = "graph"
        elif line.startswith(_RESULT):
            word = line.removeprefix(_RESULT)
            if case is None or part != "graph" or word not in ("becomes", "unchanged"):
                raise ValueError(f"{path}:{number}: '{line}' does not belong here")
            case.expected, part = "", word
        elif setting := _SETTING.fullmatch(line):
            (found.settings if case is None else case.settings)[setting[1]] = setting[2]
            if case is None:
                found.head.append(line)
        elif case is None:
            found.head.append(line)
        elif part == "graph" and line.strip():
            if not case.graph and line.startswith("#"):
                case.comments.append(line)
            else:
                case.first = case.first or number
                case.graph.append(line)
        elif part == "becomes" and line.strip():
            case.expected = f"{case.expected}{line}\n"
        elif line.strip():
            raise ValueError(f"{path}:{number}: nothing follows '--- unchanged' but the next case")
    return found


def all_files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.rglob("*.graph"))

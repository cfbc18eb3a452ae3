"""Writes docs/two_minutes.md: what a new user types first, and what it prints.

    python -m tools.transcripts MODEL          (make transcripts MODEL=file.onnx)

Everything runs in one shell, in a fresh clone of the last commit, in a home folder with nothing in
it. Only the sentences between the commands are written by hand. MODEL is a file that the
demonstration does not use. The figures are those of this machine: it should do nothing else
meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "two_minutes.md"
WIDTH = 80
_DONE = "\x1e"
_HEAD = """# Two minutes

What a new user types first, and what it prints. `make transcripts` writes this page: it runs every
command here in a fresh clone, in an empty home folder.
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A sentence, and commands that are typed one after the other."""

    text: str
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """What the commands are about; words that a shell need not quote."""

    model: str
    """A file in the current folder,"""
    operator: str
    """and an operator of it, as `whence why` takes it."""


CLONE = (
    Step(
        "A clone, and the demonstration: it installs what whence needs, fetches a trained model, runs"
        " and\nprofiles it.",
        ("git clone --quiet $REPOSITORY whence", "cd whence", "time make --silent demo"),
    ),
    Step(
        "The second time everything is there already.",
        ("time make --silent demo | tail -n 1", "source .venv/bin/activate"),
    ),
)


def profiling(subject: Subject) -> tuple[Step, ...]:
    """The first questions about a model. Only the model is known before they are answered."""
    model = subject.model
    return (
        Step(
            f"Where does the time of another model go, `{model}`?",
            (f"whence profile {model} --limit 8 -o before",),
        ),
        Step(
            "By module of the program that exported it:",
            (f"whence profile {model} --by module --depth 2 --limit 8",),
        ),
    )


def questions(subject: Subject) -> tuple[Step, ...]:
    """What one asks once the heaviest operator is known."""
    model = subject.model
    return (
        Step(
            "What became of the operator with most time?",
            (f"whence why {model} {subject.operator} --profile before",),
        ),
        Step(
            "Profiled again without a change: what differs is noise, and is not called a change.",
            (f"whence profile {model} --limit 1 -o after", "whence diff before after"),
        ),
        Step("What could be better?", ("whence advise before/profile.json",)),
    )


def engines(subject: Subject) -> tuple[Step, ...]:
    return (
        Step(
            "Who else is faster, and where?",
            (
                "pip install --quiet onnxruntime",
                f"whence compare {subject.model} --by module --depth 2 --limit 8",
            ),
        ),
    )


class Shell:
    """One bash in which commands are typed."""

    def __init__(self, home: Path, folder: Path, environment: dict[str, str]) -> None:
        self._home = str(home)
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env={
                **os.environ,
                "COLUMNS": str(WIDTH),
                "NO_COLOR": "1",
                "TIMEFORMAT": "real %1R s",
                "HOME": self._home,
                **environment,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )

    def type(self, command: str) -> list[str]:
        """What a command prints, in lines; one that fails ends the program."""
        stdin, stdout = _pipe(self._process.stdin), _pipe(self._process.stdout)
        # Standard input is the shell's own: a command must not read from it.
        stdin.write(f"{{ {command}; }} < /dev/null\nprintf '\\n{_DONE}%d\\n' $?\n")
        stdin.flush()
        lines: list[str] = []
        for line in stdout:
            if line.startswith(_DONE):
                if int(line[1:]):
                    sys.exit(f"transcripts: {command} failed\n" + "\n".join(lines))
                return self._shown(lines)
            lines.append(line.rstrip())
        sys.exit(f"transcripts: the shell ended in {command}")

    def _shown(self, lines: list[str]) -> list[str]:
        return "\n".join(lines).strip("\n").replace(self._home, "~").splitlines()

    def close(self) -> None:
        _pipe(self._process.stdin).close()
        _pipe(self._process.stdout).close()
        self._process.wait()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def written(step: Step, printed: Callable[[str], list[str]]) -> str:
    """A step as it stands on the page."""
    blocks = [line for each in step.commands for line in (f"$ {each}", *printed(each))]
    return "\n".join([step.text, "", "```text", *blocks, "```", ""])


def page(steps: Iterator[Step] | tuple[Step, ...], printed: Callable[[str], list[str]]) -> str:
    return "\n".join([_HEAD, *(written(step, printed) for step in steps)])


def without_output(text: str) -> str:
    """A page with nothing but the commands in its blocks."""

    def typed(block: re.Match[str]) -> str:
        lines = [line for line in block[0].splitlines() if line.startswith(("$ ", "```"))]
        return "\n".join(lines)

    return re.sub(r"```text\n.*?\n```", typed, text, flags=re.S)


def heaviest(profile: Path) -> str:
    """The operator with most time."""
    rows = json.loads(profile.read_text(encoding="utf-8"))["sources"]
    return str(max(rows, key=lambda row: row["time_ns"])["name"])


def asked(model: str, folder: Path) -> Iterator[Step]:
    """The questions about a model in a folder. To be typed one by one: the second half depends on
    what the first has found.
    """
    yield from profiling(Subject(model, ""))
    yield from questions(Subject(model, heaviest(folder / "before" / "profile.json")))


def filmed(model: str, folder: Path) -> Iterator[Step]:
    """The whole page: a clone in a folder, and the model there."""
    yield from CLONE
    yield from asked(model, folder)
    yield from engines(Subject(model, ""))


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source = Path(sys.argv[1]).resolve()
    if not source.is_file():
        sys.exit(f"transcripts: there is no file {source}")
    with tempfile.TemporaryDirectory(prefix="whence-transcripts-") as name:
        home = Path(name)
        shell = Shell(home, home, {"REPOSITORY": str(ROOT), "PYTHONPATH": "", "WHENCE_CACHE": ""})

        def typed(command: str) -> list[str]:
            print(f"$ {command}", file=sys.stderr, flush=True)
            lines = shell.type(command)
            if command == "cd whence":
                (home / "whence" / source.name).symlink_to(source)
            return lines

        text = page(filmed(source.name, home / "whence"), typed)
        shell.close()
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()

"""The walk-throughs of CONTRIBUTING.md, followed to the letter in a copy of the repository.

A block of code after "New file `PATH`:" is that file; one after "In `PATH`, after `LINE`:" goes in
there; commands in a block of shell must succeed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(
    r"(?P<before>(?:[^\n]+\n)*)\n?```(?P<language>\w+)\n(?P<text>.*?)```\n", re.DOTALL
)
_NEW = re.compile(r"New\s+file\s+`(?P<path>[^`]+)`:\Z")
_IN = re.compile(r"In\s+`(?P<path>[^`]+)`,\s+after\s+`(?P<line>[^`]+)`:\Z")
_MOST_SOURCE_FILES = {"An operator": 3, "A pass": 2, "A frontend": 0, "A backend": 0}
"""Files under `src/` that each may touch: a frontend and a backend are folders of their own."""


class Block(NamedTuple):
    section: str
    before: str
    """The paragraph that leads to it."""
    language: str
    text: str


def blocks() -> Iterator[Block]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        title, _, rest = section.partition("\n")
        for found in _BLOCK.finditer(rest):
            yield Block(title, found["before"].strip(), found["language"], found["text"])


class Copy:
    """A copy of the repository that a newcomer works in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "site-packages"
        self.site.mkdir(parents=True)
        for name in ("src", "tests", "zoo", "tools", "docs/reference"):
            ignored = shutil.ignore_patterns("__pycache__", "*.graph", "digests.txt", "recorded")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)
        self.touched: dict[str, set[str]] = {}
        self.code: set[Path] = set()
        """Files of Python that were written or changed."""
        self._path = [folder / "src", folder, self.site]

    def follow(self, block: Block) -> None:
        if block.language == "sh":
            for command in block.text.splitlines():
                self._run(shlex.split(command))
        elif new := _NEW.search(block.before):
            path = self._touch(block, new["path"])
            assert not path.exists(), f"{path} is there already"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif edit := _IN.search(block.before):
            path = self._touch(block, edit["path"])
            text = path.read_text(encoding="utf-8")
            assert text.count(f"\n{edit['line']}\n") == 1, f"{edit['line']!r} in {path}"
            path.write_text(
                text.replace(f"\n{edit['line']}\n", f"\n{edit['line']}\n{block.text}"),
                encoding="utf-8",
            )
        else:
            pytest.fail(f"nothing says what is to be done with\n{block.text}")

    def _touch(self, block: Block, path: str) -> Path:
        if path.startswith("src/"):
            self.touched.setdefault(block.section, set()).add(path)
        if path.endswith(".py"):
            self.code.add(self.folder / path)
        return self.folder / path

    def _run(self, command: list[str]) -> None:
        if command[0] == "pip":
            self._install(self.folder / command[-1])
            return
        start = {
            "python": [],
            "pytest": ["-m", "pytest", "-q", "-p", "no:cacheprovider"],
            "whence": ["-m", "whence"],
        }[command[0]]
        done = subprocess.run(
            [sys.executable, *start, *command[1:]],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, self._path)),
                # How fast the machine is does not matter here.
                "WHENCE_CALIBRATE": "never",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"

    def _install(self, package: Path) -> None:
        """What `pip install --editable` leaves behind, without a network."""
        text = (package / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text)["project"]
        name = project["name"].replace("-", "_")
        folder = self.site / f"{name}-{project['version']}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        lines = []
        for group, entries in project["entry-points"].items():
            lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
        (folder / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
        self._path.append(package)


@pytest.mark.slow
def test_the_walk_throughs(tmp_path: Path) -> None:
    copy = Copy(tmp_path / "whence")
    sections = list(dict.fromkeys(block.section for block in blocks()))
    assert sections == list(_MOST_SOURCE_FILES)
    for block in blocks():
        copy.follow(block)
    for section, most in _MOST_SOURCE_FILES.items():
        assert len(copy.touched.get(section, ())) <= most, section
    blessed = (copy.folder / "tests/filetests/passes/simplify/abs_of_neg.graph").read_text()
    assert "%magnitude" not in blessed.split("--- becomes")[1].split("===")[0].split("applied")[0]
    operators = (copy.folder / "docs/reference/operators.md").read_text(encoding="utf-8")
    assert "com.example::Logish" in operators
    assert "| `com.example::Centre` | native |" in operators


def test_the_code_passes_lint(tmp_path: Path) -> None:
    """As `make lint` would, with the settings of this repository."""
    copy = Copy(tmp_path / "whence")
    for block in blocks():
        if block.language != "sh":
            copy.follow(block)
    assert len(copy.code) == 9
    for tool in (["ruff", "check"], ["ruff", "format", "--check"]):
        subprocess.run([sys.executable, "-m", *tool, *copy.code], cwd=copy.folder, check=True)


def test_every_block_is_followed() -> None:
    found = list(blocks())
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(found) == text[text.index("\n## ") :].count("```") // 2
    assert {block.language for block in found} <= {"python", "toml", "text", "sh"}


_DEFINITION = r"(?m)^(?:class|def|    def) {0}\b|^(?:    )?{0}\b[^\n]* = "


def test_what_a_backend_reads_is_defined_where_it_says() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| (`.*?) \|", text, re.MULTILINE)
    assert len(rows) > 8
    for names, places in rows:
        files = [ROOT / "src/whence" / path for path in re.findall(r"`([\w/.]+)`", places)]
        source = "\n".join(path.read_text(encoding="utf-8") for path in files)
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(_DEFINITION.format(name), source), f"{name} is not in {places}"


def test_links_and_paths_in_it_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    head = text[: text.index("\n## ")]
    for path in re.findall(r"`((?:docs|src|tests|examples|\.ci)/[\w./-]*)`", head):
        assert (ROOT / path).exists(), path


def test_paths_of_the_architecture_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = re.findall(r"`([\w.-]+(?:/[\w.-]*)+)`", re.sub(r"(?s)```.*?```", "", text))
    assert len(found) > 50
    for path in found:
        assert any((folder / path).exists() for folder in (ROOT, ROOT / "src/whence")) or [
            *(ROOT / "src/whence").glob(f"**/{path}*")
        ], path

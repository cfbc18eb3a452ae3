"""What is packed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import whence
from tools.lock import LOCK, requirements
from whence.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
NOT_PACKED = {"build", "dist", "whence-demo", "out", "site", "htmlcov", "shared"}


def test_the_source_package_holds_every_folder() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packed = set(settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    folders = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith((".", "_")) and path.name not in NOT_PACKED
    }
    assert folders <= packed
    assert {"examples", "LICENSE", "CHANGELOG.md"} <= packed


def test_the_version_is_the_same_everywhere() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version = settings["project"]["version"]
    assert whence.__version__ == version
    assert f"Version {version} " in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"\nwhence {name}" not in text] == []


def test_links_in_the_readme_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_no_conflict_of_a_merge_is_left() -> None:
    """In a docstring or a page, nothing else would notice."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packed = [
        ROOT / each for each in settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    ]
    files = [path for each in packed for path in ([each] if each.is_file() else each.rglob("*"))]
    texts = [path for path in files if path.suffix in {".py", ".md", ".toml", ".c", ".h", ".graph"}]
    assert len(texts) > 1000
    marks = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [path for path in texts if marks.search(path.read_text(encoding="utf-8"))] == []


NOT_LOCKED = {"pillow"}
"""What the environment that the versions were taken from does not have."""


def test_the_lock_file_has_a_version_of_everything_that_the_tests_ask_for() -> None:
    lines = [line for line in LOCK.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.+!]*", line) for line in lines), "only pins"
    assert lines == sorted(lines, key=lambda line: line.split("==")[0])
    pins = dict(line.split("==") for line in lines)
    for wanted in map(Requirement, requirements()):
        name = canonicalize_name(wanted.name)
        assert (name in pins) != (name in NOT_LOCKED), f"{name}: run 'make lock'"
        if name in pins:
            assert wanted.specifier.contains(pins[name]), f"{wanted}: locked is {pins[name]}"

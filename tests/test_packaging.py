"""What is packed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import whence
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

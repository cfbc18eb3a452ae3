"""What is packed."""

from __future__ import annotations

import tomllib
from pathlib import Path

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

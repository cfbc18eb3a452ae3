"""docs/seeds.md names files and adapters that exist."""

from __future__ import annotations

import re
from pathlib import Path

from whence.compat import hexagon, hexagon_consts, luci, nnvm

ROOT = Path(__file__).resolve().parent.parent
INTERNAL = {"id_mask", "scalar_key"}
PAGE = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")


def test_every_file_it_names_is_there() -> None:
    named = set(re.findall(r"`(?:whence/)?([\w/]+(?:\.(?:py|h)|/))`", PAGE))
    assert len(named) > 30
    missing = [
        name
        for name in named
        if not (ROOT / "src" / "whence" / name).exists() and not (ROOT / name).exists()
    ]
    assert not missing


def test_it_names_every_adapter() -> None:
    for module in (hexagon, hexagon_consts, luci):
        own = [
            name
            for name, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == module.__name__
        ]
        functions = [name for name in own if name[0].islower() and name not in INTERNAL]
        assert not [name for name in functions if f"`{name}" not in PAGE]
    assert nnvm.__name__.removeprefix("whence.").replace(".", "/") in PAGE

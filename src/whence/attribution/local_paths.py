"""Paths of the user's machine, shortened before they leave it."""

from __future__ import annotations

import re

_LOCATION = re.compile(r"(?P<path>.*?)(?P<line>:\d+)?", re.DOTALL)
_PACKAGES = re.compile(r".*[/\\](?:site|dist)-packages[/\\]", re.DOTALL)
_KEPT = 2


def shorten_location(location: str) -> str:
    """`/home/me/work/net/model.py:12` → `net/model.py:12`. In an installed package, the path within
    it. What is short stays as it is.
    """
    found = _LOCATION.fullmatch(location)
    assert found is not None
    path, line = found["path"], found["line"] or ""
    inside = _PACKAGES.sub("", path)
    if inside != path:
        return inside.replace("\\", "/") + line
    parts = [part for part in re.split(r"[/\\]", path) if part]
    return "/".join(parts[-_KEPT:]) + line if parts else location

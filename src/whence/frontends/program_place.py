"""Where in the user's program an operator comes from, as PyTorch says it on the nodes of its graphs
and its exporter in the metadata of files.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_PYTORCH = re.compile(
    # An installed one, or the sources of one.
    r"(^|[/\\](site|dist)-packages[/\\])torch[/\\]|[/\\]torch[/\\]nn[/\\](modules|functional)"
)


class ProgramPlace(NamedTuple):
    """Each part is empty where nobody says."""

    module: str = ""
    """`layer1.0.conv1`"""
    line: str = ""
    """`model.py:96`: the innermost line outside PyTorch itself."""
    stack: str = ""


def line_of(stack: str, torch_folder: str = "") -> str:
    """`file:line` of the innermost frame outside PyTorch; empty where there is none."""
    found = ""
    for match in _FRAME.finditer(stack):
        file = match["file"]
        inside = _PYTORCH.search(file) or (torch_folder and file.startswith(torch_folder))
        if not inside:
            found = f"{file}:{match['line']}"
    return found


def innermost_line(stack: str) -> str:
    """`file:line` of the innermost frame, whoever's it is."""
    frames = list(_FRAME.finditer(stack))
    return f"{frames[-1]['file']}:{frames[-1]['line']}" if frames else ""

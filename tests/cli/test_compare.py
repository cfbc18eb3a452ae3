"""The table of several engines."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from tests.report.browser import attacked_profile
from whence.cli.compare import print_engines
from whence.foreign.engine_comparison import compare_profiles


def test_headings_are_whole_where_names_are_short() -> None:
    ours = dataclasses.replace(attacked_profile(), background=None)
    engines = ("whence", "onnxruntime", "openvino")
    found = compare_profiles(dict.fromkeys(engines, ours), [])
    console = Console(width=80, file=io.StringIO(), color_system=None)
    print_engines(console, found)
    assert isinstance(console.file, io.StringIO)
    _, headings, *rows = console.file.getvalue().splitlines()
    assert headings.split() == [*engines, "fastest", "operator"]
    assert any("(in no operator)" in row for row in rows)
    assert all(len(row) <= 80 for row in rows[:-2])

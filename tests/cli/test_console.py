"""Lines for a terminal, and for a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from whence.cli.console import out, say
from whence.cli.shapes import mention_options


def said(text: str, width: int) -> list[str]:
    stream = io.StringIO()
    say(Console(file=stream, width=width, highlight=False), text)
    return stream.getvalue().splitlines()


def test_a_long_line_goes_on_below_itself_indented() -> None:
    words = " ".join(f"word{number}" for number in range(20))
    lines = said(f"  now {words}", 40)
    assert all(len(line) <= 40 for line in lines)
    assert lines[0].startswith("  now word0")
    assert all(line.startswith("      word") for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == f"now {words}"


def test_into_a_pipe_a_line_stays_one() -> None:
    text = "  " + "word " * 100 + "end"
    assert said(text, 240) == [text]


def test_what_comes_from_a_model_takes_no_effect() -> None:
    assert said("[bold]\x1b[31m name", 80) == ["[bold]\\x1b[31m name"]


@pytest.mark.parametrize(("width", "lines"), [(80, 2), (140, 1)])
def test_options_to_copy_stay_in_one_line(width: int, lines: int) -> None:
    stream = io.StringIO()
    options = "--dim batch=1 --dim height=640 --dim width=640"
    mention_options(options, Console(file=stream, width=width, highlight=False))
    printed = stream.getvalue().splitlines()
    assert len(printed) == lines
    assert printed[-1].endswith(options)


@pytest.mark.parametrize("columns", [None, "0"])
def test_without_a_width_lines_are_as_long_as_they_are(
    columns: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    out().print("word " * 40)
    assert capsys.readouterr().out.split() == ["word"] * 40
    assert out().width == 240

"""The page of transcripts has the commands of its script, and they run, on a small model."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.docs.models import write_models
from tools.transcripts import (
    CLONE,
    PAGE,
    Shell,
    Subject,
    asked,
    engines,
    page,
    profiling,
    questions,
    without_output,
)


def test_every_question_is_answered(tmp_path: Path) -> None:
    write_models(tmp_path)
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Its cache stays where the tests' is: an empty home would compile everything again.
    shell = Shell(tmp_path, tmp_path, {"PATH": binaries})
    try:
        text = page(asked("model.onnx", tmp_path), shell.type)
    finally:
        shell.close()
    assert "= 100 %" in text
    assert str(tmp_path) not in text
    assert (tmp_path / "before" / "report.html").is_file()


def test_a_command_that_fails_ends_the_script(tmp_path: Path) -> None:
    shell = Shell(tmp_path, tmp_path, {})
    try:
        with pytest.raises(SystemExit, match="no_such_command failed"):
            shell.type("no_such_command")
        assert shell.type("echo a; echo") == ["a"]
        assert shell.type("pwd") == ["~"]
    finally:
        shell.close()


def test_the_page_has_the_commands_of_the_script() -> None:
    """What is printed differs from machine to machine; all else is as the script has it."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(r"^\$ whence why (\S+) (\S+)", text, re.M)
    assert found, "no `whence why` on the page: make transcripts MODEL=file.onnx"
    subject = Subject(found[1], found[2])
    steps = (*CLONE, *profiling(subject), *questions(subject), *engines(subject))
    skeleton = without_output(page(steps, lambda _: []))
    assert without_output(text) == skeleton, "make transcripts MODEL=file.onnx writes it again"
    assert "/tmp/" not in text
    assert "Traceback" not in text

"""docs/fleet.md says what the code has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from whence.fleet.columns import COLUMNS
from whence.fleet.spec import read_spec
from whence.fleet.views import VIEWS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")


def test_the_schema_is_documented():
    for column in COLUMNS:
        assert f"| `{column.name}` | {column.kind} | {column.meaning} |" in PAGE
    for view in VIEWS:
        assert f"| `{view.name}` | {view.answers} |" in PAGE


def test_the_spec_on_the_page_is_one(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "models").mkdir()
    for name in ("bert_base.onnx", "tiny.tflite"):
        (tmp_path / "models" / name).write_bytes(b"")
    (tmp_path / "sweep.toml").write_text(text)
    spec = read_spec(tmp_path / "sweep.toml")
    assert spec.shapes["bert_base"] == ({"input_ids": (1, 8)}, {"input_ids": (1, 128)})
    assert spec.machines == ("icelake", "graviton")
    assert spec.limits.memory == 8 << 30


@pytest.mark.parametrize("name", ["github.yml", "nightly.yml", "gitlab.yml"])
def test_ci_examples_use_options_that_exist(name):
    text = (ROOT / "examples" / "ci" / name).read_text(encoding="utf-8")
    commands = re.findall(r"whence (profile|diff|sweep|history)((?: \"?[-$\w./*()%\"]+)*)", text)
    assert commands
    for command, words in commands:
        source = (ROOT / "src" / "whence" / "cli" / f"{command}.py").read_text(encoding="utf-8")
        for option in re.findall(r"--[a-z-]+", words):
            assert f'"{option}"' in source, f"whence {command} has no {option}"


def test_the_nightly_spec_is_one():
    content = tomllib.loads((ROOT / "examples" / "ci" / "nightly.toml").read_text(encoding="utf-8"))
    assert content["engines"] == ["whence", "onnxruntime"]

"""examples/generate.py, with a model of random weights and a tokenizer that knows single
characters.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.llm.tiny_model import VOCABULARY, write_folder

PATH = Path(__file__).parents[2] / "examples" / "generate.py"


class Characters:
    """What the package tokenizers offers of a tokenizer."""

    @classmethod
    def from_file(cls, path: str) -> Characters:
        assert Path(path).name == "tokenizer.json"
        return cls()

    def encode(self, text: str) -> Any:
        return SimpleNamespace(ids=[ord(each) % (VOCABULARY - 1) for each in text])

    def decode(self, tokens: list[int]) -> str:
        return "".join(chr(ord("A") + token % 26) for token in tokens)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_example", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("tiny"))


def test_pieces_of_a_prompt_are_as_good_as_single_tokens(example: Any, folder: Path) -> None:
    prompt = [int(each) for each in np.random.default_rng(1).integers(0, VOCABULARY - 1, 41)]
    model = example.LanguageModel(folder, context=64, threads=1)
    scores = model.read(prompt)
    lengths = {program.plan.inputs[0].shape[1] for program in model.model.programs}
    assert lengths == {16}, "41 tokens are 16 + 16 + the last 16"
    alone = example.LanguageModel(folder, context=64, threads=1)
    for token in prompt:
        single = alone.read([token])
    np.testing.assert_allclose(scores, single, atol=2e-2 * np.abs(single).max())
    assert model.tokens == alone.tokens == prompt
    with pytest.raises(SystemExit, match="--context 64"):
        model.read([1] * 24)


def test_greedy_and_sampled(example: Any) -> None:
    scores = np.array([0.0, 3.0, 2.9, -5.0], np.float32)
    rng = np.random.default_rng(0)
    assert example.choose(scores, rng, 0.0, 50, 1.0) == 1
    drawn = {example.choose(scores, rng, 1.0, 2, 1.0) for _ in range(64)}
    assert drawn == {1, 2}
    assert {example.choose(scores, rng, 1.0, 0, 0.3) for _ in range(64)} == {1}


def test_text_comes_out_and_both_phases_are_profiled(
    example: Any,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in = ModuleType("tokenizers")
    stand_in.__dict__["Tokenizer"] = Characters
    monkeypatch.setitem(sys.modules, "tokenizers", stand_in)
    monkeypatch.setenv("WHENCE_CALIBRATE", "never")
    call = [str(folder), "a question of some length", "--tokens", "6", "--context", "64"]
    example.main([*call, "--threads", "1", "--profile", "--runs", "2"])
    shown = capsys.readouterr().out
    text, *tables = shown.split("\n\n")
    assert 0 < len(text.strip()) <= 6
    assert [table.split(":")[0] for table in tables] == ["prefill", "decode"]
    assert all("MatMulNBits" in table and "GroupQueryAttention" in table for table in tables)
    example.main([*call, "--threads", "1"])
    assert capsys.readouterr().out.strip() == text.strip(), "greedy text is the same again"
    example.main([*call, "--threads", "1", "--temperature", "0.9", "--seed", "3"])
    assert capsys.readouterr().out.strip()

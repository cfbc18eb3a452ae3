"""benchmarks/decode.py: an engine in a process of its own, and one that is not to be had."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.llm.tiny_model import write_folder

ROOT = Path(__file__).parents[2]


def test_tokens_a_second_of_those_that_are_there(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, context=1024)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.decode", str(folder), "--threads", "1", "--rounds", "1",
         "--engines", "whence,openvino-genai"],
        capture_output=True, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    assert "openvino-genai: left out: " in done.stdout
    for name in ("prefill 128", "decode after 16", "decode after 512"):
        assert f"  {name:17} whence " in done.stdout

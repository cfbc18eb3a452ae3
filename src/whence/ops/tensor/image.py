"""ImageDecoder: an image file as pixels. Pillow decodes; it is an extra, `whence[images]`."""

from __future__ import annotations

import io
import warnings

import numpy as np

from whence.errors import ModelError, UnsupportedError
from whence.ops.attributes import get_str
from whence.ops.definition import Call, OpDef, TypeQuery, Value
from whence.ops.operand import named
from whence.ops.precision import tensor
from whence.types import DType, TensorType


def _decoded_type(query: TypeQuery) -> TensorType:
    channels = 1 if get_str(query.attrs, "pixel_format", "RGB") == "Grayscale" else 3
    return TensorType(DType.U8, (None, None, channels))


def _decode(call: Call) -> Value:
    wanted = get_str(call.attrs, "pixel_format", "RGB")
    mode = "L" if wanted == "Grayscale" else "RGB"
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError(
            f"{call.op}: decoding images needs Pillow: pip install 'whence[images]'"
        ) from None
    encoded = tensor(call, 0)
    try:
        with warnings.catch_warnings():
            # So large that Pillow takes it for an attack.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(encoded.tobytes()))
            pixels = np.asarray(image.convert(mode), np.uint8)
    # Pillow's decoders raise whatever their author thought of.
    except Exception as error:
        raise ModelError(
            f"the {encoded.size} bytes given are no image that Pillow decodes:"
            f" {type(error).__name__}"
        ) from error
    if mode == "L":
        return pixels[:, :, np.newaxis].copy()
    return np.ascontiguousarray(pixels[:, :, ::-1] if wanted == "BGR" else pixels)


OPS: tuple[OpDef, ...] = (
    OpDef("ImageDecoder", infer=_decoded_type, reference=_decode, operands=named("encoded_stream")),
)

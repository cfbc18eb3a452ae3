"""Attributes that are one of a few words or numbers, or an element type: what they may be.

Rules, references and kernels test for what they know, and take anything else for the last of it: so
attributes are checked when an operator is built, and before it is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.errors import ModelError
from whence.ops.definition import Attrs
from whence.types import DType

_PADDING = {"auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")}
_DIRECTION = {"direction": ("forward", "reverse", "bidirectional")}
_REDUCTION = {"reduction": ("none", "add", "mul", "max", "min")}
_ROUNDING = {"round_mode": ("up", "down", "nearest")}
_LOSS = {"reduction": ("none", "sum", "mean")}

CHOICES: Mapping[str, Mapping[str, tuple[str | int, ...]]] = {
    "Attention": {"qk_matmul_output_mode": (0, 1, 2, 3)},
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "Cast": _ROUNDING,
    "CastLike": _ROUNDING,
    "CausalConvWithState": {"activation": ("none", "silu", "swish")},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "Gelu": {"approximate": ("none", "tanh")},
    "GridSample": {
        "mode": ("linear", "nearest", "cubic", "bilinear", "bicubic"),
        "padding_mode": ("zeros", "border", "reflection"),
    },
    "ImageDecoder": {"pixel_format": ("RGB", "BGR", "Grayscale")},
    "LinearAttention": {"update_rule": ("linear", "gated", "delta", "gated_delta")},
    "LpNormalization": {"p": (1, 2)},
    "NegativeLogLikelihoodLoss": _LOSS,
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "Resize": {
        "mode": ("nearest", "linear", "cubic"),
        "coordinate_transformation_mode": (
            "half_pixel",
            "half_pixel_symmetric",
            "pytorch_half_pixel",
            "align_corners",
            "asymmetric",
            "tf_crop_and_resize",
            "tf_half_pixel_for_nn",
        ),
        "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    },
    "RoiAlign": {
        "mode": ("avg", "max"),
        "coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    },
    "SoftmaxCrossEntropyLoss": _LOSS,
    "StringNormalizer": {"case_change_action": ("NONE", "LOWER", "UPPER")},
    "TensorScatter": {"mode": ("linear", "circular")},
    "SpaceToDepth": {"mode": ("DCR", "CRD")},
    "TfIdfVectorizer": {"mode": ("TF", "IDF", "TFIDF")},
    "ai.onnx.ml::TreeEnsemble": {
        "aggregate_function": (0, 1, 2, 3),
        "post_transform": (0, 1, 2, 3, 4),
    },
    **dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose", "QLinearConv"), _PADDING),
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _PADDING),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _DIRECTION),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _REDUCTION),
}

_REALS = frozenset({DType.F32, DType.F16, DType.F64, DType.BF16})
CODES = frozenset(
    dtype
    for dtype in DType
    if (dtype.is_integer and dtype.bits <= 32) or (dtype.is_float and dtype.bits <= 8)
)
"""What real numbers are quantised to."""

TYPES: Mapping[str, Mapping[str, frozenset[DType]]] = {
    "Attention": {"softmax_precision": _REALS},
    "FlexAttention": {"softmax_precision": _REALS},
    "DequantizeLinear": {"output_dtype": _REALS},
    "LayerNormalization": {"stash_type": _REALS},
    "QuantizeLinear": {"output_dtype": CODES, "precision": _REALS},
    "RMSNormalization": {"stash_type": _REALS},
}
"""Attributes that choose an element type by its number in ONNX; 0 leaves the choice open."""


def check_choices(op: str, attrs: Attrs) -> None:
    """Raise `ModelError` when an attribute is none of the words, numbers or types it may be."""
    for name, known in CHOICES.get(op, {}).items():
        found = attrs.get(name)
        if found is not None and found not in known:
            *others, last = map(str, known)
            raise ModelError(f"{op}: {name} is {found!r}, and may be {', '.join(others)} or {last}")
    for name in TYPES.get(op, ()):
        check_type_number(op, name, attrs.get(name))


def check_type_number(op: str, name: str, number: object) -> None:
    """Raise `ModelError` when an attribute is not the number of a type that it may choose."""
    allowed = TYPES[op][name]
    if number and number not in allowed:
        types = ", ".join(f"{int(dtype)} ({dtype})" for dtype in sorted(allowed))
        raise ModelError(f"{op}: {name} is {number}, and may be one of {types}")

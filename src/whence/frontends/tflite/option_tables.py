"""Which options table an operator has, by their names in the schema."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

from whence.frontends.tflite.schema import enum_names

_SHARED: Mapping[str, str | None] = MappingProxyType(
    {
        **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), "Pool2DOptions"),
        **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
        **dict.fromkeys(
            ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL"),
            "ReducerOptions",
        ),
        **dict.fromkeys(
            ("RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "MULTINOMIAL"), "RandomOptions"
        ),
        "L2_NORMALIZATION": "L2NormOptions",
        "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
        "CONV_3D_TRANSPOSE": "Conv3DOptions",
    }
)


@functools.cache
def _tables() -> Mapping[str, str]:
    # Circle's schema has the tables of TFLite's and more.
    package = "circle_schema.v0_10.circle"
    names = [
        *enum_names(package, "BuiltinOptions").values(),
        *enum_names(package, "BuiltinOptions2").values(),
    ]
    return MappingProxyType({name.lower(): name for name in names})


def option_table(operator: str) -> str | None:
    """The name of its options table (`Conv2DOptions` of `CONV_2D`); `None` if it has none."""
    if operator in _SHARED:
        return _SHARED[operator]
    return _tables().get(operator.replace("_", "").lower() + "options")

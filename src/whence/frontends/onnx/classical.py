"""Operators of `ai.onnx.ml`, the classical machine-learning domain."""

from __future__ import annotations

from collections.abc import Sequence

from whence.frontends.onnx.record import Adapter, OpRecord, Rewrite
from whence.ops.definition import Attr
from whence.types import DType


def _label_encoder(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """Version 1 numbered a list of texts, and mapped text to number or back by its input."""
    texts = record.attrs.get("classes_strings", ())
    if not isinstance(texts, tuple):
        raise record.unsupported("'classes_strings' should be a list of texts")
    numbers = tuple(range(len(texts)))
    dtype = build.dtype(record.required(0))
    if dtype is None:
        raise record.unsupported("the element type of its input is not known")
    attrs: dict[str, Attr]
    if dtype is DType.STRING:
        attrs = {
            "keys_strings": texts,
            "values_int64s": numbers,
            "default_int64": record.integer("default_int64", -1),
        }
    else:
        attrs = {
            "keys_int64s": numbers,
            "values_strings": texts,
            "default_string": record.text("default_string", "_Unused"),
        }
    encoder = record.with_(attrs=attrs)
    encoder.domain = record.domain
    return [encoder]


ADAPTERS: tuple[Adapter, ...] = (Adapter("LabelEncoder", 2, _label_encoder),)

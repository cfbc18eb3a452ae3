"""Classical machine learning: the encoders and scalers of the domain `ai.onnx.ml`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_float, get_floats, get_int, get_ints, get_str, get_strs
from whence.ops.classical.linear_models import classical, floats, rows_of, rows_type
from whence.ops.definition import Attrs, Call, OpDef, TypeQuery, Value
from whence.ops.operand import named, variadic
from whence.ops.precision import tensor
from whence.ops.types.type_rules import same_type, tensor_type
from whence.types import DType, TensorType


def _array_feature_extractor(call: Call) -> Value:
    x, places = tensor(call, 0), tensor(call, 1).reshape(-1)
    chosen = np.take(x, places, axis=-1)
    return chosen.reshape(1, -1) if x.ndim == 1 else chosen


def _binarizer(call: Call) -> Value:
    x = tensor(call, 0)
    return (x > get_float(call.attrs, "threshold", 0.0)).astype(x.dtype)


def _scaler(call: Call) -> Value:
    x = tensor(call, 0).astype(np.float32)
    offset, scale = floats(call.attrs, "offset"), floats(call.attrs, "scale")
    _check_columns("offsets", offset, x)
    _check_columns("scales", scale, x)
    moved = x - (offset if offset.size else np.float32(0))
    return (moved * (scale if scale.size else np.float32(1))).reshape(x.shape)


def _normalizer(call: Call) -> Value:
    x, norm = tensor(call, 0).astype(np.float32), get_str(call.attrs, "norm", "MAX")
    sizes: dict[str, Callable[[], Any]] = {
        "MAX": lambda: x.max(axis=-1, keepdims=True),
        "L1": lambda: np.abs(x).sum(axis=-1, keepdims=True),
        "L2": lambda: np.sqrt((x * x).sum(axis=-1, keepdims=True)),
    }
    if norm not in sizes:
        raise ModelError(f"unknown norm {norm!r}")
    size = sizes[norm]()
    return np.where(size != 0, x / np.where(size != 0, size, 1), x).astype(np.float32)


def _imputer(call: Call) -> Value:
    x = tensor(call, 0)
    if x.dtype.kind == "f":
        wanted = get_float(call.attrs, "replaced_value_float", 0.0)
        filling = np.array(get_floats(call.attrs, "imputed_value_floats"))
        found = np.isnan(x) if np.isnan(wanted) else x == np.array(wanted, x.dtype)
    else:
        filling = np.array(get_ints(call.attrs, "imputed_value_int64s"))
        found = x == get_int(call.attrs, "replaced_value_int64", 0)
    if not filling.size:
        raise ModelError("no imputed values are given")
    _check_columns("imputed values", filling, x)
    return np.where(found, filling.astype(x.dtype), x).reshape(x.shape)


def _check_columns(what: str, numbers: np.ndarray, x: np.ndarray) -> None:
    """One number is for all columns."""
    if numbers.size > 1 and numbers.size != (x.shape[-1] if x.ndim else 1):
        raise ModelError(f"{numbers.size} {what} do not fit shape {list(x.shape)}")


def _feature_vectorizer(call: Call) -> Value:
    columns = []
    widths = get_ints(call.attrs, "inputdimensions")
    if widths and (len(widths) != len(call.inputs) or min(widths) < 0):
        raise ModelError(
            f"inputdimensions {list(widths)} are not widths of {len(call.inputs)} inputs"
        )
    for index, value in enumerate(call.inputs):
        x = rows_of(np.asarray(value).astype(np.float32))
        width = widths[index] if widths else x.shape[1]
        columns.append(np.pad(x[:, :width], ((0, 0), (0, max(width - x.shape[1], 0)))))
    return np.concatenate(columns, axis=1)


def _one_hot_encoder(call: Call) -> Value:
    x, texts = tensor(call, 0), get_strs(call.attrs, "cats_strings")
    known: Sequence[Any] = texts or get_ints(call.attrs, "cats_int64s")
    if x.dtype == np.object_:
        hot = np.stack([x == category for category in known], axis=-1).astype(np.bool_)
    else:
        hot = x.astype(np.int64)[..., np.newaxis] == np.array(known, np.int64)
    if not get_int(call.attrs, "zeros", 1) and not hot.any(axis=-1).all():
        raise ModelError(f"a value is in none of the {len(known)} categories")
    return hot.astype(np.float32)


def _mapped(x: np.ndarray, table: dict[Any, Any], default: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Each element looked up in `table`. A NaN finds a NaN."""
    missing = next((value for key, value in table.items() if _is_nan(key)), default)
    found = [missing if _is_nan(key) else table.get(key, default) for key in x.reshape(-1).tolist()]
    result = np.empty(len(found), dtype)
    result[:] = found
    return result.reshape(x.shape)


def _is_nan(key: object) -> bool:
    return isinstance(key, float) and math.isnan(key)


def _column(attrs: Attrs, prefix: str) -> np.ndarray | None:
    """The keys or the values of a `LabelEncoder`, whichever attribute holds them."""
    given = attrs.get(f"{prefix}_tensor")
    if isinstance(given, np.ndarray):
        return given.reshape(-1)
    for suffix, dtype in _COLUMN_TYPES.items():
        listed = attrs.get(f"{prefix}_{suffix}")
        if listed is not None:
            return np.array(
                get_strs(attrs, f"{prefix}_{suffix}") if suffix == "strings" else listed, dtype
            )
    return None


_COLUMN_TYPES: dict[str, np.dtype[Any]] = {
    "strings": np.dtype(np.object_),
    "int64s": np.dtype(np.int64),
    "floats": np.dtype(np.float32),
}


def _label_encoder(call: Call) -> Value:
    x, keys, values = tensor(call, 0), _column(call.attrs, "keys"), _column(call.attrs, "values")
    if keys is None or values is None or keys.size != values.size:
        raise ModelError("keys and values must be given, as many of one as of the other")
    default = call.attrs.get("default_tensor")
    if isinstance(default, np.ndarray):
        other: Any = default.reshape(-1)[0]
    elif values.dtype == np.object_:
        other = get_str(call.attrs, "default_string", "_Unused")
    elif values.dtype.kind == "f":
        other = get_float(call.attrs, "default_float", -0.0)
    else:
        other = get_int(call.attrs, "default_int64", -1)
    return _mapped(x, dict(zip(keys.tolist(), values.tolist(), strict=True)), other, values.dtype)


def _category_mapper(call: Call) -> Value:
    x = tensor(call, 0)
    texts = get_strs(call.attrs, "cats_strings")
    numbers = get_ints(call.attrs, "cats_int64s")
    if x.dtype == np.object_:
        other = get_int(call.attrs, "default_int64", -1)
        return _mapped(x, dict(zip(texts, numbers, strict=True)), other, np.dtype(np.int64))
    text = get_str(call.attrs, "default_string", "_Unused")
    return _mapped(x, dict(zip(numbers, texts, strict=True)), text, np.dtype(np.object_))


def _map(call: Call) -> dict[Any, Any]:
    value = call.input(0)
    if not isinstance(value, dict):
        raise ModelError("input 0 must be a map")
    return value


def _of_map(items: Sequence[Any]) -> np.dtype[Any]:
    """The element type of a map's values; Python's numbers stand for those in files."""
    if any(isinstance(item, (str, bytes)) for item in items):
        return np.dtype(np.object_)
    array = np.asarray(items)
    return np.dtype(np.float32) if all(type(item) is float for item in items) else array.dtype


def _dict_vectorizer(call: Call) -> Value:
    given = _map(call)
    known: Sequence[Any] = get_strs(call.attrs, "string_vocabulary") or get_ints(
        call.attrs, "int64_vocabulary"
    )
    dtype = _of_map(list(given.values()))
    blank = "" if dtype == np.object_ else 0
    return np.array([[given.get(key, blank) for key in known]], dtype)


def _cast_map(call: Call) -> Value:
    given, target = _map(call), get_str(call.attrs, "cast_to", "TO_FLOAT")
    if target not in _CASTS:
        raise ModelError(f"unknown cast_to {target!r}")
    if get_str(call.attrs, "map_form", "DENSE") == "SPARSE":
        row = [given.get(key, 0) for key in range(get_int(call.attrs, "max_map", 1))]
    else:
        row = [given[key] for key in sorted(given)]
    convert, dtype = _CASTS[target]
    result = np.empty((1, len(row)), dtype)
    result[0, :] = [convert(item) for item in row]
    return result


_CASTS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "TO_FLOAT": (float, np.float32),
    "TO_INT64": (lambda item: int(float(item)), np.int64),
    "TO_STRING": (lambda item: item if isinstance(item, str) else f"{item:f}", np.object_),
}


def _zip_map(call: Call) -> Value:
    x = tensor(call, 0)
    keys: Sequence[Any] = get_strs(call.attrs, "classlabels_strings") or get_ints(
        call.attrs, "classlabels_int64s"
    )
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    if rows.shape[1] != len(keys):
        raise ModelError(f"{rows.shape[1]} columns do not fit {len(keys)} labels")
    return [dict(zip(keys, row, strict=True)) for row in rows.tolist()]


def _as_float(query: TypeQuery) -> TensorType:
    return TensorType(DType.F32, tensor_type(query, 0).shape)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "ai.onnx.ml::ArrayFeatureExtractor",
        reference=_array_feature_extractor,
        operands=named("X", "Y"),
    ),
    classical("Binarizer", _binarizer, same_type),
    classical("CastMap", _cast_map),
    classical("CategoryMapper", _category_mapper),
    classical("DictVectorizer", _dict_vectorizer),
    OpDef(
        "ai.onnx.ml::FeatureVectorizer",
        infer=lambda query: rows_type(query, sum(get_ints(query.attrs, "inputdimensions")) or None),
        reference=_feature_vectorizer,
        operands=variadic("X"),
    ),
    classical("Imputer", _imputer, same_type),
    classical("LabelEncoder", _label_encoder),
    classical("Normalizer", _normalizer, _as_float),
    classical("OneHotEncoder", _one_hot_encoder),
    classical("Scaler", _scaler, _as_float),
    classical("ZipMap", _zip_map),
)

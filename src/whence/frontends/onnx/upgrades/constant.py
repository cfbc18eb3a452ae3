"""Constant, whose value may be stated in eight ways, becomes one tensor in `value`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.errors import ModelError
from whence.frontends.onnx.record import EVERY_OPSET, Adapter, OpRecord, Rewrite

_DTYPES: dict[str, type] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": np.object_,
    "value_strings": np.object_,
}


def _constant(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    if len(record.attrs) != 1:
        raise ModelError(f"{record} states {len(record.attrs)} values; it should state one")
    ((kind, stated),) = record.attrs.items()
    if isinstance(stated, np.ndarray):
        return [record if kind == "value" else record.with_(attrs={"value": stated})]
    if kind not in _DTYPES:
        raise ModelError(f"{record}: attribute '{kind}' does not hold a constant")
    if kind.startswith("value_string"):
        value = np.empty(len(stated) if isinstance(stated, tuple) else (), np.object_)
        value[...] = list(stated) if isinstance(stated, tuple) else stated
    else:
        value = np.array(stated, _DTYPES[kind])
    return [record.with_(attrs={"value": value})]


ADAPTERS: tuple[Adapter, ...] = (Adapter("Constant", EVERY_OPSET, _constant),)

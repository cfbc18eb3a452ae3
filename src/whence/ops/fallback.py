"""Evaluation by the `onnx` package's own reference implementation: slow, and right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.helper

from whence.errors import ModelError, UnsupportedError, WhenceError
from whence.ops.definition import Call, Value
from whence.ops.types.onnx_node import (
    make_node,
    operand_names,
    opset_imports,
    schema_of,
    to_type_proto,
)
from whence.types import UNKNOWN, DType, MapType, SequenceType, TensorType, ValueType

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator


def onnx_reference(call: Call) -> tuple[Value, ...]:
    """Exactly `n_outputs` outputs of `call`, at the newest opset. `None` is an absent input."""
    if schema_of(call.op) is None:
        raise UnsupportedError(f"{call.op}: there is no reference implementation")
    inputs, outputs = operand_names(call.inputs, call.n_outputs)
    feeds = {
        name: _prepare(value) for name, value in zip(inputs, call.inputs, strict=False) if name
    }
    try:
        return tuple(_evaluator(call, inputs, outputs, feeds).run(outputs, feeds))
    except WhenceError:
        raise
    except ImportError as error:
        raise UnsupportedError(
            f"{call.op}: its reference implementation needs a package that is not installed:"
            f" {error}"
        ) from error
    except NotImplementedError as error:
        raise UnsupportedError(f"{call.op}: {first_line(error)}") from error
    # The package's implementations raise whatever their author thought of, bare RuntimeError and
    # AttributeError included.
    except Exception as error:
        raise ModelError(
            f"{call.op}: the onnx reference implementation failed: {first_line(error)}"
        ) from error


def _evaluator(
    call: Call, inputs: list[str], outputs: list[str], feeds: dict[str, Value]
) -> ReferenceEvaluator:
    # It holds the text of every schema, 12 MB, and few models need it.
    from onnx.reference import ReferenceEvaluator

    infos = [
        onnx.helper.make_value_info(name, to_type_proto(type_of(value)))
        for name, value in feeds.items()
    ]
    graph = onnx.helper.make_graph(
        [make_node(call.op, call.attrs, inputs, outputs)],
        "operator",
        infos,
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    return ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opset_imports(call.op)))


def type_of(value: Value) -> ValueType:
    """The type of a run-time value. Of an empty sequence or map only the kind is known."""
    if isinstance(value, list):
        return SequenceType(type_of(value[0]) if value else UNKNOWN)
    if isinstance(value, dict):
        key, item = next(iter(value.items()), (0, 0.0))
        # The maps that models hold and make are of single precision, whatever Python makes of them.
        element = TensorType(DType.F32, ()) if type(item) is float else type_of(np.asarray(item))
        return MapType(DType.STRING if isinstance(key, str) else DType.I64, element)
    return TensorType.of(np.asarray(value)) if value is not None else UNKNOWN


def _prepare(value: Value) -> Any:
    """The package's implementations of text operators expect NumPy's own text type."""
    if isinstance(value, list):
        return [_prepare(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype == np.object_:
        return value.astype(np.str_)
    return value


def first_line(error: BaseException) -> str:
    """An exception's message as one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__

"""GreedySearch, Sampling and BeamSearch, which hold the decoder that they generate text with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import GraphProto

from whence.errors import ModelError
from whence.frontends.naming import quoted
from whence.frontends.onnx.record import OpRecord
from whence.frontends.onnx.types import value_type
from whence.types import Dim, DType, TensorType, ValueType

MICROSOFT = "com.microsoft"
SEARCHES = frozenset({"BeamSearch", "GreedySearch", "Sampling"})


def search_graphs(record: OpRecord, bodies: Mapping[str, object]) -> list[str]:
    """The graphs of a search that whence knows; anything else it asks for is refused."""
    if record.integer("model_type", 0) != 0:
        raise record.unsupported("a model with an encoder; decoders like GPT-2's are known")
    if record.output(2) or (record.op != "BeamSearch" and record.output(1)):
        raise record.unsupported("the scores of all tokens as an output")
    if "decoder" not in bodies:
        raise ModelError(f"{record} lacks its graph 'decoder'")
    if record.op == "Sampling":
        if record.integer("custom", 0):
            raise record.unsupported("its own way to cut off unlikely tokens (custom)")
        if record.number("presence_penalty", 0.0) or record.input(7):
            raise record.unsupported("a penalty for tokens that are present")
    return [name for name in ("decoder", "init_decoder") if name in bodies]


def decoder_inputs(record: OpRecord, decoder: GraphProto) -> list[ValueType]:
    """Types of tokens, positions and mask of any size, and of caches as the decoder has them."""
    types: list[ValueType] = [TensorType(DType.I32, (None, None))] * 3
    for value in decoder.input[3:]:
        kind = value_type(value.type)
        shape = kind.shape if isinstance(kind, TensorType) else None
        if not isinstance(kind, TensorType) or shape is None or len(shape) != 5:
            raise record.unsupported(
                f"the decoder's cache {quoted(value.name)} should have five dimensions"
            )
        if not isinstance(shape[2], int) or not isinstance(shape[4], int):
            raise record.unsupported(
                f"the decoder's cache {quoted(value.name)} does not say the size of its heads"
            )
        types.append(TensorType(kind.dtype, (2, None, shape[2], None, shape[4])))
    return types


def search_types(record: OpRecord, inputs: Sequence[ValueType | None]) -> list[ValueType]:
    """Sequences, and the scores of those that a beam search finds."""
    tokens = inputs[0] if inputs else None
    batch: Dim = tokens.shape[0] if isinstance(tokens, TensorType) and tokens.shape else None
    if record.op != "BeamSearch":
        return [TensorType(DType.I32, (batch, None))]
    types = [TensorType(DType.I32, (batch, None, None)), TensorType(DType.F32, (batch, None))]
    return list(types[: max(len(record.outputs), 1)])

"""ONNX Runtime's graph as it runs, from the model that it writes when it is asked to, and what is
left in it of the names of the user's file.

1. A node keeps the name of the tensor that it makes, in most fusions.
2. In the channel-blocked layout (NCHWc) a node is called after the tensor that it made before
   anything was fused into it, with `_nchwc` behind it, and its output has a new name. A
   ReorderOutput has the name of the tensor that comes out in the end; so has a Reshape behind a
   product of matrices that had more than two dimensions.
   A scale, of a batch normalisation or by a constant, becomes a depthwise convolution there, called
   `_bn_nchwc` or `_mul_nchwc`; depthwise convolutions have channels added up to whole blocks.
3. Other nodes are called after one of the nodes they were made of, with something behind it.
4. Where a kernel for float16 is missing, Casts around the node bring its operands and results to
   float32 and back. That form of a tensor has the tensor's name with `InsertedPrecisionFreeCast_`
   or `InsertedCast_` in front of it, and two Casts that cancel are removed: then it is the only
   form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto
from onnx.helper import get_attribute_value

from whence.foreign.recording import EngineNode
from whence.foreign.source import SourceGraph, window_of

REORDERS = frozenset({"ReorderInput", "ReorderOutput"})
CONTROL = frozenset({"If", "Loop", "Scan"})
_MOVES = REORDERS | {"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
_CASTS = frozenset({"Cast", "DequantizeLinear", "QuantizeLinear"})
_HEAVY = frozenset({
    "Attention", "Conv", "ConvInteger", "ConvTranspose", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "Einsum", "FusedConv", "FusedGemm",
    "FusedMatMul", "GRU", "Gemm", "GroupQueryAttention", "LSTM", "MatMul", "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits",
    "MultiHeadAttention", "NhwcFusedConv", "QAttention", "QGemm", "QLinearConv", "QLinearMatMul", "RNN",
})  # fmt: skip
_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "FusedConv", "NhwcFusedConv", "QLinearConv"})
_NUMBERED = re.compile(r"_token_\d+$")
_LAYOUT_SUFFIX = re.compile(r"(_bn|_mul)?_(nchwc|nhwc)$")
_SCALE = re.compile(r"(_bn|_mul)_nchwc(_token_\d+)?$")
_CAST_PREFIX = re.compile(r"^(Inserted(PrecisionFree)?Cast_)+")
_FUSION_SUFFIX = re.compile(r"(/\w*Fusion\w*/?|_quant|_Q|_fused\w*|_transposed|/duplicated\w*)$")


@dataclass(frozen=True, slots=True)
class _Named:
    """A node of any of the model's graphs, and where each value that it can see is made."""

    proto: NodeProto
    makers: Mapping[str, int]


def read_graph(source: SourceGraph, model: ModelProto) -> tuple[EngineNode, ...]:
    """The nodes of the main graph and of nested ones, each after what it reads; `number` counts
    them.
    """
    found: list[_Named] = []
    _list(model.graph, {}, found)
    protos = [each.proto for each in found]
    texts = (text for proto in protos for text in (proto.name, proto.op_type, proto.domain))
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a name is not UTF-8 text")
    converted = {
        each.proto.input[0]: each.proto.output[0]
        for each in found
        if _converts_result(source, each.proto)
    }
    return tuple(_node(source, number, each, converted) for number, each in enumerate(found))


def _list(graph: GraphProto, outer: Mapping[str, int], found: list[_Named]) -> None:
    makers = dict(outer)
    for node in graph.node:
        number = len(found)
        found.append(_Named(node, makers))
        for body in bodies(node):
            _list(body, makers, found)
        makers.update((name, number) for name in node.output if name)


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def _converts_result(source: SourceGraph, proto: NodeProto) -> bool:
    """Does it only bring what another node made into the form that the file's tensor has?"""
    if not proto.output:
        return False
    tensor = _tensor(source, proto.output[0])
    if proto.op_type == "Cast" and _tensor(source, proto.input[0]) == tensor:
        return True
    made = source.by_output.get(tensor)
    return made is not None and any(
        proto.op_type in kinds and source[made].op not in kinds for kinds in (_MOVES, _CASTS)
    )


def _node(
    source: SourceGraph, number: int, each: _Named, converted: Mapping[str, str]
) -> EngineNode:
    proto = each.proto
    op = proto.op_type
    inputs = dict.fromkeys(each.makers[name] for name in _reads(proto) if name in each.makers)
    makes: list[int] = []
    holds: list[int] = []
    if not _converts_result(source, proto):
        outputs = [_tensor(source, converted.get(name, name)) for name in proto.output]
        known = _by_name(source, proto.name)
        makes = [made for name in outputs if (made := source.maker(name, known)) is not None]
        if not makes and known is not None:
            holds = [known]
    attributes = {attribute.name: attribute for attribute in proto.attribute}
    activation = attributes.get("activation")
    is_scale = op == "Conv" and _SCALE.search(proto.name) is not None
    stating = attributes if op in _CONVOLUTIONS and not is_scale else {}
    window = window_of({name: get_attribute_value(each) for name, each in stating.items()})
    if proto.domain.endswith("nchwc") and window.get("group", 1) != 1:
        del window["group"]
    return EngineNode(
        number,
        proto.name,
        op,
        tuple(inputs),
        tuple(dict.fromkeys(makes)),
        tuple(holds),
        is_layout=op in _MOVES | _CASTS and not makes and not holds,
        is_heavy=op in _HEAVY and not is_scale,
        is_composite=op in CONTROL,
        activation=(
            activation.s.decode(errors="replace")
            if activation is not None
            else "QuantizeLinear" * op.startswith("QLinear")
        ),
        window=window,
        kernel=f"{proto.domain}.{op}" if proto.domain else op,
    )


def _reads(proto: NodeProto) -> Iterator[str]:
    """Its inputs, and what the graphs in it read from outside."""
    yield from (name for name in proto.input if name)
    for body in bodies(proto):
        for node in body.node:
            yield from _reads(node)
        yield from (output.name for output in body.output)


def _tensor(source: SourceGraph, name: str) -> str:
    """The file's name of a tensor that may be in another element type here."""
    if name in source.by_output:
        return name
    return _CAST_PREFIX.sub("", _NUMBERED.sub("", name))


def _by_name(source: SourceGraph, name: str) -> int | None:
    """The operator that a node's name tells, by the ways in which ONNX Runtime makes names."""
    rest = _NUMBERED.sub("", name)
    blocked = _LAYOUT_SUFFIX.sub("", rest)
    if blocked != rest and (tensor := _tensor(source, blocked)) in source.by_output:
        return source.by_output[tensor]
    while rest:
        if rest in source.by_name:
            return source.by_name[rest]
        shorter = _NUMBERED.sub("", _FUSION_SUFFIX.sub("", rest))
        if shorter == rest:
            return None
        rest = shorter
    return None

"""Scaled dot-product attention."""

from __future__ import annotations

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType


def _attention(call: AtenCall) -> Value:
    if call.real("dropout_p") > 0:
        call.unsupported("attention with dropout, as in training; call .eval() first")
    rank = call.rank("query")
    operands = [call.ref(name) for name in ("query", "key", "value")]
    mask = call.optional("attn_mask")
    attrs: dict[str, Attr] = {}
    if call.plain("is_causal"):
        attrs["is_causal"] = 1
    if (scale := call.plain("scale")) is not None:
        attrs["scale"] = float(scale)
    if mask is not None and call.dtype("attn_mask") is not DType.BOOL:
        mask = call.cast(mask, call.dtype("query"))
    if rank == 3:
        # One head for each sample.
        operands = [call.op("Unsqueeze", ref, call.numbers(1)) for ref in operands]
        if mask is not None and call.rank("attn_mask") == 3:
            mask = call.op("Unsqueeze", mask, call.numbers(1))
    elif rank != 4:
        call.unsupported(f"attention on tensors of {rank} dimensions")
    y: Ref = call.emit("Attention", [*operands, mask], attrs)
    if rank == 3:
        y = call.op("Squeeze", y, call.numbers(1))
    return call.alone(y)


MAPPINGS: Mappings = {
    "aten::scaled_dot_product_attention": _attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention,
}

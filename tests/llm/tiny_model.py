"""A language model of a few kilobytes with random weights, as ONNX Runtime GenAI's builder lays one
out: two layers, packed weights, caches of keys and values.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, WIDTH, HEADS, GROUPS, SIZE, LAYERS = 96, 64, 4, 2, 16, 2
_BLOCK = 32


class _Model:
    def __init__(self, level: int) -> None:
        self.rng = np.random.default_rng(2)
        self.level = level
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def const(self, name: str, value: np.ndarray) -> str:
        self.tensors.append(numpy_helper.from_array(value, name))
        return name

    def op(self, op: str, inputs: list[str], outputs: list[str], **attrs: Any) -> str:
        domain = "" if op in ("Reshape", "Mul", "Sigmoid", *_SHAPES) else "com.microsoft"
        if op == "SimplifiedLayerNormalization":
            domain = ""
        name = f"/{outputs[0]}"
        self.nodes.append(helper.make_node(op, inputs, outputs, name, domain=domain, **attrs))
        return outputs[0]

    def linear(self, x: str, name: str, depth: int, columns: int) -> str:
        shape = (columns, depth // _BLOCK, _BLOCK // 2)
        codes = self.const(f"{name}.weight", self.rng.integers(0, 256, shape, np.uint8))
        scales = self.rng.uniform(0.01, 0.03, shape[:2]).astype(np.float32)
        attrs = {"K": depth, "N": columns, "bits": 4, "block_size": _BLOCK}
        scale = self.const(f"{name}.scales", scales)
        attrs["accuracy_level"] = self.level
        return self.op("MatMulNBits", [x, codes, scale], [f"{name}.out"], **attrs)

    def ones(self, name: str) -> str:
        return self.const(name, np.ones(WIDTH, np.float32))


_SHAPES = ("ReduceSum", "Sub", "Cast", "Shape", "Gather")


def tiny_model(level: int = 4, positions: int = 256) -> onnx.ModelProto:
    m = _Model(level)
    one = m.const("one", np.array([1], np.int64))
    m.op("ReduceSum", ["attention_mask", one], ["count"], keepdims=0)
    m.op("Sub", ["count", one], ["last64"])
    m.op("Cast", ["last64"], ["last"], to=TensorProto.INT32)
    m.op("Shape", ["attention_mask"], ["mask_shape"])
    m.op("Gather", ["mask_shape", m.const("at", np.array(1, np.int64))], ["total64"])
    m.op("Cast", ["total64"], ["total"], to=TensorProto.INT32)
    head = np.random.default_rng(5).integers(0, 256, (VOCABULARY, 2, _BLOCK // 2), np.uint8)
    m.const("head.weight", head)
    scales = np.random.default_rng(6).uniform(0.02, 0.1, (VOCABULARY, 2)).astype(np.float32)
    m.const("head.scales", scales)
    flat = m.const("flat", np.array([VOCABULARY, WIDTH // 2], np.int64))
    m.op("Reshape", ["head.weight", flat], ["table"])
    gather = {"bits": 4, "block_size": _BLOCK, "gather_axis": 0, "quantize_axis": 1}
    x = m.op("GatherBlockQuantized", ["table", "input_ids", "head.scales"], ["embedded"], **gather)
    angles = np.arange(positions)[:, None] / 100.0 ** (np.arange(SIZE // 2) / (SIZE // 2))
    turns = [
        m.const(name, part(angles).astype(np.float32))
        for name, part in (("cos", np.cos), ("sin", np.sin))
    ]
    y = m.op("SimplifiedLayerNormalization", [x, m.ones("n0")], ["normed0"], epsilon=1e-5, axis=-1)
    for layer in range(LAYERS):
        qkv = m.linear(y, f"qkv{layer}", WIDTH, (HEADS + 2 * GROUPS) * SIZE)
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        made = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        inputs = [qkv, "", "", *past, "last", "total", *turns]
        attrs = {"num_heads": HEADS, "kv_num_heads": GROUPS, "do_rotary": 1}
        m.op("GroupQueryAttention", inputs, [f"attended{layer}", *made], **attrs)
        o = m.linear(f"attended{layer}", f"o{layer}", HEADS * SIZE, WIDTH)
        outputs = [f"between{layer}", "", "", f"sum{layer}"]
        skip = "SkipSimplifiedLayerNormalization"
        y = m.op(skip, [x, o, m.ones(f"a{layer}")], outputs, epsilon=1e-5)
        gate = m.linear(y, f"gate{layer}", WIDTH, 96)
        m.op("Sigmoid", [gate], [f"sigmoid{layer}"])
        m.op("Mul", [gate, f"sigmoid{layer}"], [f"swish{layer}"])
        up = m.linear(y, f"up{layer}", WIDTH, 96)
        m.op("Mul", [f"swish{layer}", up], [f"gated{layer}"])
        down = m.linear(f"gated{layer}", f"down{layer}", 96, WIDTH)
        outputs = [f"normed{layer + 1}", "", "", f"x{layer + 1}"]
        y = m.op(skip, [f"sum{layer}", down, m.ones(f"b{layer}")], outputs, epsilon=1e-5)
        x = f"x{layer + 1}"
    attrs = {"K": WIDTH, "N": VOCABULARY, "bits": 4, "block_size": _BLOCK, "accuracy_level": level}
    m.op("MatMulNBits", [y, "head.weight", "head.scales"], ["logits"], **attrs)
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"])
    pairs = [f"{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]
    shape: list[str | int | None] = ["batch", GROUPS, "past", SIZE]
    pasts = [
        helper.make_tensor_value_info(f"past_key_values.{name}", TensorProto.FLOAT, shape)
        for name in pairs
    ]
    results = [
        helper.make_tensor_value_info(
            "logits", TensorProto.FLOAT, ["batch", "sequence", VOCABULARY]
        )
    ]
    shape = ["batch", GROUPS, "total", SIZE]
    results += [
        helper.make_tensor_value_info(f"present.{name}", TensorProto.FLOAT, shape) for name in pairs
    ]
    graph = helper.make_graph(m.nodes, "tiny", [ids, mask, *pasts], results, m.tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def write_folder(folder: Path, context: int = 256) -> Path:
    """The model with its configuration, as the builder leaves it."""
    onnx.save(tiny_model(positions=context), folder / "model.onnx")
    config = {
        "model": {
            "context_length": context,
            "vocab_size": VOCABULARY,
            "eos_token_id": [VOCABULARY - 1],
            "decoder": {
                "filename": "model.onnx",
                "head_size": SIZE,
                "num_hidden_layers": LAYERS,
                "num_key_value_heads": GROUPS,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {"max_length": 256},
    }
    (folder / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return folder

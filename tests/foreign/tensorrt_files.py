"""What trtexec would export of the small residual network, in the form of its real files.

Made by hand after the samples of NVIDIA's engine explorer (TensorRT,
tools/experimental/trt-engine-explorer/examples/pytorch/resnet/A100 and notebooks/profile.json):
members of the layers, the grammar of names, tensors, reformats that move and that do nothing are as
there; `Metadata` as TensorRT 8.6 and later write it. No GPU was at hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def tensor(name: str, *shape: int) -> dict[str, Any]:
    kind = "Row major linear FP32"
    return {"Name": name, "Location": "Device", "Dimensions": [*shape], "Format/Datatype": kind}


def conv(name: str, inputs: list[str], output: str, metadata: str = "") -> dict[str, Any]:
    return {
        "Name": name,
        "LayerType": "CaskConvolution",
        "Inputs": [tensor(each, 1, 32, 8, 8) for each in inputs],
        "Outputs": [tensor(output, 1, 32, 8, 8)],
        "ParameterType": "Convolution",
        "Kernel": [3, 3],
        "PaddingMode": "kEXPLICIT_ROUND_DOWN",
        "PrePadding": [1, 1],
        "PostPadding": [1, 1],
        "Stride": [1, 1],
        "Dilation": [1, 1],
        "OutMaps": 32,
        "Groups": 1,
        "Weights": {"Type": "Float", "Count": 9216},
        "Bias": {"Type": "Float", "Count": 32},
        "HasSparseWeights": 0,
        "Activation": "RELU",
        "HasBias": 1,
        "HasReLU": 1,
        "TacticName": "sm80_xmma_fprop_implicit_gemm_f32f32",
        "TacticValue": "0x0000000000000001",
        **({"Metadata": metadata} if metadata else {}),
    }


def reformat(
    which: str, layer: str, before: str, after: str, kind: str = "Reformat"
) -> dict[str, Any]:
    moving = {"ParameterType": "Reformat", "Origin": "REFORMAT"} if kind == "Reformat" else {}
    return {
        "Name": f"Reformatting CopyNode for {which} Tensor 0 to {layer}",
        "LayerType": kind,
        "Inputs": [tensor(before, 1, 32, 8, 8)],
        "Outputs": [tensor(after, 1, 32, 8, 8)],
        **moving,
        "TacticValue": "0x0000000000000000",
    }


A2, B2 = "a_conv2 + a_add + a_relu2", "b_conv2 + b_add + b_relu2"
HIDDEN, UNMOVED = (f"Reformatted Output Tensor 0 to {layer}" for layer in (A2, B2))
LAYERS = [
    reformat("Input", "stem + stem_relu", "x", "Reformatted Input Tensor 0 to stem + stem_relu"),
    conv(
        "stem + stem_relu",
        ["Reformatted Input Tensor 0 to stem + stem_relu"],
        "stem_relu_out",
        "[ONNX Layer: stem]\x1e[ONNX Layer: stem_bn]\x1e[ONNX Layer: stem_relu]",
    ),
    conv("a_conv1 + a_relu1", ["stem_relu_out"], "a_relu1_out"),
    conv(A2, ["a_relu1_out", "stem_relu_out"], HIDDEN),
    reformat("Output", A2, HIDDEN, "a_relu2_out"),
    conv("b_conv1 + b_relu1", ["a_relu2_out"], "b_relu1_out"),
    conv(B2, ["b_relu1_out", "a_relu2_out"], UNMOVED),
    reformat("Output", B2, UNMOVED, "b_relu2_out", "NoOp"),
    {
        "Name": "pool",
        "LayerType": "CaskPooling",
        "Inputs": [tensor("b_relu2_out", 1, 32, 8, 8)],
        "Outputs": [tensor("pool_out", 1, 32, 1, 1)],
        "ParameterType": "Pooling",
        "PoolingType": "AVERAGE",
        "WindowSize": [8, 8],
    },
]


def write(folder: Path) -> tuple[Path, Path]:
    """The profile and the layers."""
    times = [0.004, 0.02, 0.03, 0.031, 0.002, 0.03, 0.031, 0, 0.001]
    rows = [
        {
            "name": layer["Name"],
            "timeMs": 625 * time,
            "averageMs": time,
            "medianMs": time,
            "percentage": 100 * time / sum(times),
        }
        for layer, time in zip(LAYERS, times, strict=True)
    ]
    profile, layers = folder / "profile.json", folder / "layers.json"
    profile.write_text(json.dumps([{"count": 625}, *rows]))
    layers.write_text(json.dumps({"Layers": LAYERS, "Bindings": ["x", "pool_out"]}))
    return profile, layers

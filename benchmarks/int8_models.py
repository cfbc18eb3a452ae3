"""Quantised models for the latency benchmark: LiteRT with XNNPACK as an engine, and QDQ models made
of float ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from zoo.inputs import random_inputs
from zoo.manifest import cache_folder

INT8 = (
    "qdq:t_mobilenetv2",
    "qdq:t_resnet18",
    "inception_quant_graph",
    "ssd_mobilenet_quant",
    "mltk_kws_on_off_int8",
    "fer_emotion_quant",
)
"""ONNX models quantised here, and TFLite files of the zoo as published."""
_QUANTISED_NAMES = ("int8", "_u8", "quant", "qdq")


def is_quantised(model: str) -> bool:
    """By its name, as publishers and `quantised` name such files."""
    return any(part in model for part in _QUANTISED_NAMES)


_CALIBRATIONS = 4


def litert_inputs(path: Path) -> dict[str, np.ndarray]:
    """Random inputs for a TFLite file."""
    from ai_edge_litert.interpreter import Interpreter

    details = Interpreter(str(path)).get_input_details()
    return random_inputs(
        path.stem,
        [(each["name"], each["dtype"], [int(dim) for dim in each["shape"]]) for each in details],
        seed=0,
    )


def load_litert(path: Path, threads: int, inputs: dict[str, np.ndarray]) -> Callable[[], Any]:
    """LiteRT as it comes: XNNPACK takes what it can."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    interpreter.allocate_tensors()
    places = {each["name"]: each["index"] for each in interpreter.get_input_details()}
    results = [each["index"] for each in interpreter.get_output_details()]

    def run() -> list[Any]:
        # As with the other engines, arrays go in and come out.
        for name, value in inputs.items():
            interpreter.set_tensor(places[name], value)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in results]

    return run


def quantised(path: Path) -> Path:
    """The QDQ form of a float ONNX model: uint8 activations, int8 weights with a scale for each
    channel, calibrated on random inputs.

    Accuracy is of no interest here, the arithmetic is. The result is kept beside the zoo.
    """
    from onnxruntime import InferenceSession
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    made = cache_folder() / "qdq" / f"{path.stem}_qdq.onnx"
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    plain = made.with_suffix(".float.onnx")
    quant_pre_process(str(path), str(plain), skip_symbolic_shape=True)
    declared = [
        (each.name, np.float32, each.shape)
        for each in InferenceSession(str(plain), providers=["CPUExecutionProvider"]).get_inputs()
    ]

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [random_inputs(path.stem, declared, seed) for seed in range(_CALIBRATIONS)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    partial = made.with_suffix(".partial.onnx")
    quantize_static(
        str(plain),
        str(partial),
        Samples(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    plain.unlink()
    return partial.rename(made)

"""Engines to compare with: ONNX Runtime for ONNX, LiteRT for TFLite, onert for Circle."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from whence.frontends.tflite.records import TFLITE, read_records
from whence.frontends.tflite.serialise import serialise
from zoo.inputs import random_inputs

_NUMPY = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "int64": np.int64, "int32": np.int32, "int16": np.int16, "int8": np.int8,
    "uint64": np.uint64, "uint32": np.uint32, "uint16": np.uint16, "uint8": np.uint8, "bool": np.bool_, "string": np.object_,
}  # fmt: skip
_LONGEST = 160
_SECONDS = 300


@dataclass(frozen=True, slots=True)
class PeerRun:
    """What an engine made of a model: its outputs, their names, and the inputs it was given; or
    `problem` says why there are none.
    """

    outputs: Sequence[Any] = ()
    names: Sequence[str] = ()
    inputs: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


def _line(error: object) -> str:
    return " ".join(str(error).split())[:_LONGEST]


def run_onnx_runtime(file: Path, *, optimise: bool = True) -> PeerRun:
    """ONNX Runtime on random inputs."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    if not optimise:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            str(file), settings, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        return PeerRun(problem=f"ONNX Runtime does not load it: {_line(error)}")
    try:
        declared = [
            (each.name, _NUMPY[each.type.removeprefix("tensor(").removesuffix(")")], each.shape)
            for each in session.get_inputs()
        ]
    except KeyError as error:
        return PeerRun(problem=f"an input of type {error} cannot be drawn")
    names = [each.name for each in session.get_outputs()]
    reason = ""
    # Open dimensions are 1 unless a hint says otherwise; small graphs without hints may need other
    # sizes to fit their weights.
    for size in (None, 2, 4, 8):
        sized = [
            (name, dtype, [dim if isinstance(dim, int) or size is None else size for dim in shape])
            for name, dtype, shape in declared
        ]
        inputs = random_inputs(file.stem, sized, seed=0)
        try:
            return PeerRun(session.run(None, inputs), names, inputs)
        except Exception as error:
            reason = reason or f"ONNX Runtime does not run it on random inputs: {_line(error)}"
    return PeerRun(names=names, problem=reason)


def run_litert(file: Path, inputs: dict[str, Any], *, reference: bool = True) -> PeerRun:
    """LiteRT's reference kernels, or its optimised ones with XNNPACK, on the given inputs, in the
    order of the model's.

    A Circle file without operators of its own is a TFLite file under another name, and LiteRT runs
    it as such.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    try:
        interpreter = Interpreter(
            model_content=_as_tflite(file), experimental_op_resolver_type=kind, num_threads=1
        )
        for detail, value in zip(interpreter.get_input_details(), inputs.values(), strict=True):
            if tuple(detail["shape"]) != value.shape:
                interpreter.resize_tensor_input(detail["index"], value.shape)
        interpreter.allocate_tensors()
        details = interpreter.get_output_details()
        for detail, value in zip(interpreter.get_input_details(), inputs.values(), strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return PeerRun(
            [interpreter.get_tensor(detail["index"]) for detail in details],
            [detail["name"] for detail in details],
            inputs,
        )
    except Exception as error:
        return PeerRun(problem=f"LiteRT does not run it: {_line(error)}")


def _as_tflite(file: Path) -> bytes:
    content = file.read_bytes()
    return (
        serialise(replace(read_records(content), format=TFLITE, version=3))
        if content[4:8] == b"CIR0"
        else content
    )


def run_onert(file: Path, inputs: dict[str, Any]) -> PeerRun:
    """onert on the inputs in order; in a process of its own, because many models crash it."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "in.npz"), Path(folder, "out.npz")
        np.savez(given, **{f"in{index}": value for index, value in enumerate(inputs.values())})
        command = [sys.executable, "-m", "zoo.reference_engines", str(file), str(given), str(made)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return PeerRun(problem=f"onert does not run it: no answer in {_SECONDS} s")
        if done.returncode != 0 or not made.exists():
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            reason = f"killed by signal {-done.returncode}" if done.returncode < 0 else _line(last)
            return PeerRun(problem=f"onert does not run it: {reason}")
        with np.load(made) as arrays:
            outputs = [arrays[f"out{index}"] for index in range(len(arrays.files))]
        return PeerRun(outputs, [f"output {index}" for index in range(len(outputs))], inputs)


def _onert_here(file: str, given: str, made: str) -> None:
    from onert import infer
    from onert.native.libnnfw_api_pybind import prepare_config

    with np.load(given, allow_pickle=True) as arrays:
        inputs = [arrays[f"in{index}"] for index in range(len(arrays.files))]
    session = infer.session(file)
    # Its own preparation sets every shape again and fails where that is not allowed; shapes here
    # are those that the file has.
    session.session.set_prepare_config(prepare_config.ENABLE_INTERNAL_OUTPUT_ALLOC)
    session.session.prepare()
    session._prepared = True
    np.savez(made, **{f"out{index}": value for index, value in enumerate(session.infer(inputs))})


if __name__ == "__main__":
    _onert_here(*sys.argv[1:])

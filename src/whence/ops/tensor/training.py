"""Losses and optimiser steps: rare in models to be run, so the `onnx` package evaluates them."""

from __future__ import annotations

from whence.ops.definition import OpClass, OpDef
from whence.ops.operand import named, variadic

OPS: tuple[OpDef, ...] = (
    OpDef(
        "NegativeLogLikelihoodLoss",
        classes=OpClass.REDUCE,
        operands=named("input", "target", "weight"),
    ),
    OpDef(
        "SoftmaxCrossEntropyLoss",
        classes=OpClass.REDUCE,
        operands=named("scores", "labels", "weights"),
    ),
    OpDef("ai.onnx.preview.training::Adagrad", operands=variadic("R", "T", "inputs")),
    OpDef("ai.onnx.preview.training::Adam", operands=variadic("R", "T", "inputs")),
    OpDef("ai.onnx.preview.training::Momentum", operands=variadic("R", "T", "inputs")),
)

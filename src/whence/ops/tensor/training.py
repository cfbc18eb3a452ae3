"""Losses and optimiser steps: rare in models to be run, so the `onnx` package evaluates them."""

from __future__ import annotations

from whence.ops.definition import OpClass, OpDef, Pattern

OPS: tuple[OpDef, ...] = (
    OpDef("NegativeLogLikelihoodLoss", Pattern.OPAQUE, OpClass.REDUCE),
    OpDef("SoftmaxCrossEntropyLoss", Pattern.OPAQUE, OpClass.REDUCE),
    OpDef("ai.onnx.preview.training::Adagrad"),
    OpDef("ai.onnx.preview.training::Adam"),
    OpDef("ai.onnx.preview.training::Momentum"),
)

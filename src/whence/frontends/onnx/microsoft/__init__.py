"""Operators of `com.microsoft`, as ONNX Runtime defines them, said in operators of ONNX.

ONNX Runtime writes them when it saves an optimised model, and exporters write them for it. Those
used only in training (`...Grad`, `ConcatTraining`, `YieldOp`) are not here.
"""

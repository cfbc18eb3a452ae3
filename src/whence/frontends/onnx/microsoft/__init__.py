"""Operators of `com.microsoft`, as ONNX Runtime defines them, said in operators of ONNX."""

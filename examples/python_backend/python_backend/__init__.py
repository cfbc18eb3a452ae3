"""Kernels as Python functions: the smallest backend that does all that a backend does.

pip install ./examples/python_backend
whence run model.onnx --engine python
"""

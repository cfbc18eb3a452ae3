"""Classical machine learning: the domain `ai.onnx.ml`."""

"""Reading ONNX files into graphs, and writing graphs as ONNX files."""

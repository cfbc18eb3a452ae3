"""Running models of PyTorch: tensors in, tensors out, in PyTorch's memory."""

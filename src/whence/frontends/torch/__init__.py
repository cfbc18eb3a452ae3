"""Reads programs of PyTorch: `torch.export` and the graphs that `torch.compile` hands to a backend.

PyTorch itself is imported only when one is given; it is the optional extra `whence[torch]`.
"""

"""Operators restated as those with good kernels: supernodes, two axes, single precision."""

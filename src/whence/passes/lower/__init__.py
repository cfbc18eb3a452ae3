"""Operators restated as those that have good kernels: supernodes, two spatial axes, single
precision.
"""

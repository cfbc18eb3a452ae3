"""Kernel programs as OpenCL C: C's loops and expressions, over work items and groups."""

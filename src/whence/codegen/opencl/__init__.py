"""Kernel programs as OpenCL C: the same loops and expressions as in C, divided over work items and
work groups.
"""

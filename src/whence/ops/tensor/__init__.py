"""Operators on tensors, sequences and text: arithmetic, movement, reductions, indexing, control
flow.
"""

"""Operators on tensors, sequences and text: arithmetic, movement, reductions, control flow."""

"""Quantisation, and arithmetic on integer codes."""

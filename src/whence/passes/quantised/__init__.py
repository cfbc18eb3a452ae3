"""Quantised operators computed on their integer codes."""

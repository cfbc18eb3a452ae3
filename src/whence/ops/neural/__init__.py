"""Operators of neural networks: convolutions, products, norms, attention, pools, recurrence."""

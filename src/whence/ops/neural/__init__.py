"""Operators of neural networks: convolutions, products, norms, attention, pools, recurrent
layers.
"""

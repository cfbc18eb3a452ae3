"""What an operator demands of its operands and attributes beyond what the types of its outputs
depend on: one rule for each operator that kernels are made of (`ops/operands/rules.py` has them
all).
"""

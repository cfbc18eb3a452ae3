"""Operators that the file and the graph both have, on one operand or two and without options: read
and written by name.
"""

from __future__ import annotations

from collections.abc import Mapping

UNARY: Mapping[str, str] = {
    "ABS": "Abs",
    "CEIL": "Ceil",
    "COMPLEX_ABS": "ComplexAbs",
    "COS": "Cos",
    "EXP": "Exp",
    "FLOOR": "Floor",
    "HARD_SWISH": "HardSwish",
    "IMAG": "ImaginaryPart",
    "LOG": "Log",
    "LOGICAL_NOT": "Not",
    "LOGISTIC": "Sigmoid",
    "NEG": "Neg",
    "REAL": "RealPart",
    "RELU": "Relu",
    "ROUND": "Round",
    "SIGN": "Sign",
    "SIN": "Sin",
    "SQRT": "Sqrt",
    "TANH": "Tanh",
}
BINARY: Mapping[str, str] = {
    "ADD": "Add",
    "BITWISE_XOR": "BitwiseXor",
    "DIV": "Div",
    "EQUAL": "Equal",
    "GREATER": "Greater",
    "GREATER_EQUAL": "GreaterOrEqual",
    "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual",
    "LOGICAL_AND": "And",
    "LOGICAL_OR": "Or",
    "MUL": "Mul",
    "POW": "Pow",
    "PRELU": "PRelu",
    "SUB": "Sub",
}

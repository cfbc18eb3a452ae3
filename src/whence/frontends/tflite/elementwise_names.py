"""Operators on single elements that the file and the graph both have: read and written by name."""

from __future__ import annotations

from collections.abc import Mapping

UNARY: Mapping[str, str] = {
    "ABS": "Abs",
    "CEIL": "Ceil",
    "COS": "Cos",
    "EXP": "Exp",
    "FLOOR": "Floor",
    "LOG": "Log",
    "LOGICAL_NOT": "Not",
    "NEG": "Neg",
    "ROUND": "Round",
    "SIGN": "Sign",
    "SIN": "Sin",
    "SQRT": "Sqrt",
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
    "SUB": "Sub",
}

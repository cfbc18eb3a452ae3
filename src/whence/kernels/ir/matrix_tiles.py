"""Statements for matrix units with tile registers (Intel's AMX): eight registers, numbered, of 16
rows of 64 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from whence.kernels.ir.counts import Count


@dataclass(frozen=True, slots=True)
class TileConfigure:
    """Make all tile registers as large as they come."""


@dataclass(frozen=True, slots=True)
class TileRelease:
    """Let go of the tile registers: a thread that holds some costs the system more to switch."""


@dataclass(frozen=True, slots=True)
class TileZero:
    register: int


@dataclass(frozen=True, slots=True)
class TileLoad:
    """Rows of 64 bytes, `row_bytes` from one to the next."""

    register: int
    pointer: str
    offset: Count
    row_bytes: int


@dataclass(frozen=True, slots=True)
class TileStore:
    register: int
    pointer: str
    offset: Count
    row_bytes: int


@dataclass(frozen=True, slots=True)
class TileMultiply:
    """Add to float32 sums the products of bfloat16 tiles; neighbours of a sum lie side by side."""

    sums: int
    left: int
    right: int


MatrixTileStmt: TypeAlias = (
    TileConfigure | TileRelease | TileZero | TileLoad | TileStore | TileMultiply
)

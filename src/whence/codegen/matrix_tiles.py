"""Statements of matrix units (Intel's AMX) as C."""

from __future__ import annotations

from collections.abc import Callable

from whence.kernels.ir import (
    Count,
    MatrixTileStmt,
    TileConfigure,
    TileLoad,
    TileMultiply,
    TileRelease,
    TileStore,
    TileZero,
)

_REGISTERS, _ROWS, _ROW_BYTES = 8, 16, 64


def matrix_tile_lines(stmt: MatrixTileStmt, count: Callable[[Count], str]) -> list[str]:
    match stmt:
        case TileConfigure():
            return _configuration()
        case TileRelease():
            return ["__builtin_ia32_tilerelease();"]
        case TileZero(register):
            return [f"__builtin_ia32_tilezero({register});"]
        case TileLoad(register, pointer, offset, row_bytes):
            address = f"{pointer} + {count(offset)}"
            return [f"__builtin_ia32_tileloadd64({register}, {address}, {row_bytes});"]
        case TileStore(register, pointer, offset, row_bytes):
            address = f"{pointer} + {count(offset)}"
            return [f"__builtin_ia32_tilestored64({register}, {address}, {row_bytes});"]
        case TileMultiply(sums, left, right):
            return [f"__builtin_ia32_tdpbf16ps({sums}, {left}, {right});"]


def _configuration() -> list[str]:
    """All tiles as large as they come: palette 1, then bytes of a row and rows of each."""
    rows = [_ROWS] * _REGISTERS
    columns = [number for _ in range(_REGISTERS) for number in (_ROW_BYTES, 0)]
    numbers = ", ".join(map(str, [1, *[0] * 15, *columns, *[0] * 16, *rows, *[0] * 8]))
    return [
        f"static const _Alignas(64) uint8_t shapes[64] = {{{numbers}}};",
        "__builtin_ia32_tile_loadconfig(shapes);",
    ]

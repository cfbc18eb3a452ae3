"""The instructions of matrix units (Intel's AMX) in C: eight tile registers, four for sums and four
for what is multiplied.
"""

from __future__ import annotations

from whence.codegen.render_c import CWriter
from whence.kernels.bf16x2 import PANEL, TILE, TILE_FLOATS
from whence.machine import CACHE_LINE

_REGISTERS = 8
_ROW_BYTES = 64
# Sums are 0 to 3, by tile of rows and tile of columns; then come two tiles of the left operand and
# two of the right.
_LEFT, _RIGHT = 4, 6


def write_types(writer: CWriter) -> None:
    """`half`, and `halves`, a vector of as many of them as `vec` has numbers."""
    writer.line(
        f"typedef __bf16 half; typedef __bf16 halves __attribute__((ext_vector_type({TILE}),"
        " aligned(2)));"
    )


def write_configure(writer: CWriter) -> None:
    """Make all tiles as large as they come."""
    rows = ", ".join([str(TILE)] * _REGISTERS)
    columns = ", ".join(f"{_ROW_BYTES}, 0" for _ in range(_REGISTERS))
    zeros = ", ".join(["0"] * 14)
    rest = ", ".join(["0"] * 16)
    writer.line(
        f"static const _Alignas(64) uint8_t shapes[64] = {{1, 0, {zeros}, {columns}, {rest},"
        f" {rows}, {', '.join(['0'] * 8)}}};"
    )
    writer.line("__builtin_ia32_tile_loadconfig(shapes);")


def write_release(writer: CWriter) -> None:
    """Let go of the tiles: a thread that holds some costs the system more to switch."""
    writer.line("__builtin_ia32_tilerelease();")


def write_zeros(writer: CWriter) -> None:
    for number in range(PANEL * PANEL):
        writer.line(f"__builtin_ia32_tilezero({number});")


def write_ahead(writer: CWriter, lines: int) -> None:
    """Ask for so many cache lines of the weights at `ahead`, and go on by as many."""
    writer.line(
        f"for (int j = 0; j < {lines}; j++) __builtin_prefetch(ahead + j * {CACHE_LINE // 4},"
        " 0, 2);"
    )
    writer.line(f"ahead += {lines * CACHE_LINE // 4};")


def write_step(writer: CWriter, left: str, low: str, apart: str, weights: str) -> None:
    """Add the products of one step. `left` is the address of the first tile of high halves, `low`
    how many halves further the low ones are, `apart` how many halves further the second tile;
    `weights` the address of the step's weights.

    Low halves first: the high ones of the left operand are then there for both halves of the right
    one, and no tile is loaded twice.
    """
    line = writer.line

    def load_left(number: int, low_half: bool) -> None:
        address = (
            f"{left}{f' + {number} * ({apart})' if number else ''}{f' + {low}' if low_half else ''}"
        )
        line(f"__builtin_ia32_tileloadd64({_LEFT + number}, {address}, {_ROW_BYTES});")

    def load_right(number: int, low_half: bool) -> None:
        line(
            f"__builtin_ia32_tileloadd64({_RIGHT + number}, {weights} +"
            f" {(PANEL * low_half + number) * TILE_FLOATS}, {_ROW_BYTES});"
        )

    def multiply(row: int, column: int) -> None:
        line(f"__builtin_ia32_tdpbf16ps({row * PANEL + column}, {_LEFT + row}, {_RIGHT + column});")

    load_right(0, False)
    load_right(1, False)
    for low_half in (True, False):
        for row in range(PANEL):
            load_left(row, low_half)
            for column in range(PANEL):
                multiply(row, column)
    for column in range(PANEL):
        load_right(column, True)
        for row in range(PANEL):
            multiply(row, column)


def write_sums(writer: CWriter, to: str) -> None:
    """Store the sums, row by row."""
    width = PANEL * TILE
    for row in range(PANEL):
        for column in range(PANEL):
            writer.line(
                f"__builtin_ia32_tilestored64({row * PANEL + column}, {to} +"
                f" {row * TILE * width + column * TILE}, {4 * width});"
            )


def write_transpose(writer: CWriter, value: str, to: str, low: str) -> None:
    """Store the halves of the vector `value`, the low ones `low` further. What is not finite, or no
    longer as bfloat16, has no low half.
    """
    line = writer.line
    line(f"const vec x = {value};")
    line("const halves high = __builtin_convertvector(x, halves);")
    line("const vec rest = x - __builtin_convertvector(high, vec);")
    line("const vec finite = (vec)((ivec)rest & (rest - rest == 0.0f));")
    line(f"*(halves *)({to}) = high;")
    line(f"*(halves *)({to} + {low}) = __builtin_convertvector(finite, halves);")

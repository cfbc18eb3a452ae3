"""Epilogues of integer kernels in C: what is stored for a tile of int32 sums that lies in memory.

Everything that is the same for all rows of a tile (factors, shifts, biases) is loaded before the
loop over them: stores of bytes might change anything, as far as the compiler knows, so it would
load them again for every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whence.codegen.c_text import c_index, converted
from whence.codegen.render_c import CWriter
from whence.codegen.typed_vectors import TypedVectors, vector_type
from whence.kernels.conv.epilogue import Output
from whence.kernels.index import Var
from whence.kernels.integer.product import ACCUMULATOR, COLUMN, ROW
from whence.types import DType


@dataclass(frozen=True, slots=True)
class IntegerEpilogue:
    """What to store for `tile[row][column]`, with `m` the first row's variable and each vector's
    first column given.
    """

    outputs: tuple[Output, ...]
    columns: int
    lanes: int

    def store(self, writer: CWriter, rows: int, starts: Sequence[str], first_row: str) -> None:
        """`starts` are C expressions for the first column of each vector of the tile."""
        lane = next(
            (
                var
                for output in self.outputs
                for var in output.index.variables()
                if var.name == COLUMN
            ),
            Var(COLUMN, self.columns),
        )
        for j, start in enumerate(starts):
            writer.open("")
            if self.columns < self.lanes or not self._by_vector(
                writer, lane, rows, j, start, first_row
            ):
                self._by_element(writer, rows, j, start, first_row)
            writer.close()

    def _by_vector(
        self, writer: CWriter, lane: Var, rows: int, j: int, start: str, first_row: str
    ) -> bool:
        vectors = TypedVectors(writer, lane, self.lanes, {ACCUMULATOR.name: "acc"})
        values = [output.value for output in self.outputs]
        stored_as_computed = all(
            output.value.dtype is writer.dtype_of(output.buffer) for output in self.outputs
        )
        if not stored_as_computed or not vectors.can_write(*values):
            return False
        writer.line(f"const int64_t {COLUMN} = {start};")
        writer.line(f"(void){COLUMN};")
        vectors.load_ahead(values, ROW)
        writer.line("#pragma clang loop unroll_count(2)")
        writer.open(f"for (int i = 0; i < {rows}; i++)")
        writer.line(f"const int64_t {ROW} = {first_row} + i;")
        writer.line(f"(void){ROW};")
        writer.line(
            f"const {vector_type(DType.I32, self.lanes)} acc = *(const"
            f" {vector_type(DType.I32, self.lanes)} *)(tile[i] + {j * self.lanes});"
        )
        texts = [vectors.write(value) for value in values]
        for output, text in zip(self.outputs, texts, strict=True):
            target = vector_type(output.value.dtype, self.lanes)
            writer.line(f"*({target} *)({output.buffer} + {c_index(output.index)}) = {text};")
        writer.close()
        return True

    def _by_element(self, writer: CWriter, rows: int, j: int, start: str, first_row: str) -> None:
        writer.open(f"for (int i = 0; i < {rows}; i++)")
        writer.line(f"const int64_t {ROW} = {first_row} + i;")
        writer.line(f"(void){ROW};")
        writer.line("#pragma clang loop vectorize(assume_safety)")
        writer.open(f"for (int64_t k = 0; k < {min(self.columns, self.lanes)}; k++)")
        writer.line(f"const int64_t {COLUMN} = {start} + k;")
        writer.line(f"(void){COLUMN};")
        writer.line(f"const int32_t acc = tile[i][{j * self.lanes} + k];")
        for output in self.outputs:
            text = converted(
                writer.expression(output.value), output.value.dtype, writer.dtype_of(output.buffer)
            )
            writer.line(f"{output.buffer}[{c_index(output.index)}] = {text};")
        writer.close()
        writer.close()

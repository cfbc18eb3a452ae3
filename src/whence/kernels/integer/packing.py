"""Constant weights of integer kernels as they lie in memory: vectors of columns, bytes in fours,
behind what sums start with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class ZeroPoints:
    """Of both sides, as far as packed weights depend on them."""

    x: int | None
    """Of the unsigned bytes; `None` if it is known only at run time, and starting values are to be
    multiplied by it.
    """
    w: tuple[int, ...]
    """One, or one for each column of all batch items."""
    has_sums: bool
    """Is the sum of each row needed, since weights are not centred?"""

    def start(self, matrix: np.ndarray, left: np.ndarray) -> np.ndarray:
        """What sums start with, for weights as `centre` gives them."""
        total: np.ndarray = matrix.sum(axis=1, dtype=np.int64) - matrix.shape[1] * left
        return total if self.x is None else total * -self.x


@dataclass(frozen=True, slots=True)
class PackBytes:
    """Weights in panels. Each is a row of starting values, a row of factors if sums are needed,
    then for each column of the kernel its rows in fours, output by output.
    """

    batch: int
    kernel: tuple[int, int]
    """Rows and columns of the depth."""
    columns: int
    by_column: bool
    """The weights are [batch, columns, depth], else [batch, depth, columns]."""
    lanes: int
    panels: tuple[int, ...]
    zeros: ZeroPoints

    @property
    def words(self) -> int:
        """Groups of four along the depth."""
        rows, columns = self.kernel
        return columns * -(-rows // 4)

    @property
    def vector_bytes(self) -> int:
        """Of a vector's columns in all rows."""
        return self.lanes * 4 * (1 + self.zeros.has_sums + self.words)

    @property
    def elements(self) -> int:
        return self.batch * sum(self.panels) * self.vector_bytes

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        matrix, left = centre(self._matrix(weights), self.zeros.w)
        (rows, across), width = self.kernel, max(self.columns, self.lanes)
        codes = np.zeros((self.batch, across, self.words // across * 4, width), np.int8)
        by_row = matrix.reshape(self.batch, rows, across, self.columns)
        codes[:, :, :rows, : self.columns] = by_row.swapaxes(1, 2)
        fours = codes.reshape(self.batch, self.words, 4, width)
        head = np.zeros((self.batch, 2, width), np.int32)
        head[:, 0, : self.columns] = self.zeros.start(matrix, left).astype(np.int32)
        head[:, 1, : self.columns] = -left
        pieces, first = [], 0
        for panel in self.panels:
            starts = np.minimum(np.arange(first, first + panel) * self.lanes, width - self.lanes)
            at = np.add.outer(starts, np.arange(self.lanes)).reshape(-1)
            begin = np.ascontiguousarray(head[:, : 1 + self.zeros.has_sums, at])
            pieces.append(begin.reshape(self.batch, -1).view(np.int8))
            pieces.append(fours[..., at].swapaxes(2, 3).reshape(self.batch, -1))
            first += panel
        return np.ascontiguousarray(np.concatenate(pieces, axis=1)).reshape(-1)

    def _matrix(self, weights: np.ndarray) -> np.ndarray:
        if self.by_column:
            return weights.reshape(self.batch, self.columns, -1).transpose(0, 2, 1)
        return weights.reshape(self.batch, -1, self.columns)


def centre(weights: np.ndarray, w_zero: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Weights [batch, depth, columns] as signed bytes, and what is left of the zero point of each
    column, [batch, columns].
    """
    batch, _, columns = weights.shape
    zero = np.array(w_zero, np.int64)
    zero = np.broadcast_to(
        zero.reshape(batch, columns) if zero.size > 1 else zero, (batch, columns)
    )
    low = weights.min(axis=1).astype(np.int64) - zero
    high = weights.max(axis=1).astype(np.int64) - zero
    fits = (low >= -128) & (high <= 127)
    shift = np.where(fits, zero, 128 if weights.dtype == np.uint8 else 0)
    return (weights.astype(np.int16) - shift[:, np.newaxis].astype(np.int16)).astype(
        np.int8
    ), zero - shift

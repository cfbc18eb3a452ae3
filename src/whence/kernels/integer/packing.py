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
    then the depth in fours, column by column.
    """

    batch: int
    depth: int
    columns: int
    by_column: bool
    """The weights are [batch, columns, depth], else [batch, depth, columns]."""
    lanes: int
    panels: tuple[int, ...]
    zeros: ZeroPoints

    @property
    def vector_bytes(self) -> int:
        """Of a vector's columns in all rows."""
        return self.lanes * 4 * (1 + self.zeros.has_sums + -(-self.depth // 4))

    @property
    def elements(self) -> int:
        return self.batch * sum(self.panels) * self.vector_bytes

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        matrix, left = centre(self._matrix(weights), self.zeros.w)
        words = -(-self.depth // 4)
        width = max(self.columns, self.lanes)
        codes = np.zeros((self.batch, words * 4, width), np.int8)
        codes[:, : self.depth, : self.columns] = matrix
        head = np.zeros((self.batch, 2, width), np.int32)
        head[:, 0, : self.columns] = self.zeros.start(matrix, left).astype(np.int32)
        head[:, 1, : self.columns] = -left
        pieces, first = [], 0
        for panel in self.panels:
            starts = np.minimum(np.arange(first, first + panel) * self.lanes, width - self.lanes)
            at = np.add.outer(starts, np.arange(self.lanes)).reshape(-1)
            rows = np.ascontiguousarray(head[:, : 1 + self.zeros.has_sums, at])
            quads = codes[:, :, at].reshape(self.batch, words, 4, at.size).transpose(0, 1, 3, 2)
            pieces.append(rows.reshape(self.batch, -1).view(np.int8))
            pieces.append(quads.reshape(self.batch, -1))
            first += panel
        return np.ascontiguousarray(np.concatenate(pieces, axis=1)).reshape(-1)

    def _matrix(self, weights: np.ndarray) -> np.ndarray:
        if self.by_column:
            return weights.reshape(self.batch, self.columns, self.depth).transpose(0, 2, 1)
        return weights.reshape(self.batch, self.depth, self.columns)


@dataclass(frozen=True, slots=True)
class PackChannels:
    """[C, KH, KW, 1] weights by vector of channels: starting values, factors if sums are needed,
    then for each kernel column its rows in fours.
    """

    channels: int
    kernel: tuple[int, int]
    lanes: int
    zeros: ZeroPoints

    @property
    def vector_bytes(self) -> int:
        quads = -(-self.kernel[0] // 4)
        return self.lanes * 4 * (1 + self.zeros.has_sums + self.kernel[1] * quads)

    @property
    def elements(self) -> int:
        return -(-self.channels // self.lanes) * self.vector_bytes

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        rows, columns = self.kernel
        matrix, left = centre(
            weights.reshape(1, self.channels, rows * columns).transpose(0, 2, 1), self.zeros.w
        )
        (start,) = self.zeros.start(matrix, left)
        quads = -(-rows // 4)
        codes = np.zeros((quads * 4, columns, self.channels), np.int8)
        codes[:rows] = matrix[0].reshape(rows, columns, self.channels)
        pieces = []
        for first in range(0, self.channels, self.lanes):
            at = min(first, self.channels - self.lanes) + np.arange(self.lanes)
            pieces.append(start[at].astype(np.int32).view(np.int8))
            if self.zeros.has_sums:
                pieces.append((-left[0, at]).astype(np.int32).view(np.int8))
            pieces.append(
                codes[:, :, at]
                .reshape(quads, 4, columns, self.lanes)
                .transpose(2, 0, 3, 1)
                .reshape(-1)
            )
        return np.concatenate([piece.reshape(-1).view(np.int8) for piece in pieces])


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

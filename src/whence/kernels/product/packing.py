"""Constant weights of products as they lie in memory.

A start from the cache packs those of large models again: it imports this, and not what makes
kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.kernels.bf16x2 import pack_bf16x2


@dataclass(frozen=True, slots=True)
class PackPanels:
    """B in panels of `width` columns, row after row: what the tile reads is a stream."""

    depth: int
    columns: int
    transposed: bool
    width: int

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        packed = np.empty((-(-self.columns // self.width), self.depth, self.width), np.float32)
        self.pack_into(weights, packed)
        return packed

    def pack_into(self, weights: np.ndarray, out: np.ndarray) -> None:
        """The same, written where it is wanted."""
        matrix = _matrix(weights, self.depth, self.columns, transposed=self.transposed)
        whole, rest = divmod(self.columns, self.width)
        packed = out.reshape(-1, self.depth, self.width)
        for number in range(whole):
            packed[number] = matrix[:, number * self.width : (number + 1) * self.width]
        if rest:
            packed[whole, :, :rest] = matrix[:, whole * self.width :]
            packed[whole, :, rest:] = 0


@dataclass(frozen=True, slots=True)
class PackSplitColumns:
    """Weights of a product as `pack_bf16x2` takes them."""

    depth: int
    columns: int
    transposed: bool

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        return pack_bf16x2(
            _matrix(weights, self.depth, self.columns, transposed=self.transposed).T[:, None]
        )


def _matrix(weights: np.ndarray, depth: int, columns: int, *, transposed: bool) -> np.ndarray:
    """B as [depth, column], whichever way it lies."""
    return weights.reshape(columns, depth).T if transposed else weights.reshape(depth, columns)

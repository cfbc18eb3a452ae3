"""Sparse tensors: weights of which a file stores only some, with a description of where they stand.

A sparse tensor is a tree with one level for each dimension, in the order of `traversal_order`. A
dense level has a child for every coordinate; a compressed one lists, for each parent, the
coordinates that are there. A dimension may be cut into blocks: then it has two levels, one that
counts blocks and a later one, named by `block_map`, that counts inside them. The leaves, from left
to right, are the stored values.
"""

from __future__ import annotations

import math

import numpy as np

from whence.errors import ModelError
from whence.frontends.tflite.records import SparseDimension, SparsityRecord, TensorRecord
from whence.types import DType

# Pruned weights keep one in ten, at the very least one in a hundred. A file that asks for far more
# zeros than it has bytes wants memory, not weights.
_MOST_ZEROS_PER_VALUE = 1024
_ALWAYS_ALLOWED = 1 << 20


def densify(tensor: TensorRecord, data: np.ndarray, dtype: DType) -> np.ndarray:
    """The whole tensor, zeros included, from the bytes of its stored values."""
    sparsity, shape = tensor.sparsity, tensor.shape
    if sparsity is None or dtype is DType.STRING or data.size % dtype.numpy.itemsize:
        raise ModelError(f"{data.size} bytes are not the values of a sparse tensor of {dtype}")
    values = data != 0 if dtype is DType.BOOL else np.ascontiguousarray(data).view(dtype.numpy)
    elements = math.prod(shape)
    if any(dim < 0 for dim in shape) or elements > max(
        _ALWAYS_ALLOWED, _MOST_ZEROS_PER_VALUE * values.size
    ):
        raise ModelError(
            f"the shape {list(shape)} is far larger than the {values.size} values stored"
        )
    dense = np.zeros(elements, values.dtype)
    dense[_places(sparsity, shape, values.size)] = values
    return dense.reshape(shape)


def _places(sparsity: SparsityRecord, shape: tuple[int, ...], n_values: int) -> np.ndarray:
    """Where each stored value stands in the flattened tensor."""
    rank, order, blocks = len(shape), sparsity.traversal_order, sparsity.block_map
    if sorted(order) != list(range(rank + len(blocks))) or len(sparsity.dimensions) != len(order):
        raise ModelError(
            f"its {len(sparsity.dimensions)} levels in the order {list(order)} do not fit {rank}"
            f" dimensions and {len(blocks)} blocks"
        )
    if len(set(blocks)) != len(blocks) or not all(0 <= dim < rank for dim in blocks):
        raise ModelError(f"its blocks divide the dimensions {list(blocks)} of {rank}")
    coordinates: dict[int, np.ndarray] = {}
    node = np.zeros(1, np.int64)
    for which, level in zip(order, sparsity.dimensions, strict=True):
        node, parent, here = _children(level, node, math.prod(shape))
        coordinates = {key: value[parent] for key, value in coordinates.items()}
        coordinates[which] = here
    if not np.array_equal(node, np.arange(n_values)):
        raise ModelError(f"its levels lead to {node.size} values, {n_values} are stored")
    sizes = {dim: _block_size(sparsity, rank + position) for position, dim in enumerate(blocks)}
    inner = {dim: coordinates[rank + position] for position, dim in enumerate(blocks)}
    places = np.zeros(n_values, np.int64)
    for dim, extent in enumerate(shape):
        at = coordinates[dim] * sizes.get(dim, 1) + inner.get(dim, 0)
        if at.size and not (int(at.min()) >= 0 and int(at.max()) < extent):
            raise ModelError(
                f"it has a value at {int(at.max())} of dimension {dim}, which is {extent} long"
            )
        places = places * extent + at
    return places


def _block_size(sparsity: SparsityRecord, which: int) -> int:
    level = sparsity.dimensions[sparsity.traversal_order.index(which)]
    if not level.is_dense or level.dense_size < 1:
        raise ModelError("a block is not dense inside")
    return level.dense_size


def _children(
    level: SparseDimension, node: np.ndarray, elements: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The next level's nodes: numbers, the position of each parent in `node`, coordinates."""
    if level.is_dense:
        size = level.dense_size
        if size < 0 or node.size * size > elements:
            raise ModelError(
                f"a dense level of {size} under {node.size} nodes has more nodes than the tensor"
                " elements"
            )
        parent = np.repeat(np.arange(node.size), size)
        here = np.tile(np.arange(size), node.size)
        return node[parent] * size + here, parent, here
    segments, indices = level.segments, level.indices
    if node.size and int(node.max()) + 1 >= segments.size:
        raise ModelError(f"{segments.size} segments do not serve {int(node.max()) + 1} nodes")
    first, last = segments[node], segments[node + 1]
    if np.any(first < 0) or np.any(last < first) or np.any(last > indices.size):
        raise ModelError("its segments run outside its indices")
    count = last - first
    if int(count.sum()) > elements:
        raise ModelError("its segments overlap")
    parent = np.repeat(np.arange(node.size), count)
    before = np.cumsum(count) - count
    child = first[parent] + np.arange(parent.size) - before[parent]
    return child, parent, indices[child]

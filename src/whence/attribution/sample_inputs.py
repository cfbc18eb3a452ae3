"""Inputs to profile a model with when none are given: random values, and sizes for the dimensions
that the model leaves open.

1. A dimension with a name has one size wherever the name stands.
2. The first dimension, and whatever is named after a batch, is 1, or the batch that is asked for.
3. The last two of an image, which has at least four dimensions, are 224.
4. Everything else is a length, and is 32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whence.errors import InputError
from whence.graph import Graph
from whence.ops.definition import Value
from whence.passes.equivalence import as_indices, random_inputs
from whence.passes.shapes.index_limits import index_limits
from whence.types import DType, TensorType

_IMAGE, _LENGTH = 224, 32
_MOST_BYTES = 1 << 32


@dataclass(frozen=True, slots=True)
class SampleInputs:
    values: Mapping[str, Value]
    guessed: Mapping[str, tuple[int, ...]]
    """The shapes of inputs that the model leaves open, as they were chosen."""

    @property
    def options(self) -> str:
        """The guesses as they would be given on the command line."""
        return " ".join(
            f"--shape {name}={'x'.join(map(str, shape)) or 'scalar'}"
            for name, shape in self.guessed.items()
        )


def sample_inputs(graph: Graph, given: Mapping[str, tuple[int, ...]] | None = None) -> SampleInputs:
    """A value for each input of the graph. Nothing is guessed for inputs whose shapes are `given`,
    and named sizes follow those.
    """
    values = dict(random_inputs(graph))
    guessed = guess_shapes(graph, given)
    rng, limits = np.random.default_rng(0), index_limits(graph)
    for node in graph.inputs:
        if node.name in guessed:
            assert isinstance(node.type, TensorType)
            value = _random(node.type.dtype, guessed[node.name], rng, node.name)
            limit = limits.get(node.id)
            values[node.name] = value if limit is None else as_indices(value, limit)
    return SampleInputs(values, guessed)


def guess_shapes(
    graph: Graph, given: Mapping[str, tuple[int, ...]] | None = None, batch: int = 1
) -> dict[str, tuple[int, ...]]:
    """A shape for each input that has open dimensions and none `given`, for so many samples. One of
    unknown rank is taken for a single number.
    """
    given = given or {}
    sizes: dict[str, int] = {}
    for node in graph.inputs:
        if node.name in given and isinstance(node.type, TensorType):
            sizes.update(
                (dim, size)
                for dim, size in zip(node.type.shape or (), given[node.name], strict=False)
                if isinstance(dim, str) and dim
            )
    found = {}
    for node in graph.inputs:
        kind = node.type
        if not isinstance(kind, TensorType) or kind.is_static or node.name in given:
            continue
        dims = kind.shape or ()
        shape = []
        for axis, dim in enumerate(dims):
            if isinstance(dim, int):
                shape.append(dim)
            else:
                size = _guess(axis, len(dims), dim, batch)
                shape.append(sizes.setdefault(dim, size) if dim else size)
        found[node.name] = tuple(shape)
    return found


def _guess(axis: int, rank: int, name: str | None, batch: int) -> int:
    if _is_batch(axis, name):
        return batch
    return _IMAGE if rank >= 4 and axis >= rank - 2 else _LENGTH


def batch_shapes(
    graph: Graph, batch: int, given: Mapping[str, tuple[int, ...]] | None = None
) -> dict[str, tuple[int, ...]]:
    """The shapes of all inputs that the graph leaves open, for so many samples. An error where no
    input has an open number of samples.
    """
    has_batch = any(
        not isinstance(dim, int) and _is_batch(axis, dim)
        for node in graph.inputs
        if isinstance(node.type, TensorType) and node.name not in (given or {})
        for axis, dim in enumerate(node.type.shape or ())
    )
    if not has_batch:
        shapes = ", ".join(f"{node.name} {node.type}" for node in graph.inputs[:4])
        raise InputError(
            f"no input of the model takes a batch of another size ({shapes}): export it with the"
            " first dimension left open, or give the shapes with --shape"
        )
    return guess_shapes(graph, given, batch)


def _is_batch(axis: int, name: str | None) -> bool:
    return axis == 0 or "batch" in (name or "").lower()


def _random(
    dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, name: str
) -> np.ndarray:
    if int(np.prod(shape, dtype=object)) * 8 > _MOST_BYTES:
        raise InputError(
            f"input '{name}' of shape {list(shape)} is too large to be made up; choose another with"
            f" --shape {name}=..."
        )
    if dtype is DType.STRING:
        return np.full(shape, "text", dtype=object)
    if dtype is DType.BOOL or dtype.is_integer:
        return rng.integers(0, 2, shape).astype(dtype.numpy)
    return rng.standard_normal(shape).astype(dtype.numpy)

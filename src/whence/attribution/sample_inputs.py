"""Inputs to profile a model with when none are given: random values, and sizes for the dimensions
that the model leaves open (`attribution/guess_sizes.py`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from whence.attribution.guess_sizes import guesses, likely_shapes
from whence.errors import InputError, WhenceError
from whence.graph import Graph
from whence.ops.definition import Value
from whence.ops.named_dimensions import (
    dimension_name,
    named_sizes,
    names_in,
    open_sizes,
    size_of,
    sized_inputs,
)
from whence.passes.equivalence import as_indices, random_inputs
from whence.passes.shapes.index_limits import index_limits
from whence.passes.shapes.working_sizes import input_ports
from whence.runtime.executable import Executable
from whence.types import Dim, DType, TensorType

_MOST_BYTES = 1 << 32
_SAMPLE_RATE, _IS_SAMPLE_RATE = 16_000, re.compile(r"sr|sampl(e|ing)_?rate", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SampleInputs:
    values: Mapping[str, Value]
    guessed: Mapping[str, tuple[int, ...]]
    """The shapes of inputs that the model leaves open, as they were chosen."""
    declared: Mapping[str, Sequence[Dim]] = field(default_factory=dict)
    """What the model declares of them, where that is known."""
    given: Mapping[str, int] = field(default_factory=dict)
    """Dimensions whose sizes were not guessed."""

    @property
    def options(self) -> str:
        """The guesses as they would be given on the command line: by dimension, where the model
        names it and its size is one, else by input.
        """
        dims, shapes = self._dims(), []
        for name, shape in self.guessed.items():
            declared = self.declared.get(name)
            follows = declared is not None and all(
                isinstance(dim, int) or dims.get(dimension_name(name, axis, dim)) == size
                for axis, (dim, size) in enumerate(zip(declared, shape, strict=True))
            )
            if not follows:
                sizes = "x".join(map(str, shape)) or "scalar"
                shapes.append(f"--shape {shlex.quote(name)}={sizes}")
        named = []
        for name, size in dims.items():
            others = {other: each for other, each in dims.items() if other != name}
            # What is an expression over others follows from those.
            follows = bool(names_in(name)) and size_of(name, others) == size
            if name not in self.given and not follows:
                named.append(f"--dim {shlex.quote(name)}={size}")
        return " ".join([*named, *shapes])

    def _dims(self) -> dict[str, int]:
        """The sizes of named dimensions. Of one input with a size that has no name, its shape says
        the same in fewer words.
        """
        named = {
            name: dims
            for name, dims in self.declared.items()
            if name in self.guessed and all(isinstance(dim, int) or _is_name(dim) for dim in dims)
        }
        return named_sizes(named, self.guessed)


def _is_name(dim: Dim) -> bool:
    return isinstance(dim, str) and dimension_name("", 0, dim) == dim


def taken_sizes(graph: Graph) -> SampleInputs:
    """What is taken for the sizes that the graph leaves open, without values."""
    return SampleInputs({}, guess_shapes(graph), declared_shapes(graph))


def sample_inputs(graph: Graph, given: Mapping[str, Sequence[int]] | None = None) -> SampleInputs:
    """A value for each input of the graph, of the sizes guessed first. Nothing is guessed for
    inputs whose shapes are `given`, and named sizes follow those.
    """
    return _random_samples(graph, guess_shapes(graph, given))


def working_inputs(executable: Executable, dims: Mapping[str, int] | None = None) -> SampleInputs:
    """Inputs that the model works with: where it does not with the sizes guessed first, others are
    tried. `dims` are sizes of dimensions that are known.
    """
    graph = executable.graph
    # Says so where a name or a size is wrong.
    sized_inputs(input_ports(graph), dims or {})
    failure: tuple[SampleInputs, WhenceError] | None = None
    for shapes in guesses(graph, dims):
        sample = _random_samples(graph, shapes, dims)
        try:
            executable(**sample.values)
        except WhenceError as error:
            if not sample.guessed:
                raise
            failure = failure or (sample, error)
        else:
            return sample
    assert failure is not None
    sample, reason = failure
    raise InputError(
        "the model leaves dimensions of its inputs open, and does not work with the sizes guessed"
        f" for them ({sample.options}): {reason}; say which sizes to use with --dim or --shape, dims="
        " or shapes=, or give inputs"
    ) from reason


def _random_samples(
    graph: Graph,
    guessed: Mapping[str, tuple[int, ...]],
    dims: Mapping[str, int] | None = None,
) -> SampleInputs:
    values = {**random_inputs(graph), **_usual_values(graph)}
    rng, limits = np.random.default_rng(0), index_limits(graph)
    for node in graph.inputs:
        if node.name in guessed:
            assert isinstance(node.type, TensorType)
            value = _random(node.type.dtype, guessed[node.name], rng, node.name)
            limit = limits.get(node.id)
            values[node.name] = value if limit is None else as_indices(value, limit)
    return SampleInputs(values, guessed, declared_shapes(graph), dims or {})


def _usual_values(graph: Graph) -> dict[str, np.ndarray]:
    """Models of speech branch on the rate of the samples, and have no branch for a random one."""
    return {
        node.name: np.full(node.type.static_shape, _SAMPLE_RATE, node.type.dtype.numpy)
        for node in graph.inputs
        if isinstance(node.type, TensorType)
        and node.type.dtype.is_integer
        and node.type.dtype.bits >= 32
        and node.type.static_shape in ((), (1,))
        and _IS_SAMPLE_RATE.fullmatch(node.name)
    }


def declared_shapes(graph: Graph) -> dict[str, Sequence[Dim]]:
    """What the inputs declare, where that says how many dimensions they have."""
    return {
        node.name: node.type.shape
        for node in graph.inputs
        if isinstance(node.type, TensorType) and node.type.shape is not None
    }


def guess_shapes(
    graph: Graph,
    given: Mapping[str, Sequence[int]] | None = None,
    batch: int = 1,
) -> dict[str, tuple[int, ...]]:
    """A shape for each input that has open dimensions and none `given`, for so many samples. One of
    unknown rank is taken for a single number.
    """
    given = given or {}
    found = likely_shapes(graph, named_sizes(declared_shapes(graph), given), batch)
    return {name: shape for name, shape in found.items() if name not in given}


def batch_shapes(graph: Graph, batch: int) -> dict[str, tuple[int, ...]]:
    """The shapes of all inputs that the graph leaves open, for so many samples. An error where no
    input has an open number of samples, and the first has another.
    """
    first = next(iter(declared_shapes(graph).values()), ())
    has_batch = first[:1] == (batch,) or any(
        place.axis == 0 or "batch" in place.name.lower() for place in open_sizes(input_ports(graph))
    )
    if not has_batch:
        shapes = ", ".join(f"{node.name} {node.type}" for node in graph.inputs[:4])
        raise InputError(
            f"no input of the model takes a batch of another size ({shapes}): export it with the"
            " first dimension left open, or give the sizes with --dim or --shape"
        )
    return guess_shapes(graph, batch=batch)


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

"""Sizes for what a model leaves open, when nobody says which: what people who run it would give.

First what the file says in its own words:

1. A dimension has one size wherever its name stands, and one that is called by an expression
   (`past_sequence_length + sequence_length`) follows from the others. A `total_...` length, or that
   of an attention mask, is the past and what is new together.
2. The number of samples is 1, or the batch that is asked for.
3. An image has the size that the file's metadata states (`imgsz`), or that of its other side, or
   224.
4. An input that a product or convolution with constant weights reads has as many features or
   channels as the weights; one that stands beside an input of fixed length has that length.
5. With a cache of past keys and values, 32 tokens are past and one is new, as in generation. A
   sound is a second of 16 kHz. Any other length is 32.

Where the model does not work with that, the question about sizes that it failed on tells what it
needs (`passes/shapes/working_sizes.py`); failing that, other usual sizes are tried.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from whence.errors import WhenceError
from whence.graph import Graph
from whence.ops.attributes import get_int
from whence.ops.named_dimensions import OpenSize, names_in, open_sizes
from whence.passes.shapes.propagate_types import fix_input_shapes
from whence.passes.shapes.working_sizes import independent, input_ports, input_shapes, repaired
from whence.types import DType, TensorType

Shapes = dict[str, tuple[int, ...]]
_IMAGE, _LENGTH, _SOUND = 224, 32, 16_000
_CHANNELS = (1, 3, 4)
_SIDES = (640, 320, 256, 64)
_LENGTHS = (128, 512, 1, 16_000)
_LEAST_SIDE = 64
_IMAGE_KEYS = ("imgsz", "image_size", "input_size", "img_size")
_MOST = 4096
"""The largest size that is looked for by trying."""


def guesses(
    graph: Graph, given: Mapping[str, int] | None = None, batch: int = 1
) -> Iterator[Shapes]:
    """Shapes for the inputs that have open sizes, the most likely first: each further one is for a
    model that does not work with those before it. `given` are sizes of dimensions that are known.
    """
    first = _first(graph, dict(given or {}), batch)
    seen: list[Shapes] = []
    for sizes in _candidates(graph, first, given or {}):
        shapes = input_shapes(graph, sizes)
        if shapes not in seen:
            seen.append(shapes)
            yield shapes


def likely_shapes(graph: Graph, given: Mapping[str, int] | None = None, batch: int = 1) -> Shapes:
    """The first guess that no operator refuses the shapes of; the first of all where each is
    refused.
    """
    first: Shapes | None = None
    for shapes in guesses(graph, given, batch):
        if not shapes:
            return shapes
        try:
            fix_input_shapes(graph.copy(), shapes)
        except WhenceError:
            first = first or shapes
        else:
            return shapes
    assert first is not None
    return first


def _candidates(
    graph: Graph, first: dict[str, int], given: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    yield first
    yield from repaired(graph, first, given)
    kinds = {place.name: _Place(graph, place) for place in open_sizes(input_ports(graph))}
    sides = {name for name, place in kinds.items() if place.is_side} - given.keys()
    lengths = {
        name
        for name, place in kinds.items()
        if not place.is_side and not place.is_batch and name not in given and not names_in(name)
    }
    for group, usual in ((sides, _SIDES), (lengths, _LENGTHS)):
        if group:
            for size in usual:
                yield independent({**first, **dict.fromkeys(group, size)}, given)
    # One is the length of what comes in, the others are numbers of samples that nobody called so.
    for length in sorted(lengths) if len(lengths) > 1 else ():
        for size in _LENGTHS:
            yield independent({**first, **dict.fromkeys(lengths, 1), length: size}, given)


# ---- the first guess ----


def _first(graph: Graph, given: dict[str, int], batch: int) -> dict[str, int]:
    places = [_Place(graph, place) for place in open_sizes(input_ports(graph))]
    has_past = any(place.is_past for place in places)
    sizes = dict(given)
    for place in places:
        if place.name not in sizes and not names_in(place.name) and not place.is_total:
            sizes[place.name] = place.guess(batch, has_past=has_past)
    for place in places:
        # Names that only expressions have.
        for name in names_in(place.name):
            sizes.setdefault(name, 1 if has_past and "past" not in name.lower() else _LENGTH)
    past = next((sizes[each.name] for each in places if each.is_past and each.name in sizes), 0)
    for place in places:
        if place.is_total and place.name not in sizes:
            new = next((sizes[each.name] for each in places if each.is_new), _LENGTH)
            sizes[place.name] = past + new
    return independent(sizes, given)


class _Place:
    """An open size, with what the file says about it."""

    def __init__(self, graph: Graph, place: OpenSize) -> None:
        self.graph, self.name, self.axis = graph, place.name, place.axis
        self.node = next(node for node in graph.inputs if node.name == place.input)
        kind = self.node.type
        assert isinstance(kind, TensorType)
        self.dims, self.dtype = kind.shape or (), kind.dtype
        self._named = place.name.lower() if place.name != f"{place.input}_{place.axis}" else ""

    @property
    def is_past(self) -> bool:
        return "past" in self._named and not self.is_total

    @property
    def is_total(self) -> bool:
        words = ("total", "attention_mask", "mask_length")
        return any(word in self._named for word in words) and bool(names_past(self.graph))

    @property
    def is_length(self) -> bool:
        return bool(re.search(r"seq|len|token|time|past|frame|sample|steps", self._named))

    @property
    def is_new(self) -> bool:
        """Is it the number of tokens of this call?"""
        return (
            self.is_length
            and not (self.is_past or self.is_total or self.is_batch)
            and "encoder" not in self._named.replace("decoder", "")
        )

    @property
    def is_batch(self) -> bool:
        return "batch" in self._named or (self.axis == 0 and not self.is_length)

    @property
    def is_side(self) -> bool:
        """Is it the height or width of an image?"""
        return self.axis in self._sides

    @property
    def _sides(self) -> range:
        rank = len(self.dims)
        if rank < 4 or not (self.dtype.is_float or self.dtype in (DType.U8, DType.I8)):
            return range(0)
        last = self.dims[-1] in _CHANNELS and self.dims[1] not in _CHANNELS
        return range(rank - 3, rank - 1) if last else range(rank - 2, rank)

    def guess(self, batch: int, *, has_past: bool) -> int:
        if self.is_batch:
            return batch
        fixed = self._by_weights()
        if fixed is not None:
            return fixed
        if self.is_side and not self.is_length:
            return self._side()
        if self.is_past:
            return _LENGTH
        if self.is_new and has_past:
            return 1
        sound = re.search(
            r"audio|wave|sound|speech|samples", f"{self._named} {self.node.name.lower()}"
        )
        if sound and self.axis == len(self.dims) - 1 and self.dtype is not DType.I64:
            return _SOUND
        return self._beside() or _LENGTH

    def _side(self) -> int:
        sides = self._sides
        for key in _IMAGE_KEYS:
            stated = _numbers(self.graph.metadata.get(key, ""))
            if stated:
                return stated[min(self.axis - sides.start, len(stated) - 1)]
        others = [self.dims[axis] for axis in sides]
        return next((dim for dim in others if isinstance(dim, int) and dim >= _LEAST_SIDE), _IMAGE)

    def _beside(self) -> int | None:
        """The length at the same place of another input of integers like this one."""
        for node in self.graph.inputs:
            kind = node.type
            if (
                node is not self.node
                and isinstance(kind, TensorType)
                and kind.dtype.is_integer
                and self.dtype.is_integer
                and len(kind.shape or ()) == len(self.dims)
                and isinstance(dim := (kind.shape or ())[self.axis], int)
            ):
                return dim
        return None

    def _by_weights(self) -> int | None:
        """What the constant weights that it meets first say of it."""
        for user, index in self.graph.uses(self.node.ref()):
            weights = user.operand("W", "B") if index == 0 else None
            value = self.graph.tensor_type(weights)
            shape = None if value is None else value.static_shape
            if not shape or weights is None or not self.graph[weights.node].is_const:
                continue
            if user.is_a("Conv") and self.axis == 1:
                return shape[1] * get_int(user.attrs, "group", 1)
            if user.is_a("MatMul", "Gemm") and self.axis == len(self.dims) - 1 and len(shape) > 1:
                return shape[-1] if user.attrs.get("transB") else shape[-2]
        return None


def names_past(graph: Graph) -> list[str]:
    return [place.name for place in open_sizes(input_ports(graph)) if "past" in place.name.lower()]


def _numbers(text: str) -> list[int]:
    """`[640, 640]` or `640`, as metadata states sizes; empty for anything else."""
    try:
        found = ast.literal_eval(text) if text else ()
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    row = list(found) if isinstance(found, list | tuple) else [found]
    whole = all(type(each) is int and 0 < each <= _MOST for each in row)
    return row[-2:] if whole else []

"""Which sizes of a model's inputs stay open when it is compiled, and what they are called.

What the model leaves open becomes a dimension (`whence.extent`): one for each name that it uses,
and one for each open place without a name. Sizes of 0 and 1 stay numbers, since tensors of those
sizes are empty or broadcast: what is compiled for them is another program.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from whence.extent import LEAST, Dimensions, is_symbolic
from whence.ops.binding import Port
from whence.ops.named_dimensions import dimension_name
from whence.types import TensorType


def open_dimensions(
    inputs: Sequence[Port], shapes: Mapping[str, Sequence[int]], closed: Collection[str] = ()
) -> tuple[Dimensions, dict[str, tuple[int, ...]]]:
    """The dimensions that these inputs leave open, with their sizes in a call with inputs of
    `shapes`, and those shapes with the dimensions in place of sizes. Where one name has two sizes
    in the call, the second is a dimension of its own. Those of `closed` are numbers.
    """
    found = _open(inputs, shapes)
    if not closed:
        return found
    opened = found[1]
    fixed = [
        Port(name, replace(kind, shape=_closed(opened[name], shapes[name], closed)))
        if name in opened and isinstance(kind, TensorType)
        else Port(name, kind)
        for name, kind in inputs
    ]
    return _open(fixed, shapes)


def _closed(
    opened: Sequence[int], given: Sequence[int], closed: Collection[str]
) -> tuple[int | str, ...]:
    """What an input declares when these dimensions are numbers."""
    return tuple(
        size if not is_symbolic(dim) or str(dim) in closed else str(dim)
        for dim, size in zip(opened, given, strict=True)
    )


def _open(
    inputs: Sequence[Port], shapes: Mapping[str, Sequence[int]]
) -> tuple[Dimensions, dict[str, tuple[int, ...]]]:
    sizes: dict[str, int] = {}
    labels: dict[str, str] = {}
    places: dict[str, list[str | int]] = {}
    for name, kind in inputs:
        if name not in shapes or not isinstance(kind, TensorType):
            continue
        shape = tuple(shapes[name])
        declared = kind.shape if kind.shape else (None,) * len(shape)
        if len(declared) != len(shape):
            # Where the inputs are bound, the error says what is wrong with them.
            places[name] = list(shape)
            continue
        places[name] = [
            size
            if isinstance(dim, int) or size < LEAST
            else _entered(sizes, labels, dimension_name(name, axis, dim), size)
            for axis, (dim, size) in enumerate(zip(declared, shape, strict=True))
        ]
    dimensions = Dimensions(sizes)
    dimensions.labels.update(labels)
    return dimensions, {
        name: tuple(dimensions[at] if isinstance(at, str) else at for at in row)
        for name, row in places.items()
    }


def _entered(sizes: dict[str, int], labels: dict[str, str], label: str, size: int) -> str:
    """The identifier of the dimension with this label and size."""
    plain = re.sub(r"\W", "_", label, flags=re.ASCII)
    plain = plain if plain and not plain[0].isdigit() else f"_{plain}"
    name, count = plain, 1
    while name in sizes and (labels[name] != label or sizes[name] != size):
        count += 1
        name = f"{plain}_{count}"
    sizes.setdefault(name, size)
    labels.setdefault(name, label)
    return name

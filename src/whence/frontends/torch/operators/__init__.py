"""ATen operators in canonical ones, a file for each group.

Operators that are not here are decomposed by PyTorch into some that are, or refused.
"""

from __future__ import annotations

from typing import Any

from whence.frontends.torch.call import Mapper
from whence.frontends.torch.operators import (
    activations,
    arithmetic,
    attention,
    comparison,
    convolution,
    creation,
    indexing,
    movement,
    normalisation,
    padding,
    pooling,
    products,
    recurrent,
    reductions,
    resizing,
    scatter,
    sizes,
    sorting,
    strided,
)

_GROUPS = (
    activations.MAPPINGS,
    arithmetic.MAPPINGS,
    attention.MAPPINGS,
    comparison.MAPPINGS,
    convolution.MAPPINGS,
    creation.MAPPINGS,
    indexing.MAPPINGS,
    movement.MAPPINGS,
    normalisation.MAPPINGS,
    padding.MAPPINGS,
    pooling.MAPPINGS,
    products.MAPPINGS,
    recurrent.MAPPINGS,
    reductions.MAPPINGS,
    resizing.MAPPINGS,
    scatter.MAPPINGS,
    sizes.MAPPINGS,
    sorting.MAPPINGS,
    strided.MAPPINGS,
)

MAPPINGS: dict[str, Mapper] = {name: mapper for group in _GROUPS for name, mapper in group.items()}


def operator_key(target: Any) -> str:
    """What an operator is mapped by: `aten::conv2d`, whatever its overload; `python::mul` for
    arithmetic on sizes.
    """
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return str(schema.name)
    name = getattr(target, "__name__", str(target))
    return f"python::{name}"

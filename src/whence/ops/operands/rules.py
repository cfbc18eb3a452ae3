"""Operands and attributes that must fit each other beyond what the output's type depends on: a bias
as long as there are channels, an axis that exists, an index inside its axis.

Kernels read as much of an operand as the operator says there is, so a file whose operands do not
fit is refused when its operator is built. A dimension that is not known yet is not judged; it is
looked at again when a program is made, where all is known that kernels rely on. So are indices, and
only then: branches that are never taken may hold what could never run.

Every operator that kernels are made of has a rule; a test sees to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int
from whence.ops.definition import Check, IndexedAxes, TypeQuery, Value, naming
from whence.ops.formula import needs_reals
from whence.ops.operands import elementwise, images, movement, normalisation, products
from whence.ops.operands.attribute_choices import check_choices
from whence.ops.operands.checks import by_types, demand_reals, shape_of
from whence.ops.registry import REGISTRY
from whence.ops.signature import why_malformed
from whence.types import Dim

RULES: Mapping[str, Check] = {
    **{
        name: partial(demand_reals, index=0) if needs_reals(known.formula) else by_types
        for name, known in REGISTRY.items()
        if known.formula is not None
    },
    **elementwise.RULES,
    **images.RULES,
    **movement.RULES,
    **normalisation.RULES,
    **products.RULES,
    **{name: known.check for name, known in REGISTRY.items() if known.check is not None},
}


def check_operands(query: TypeQuery) -> None:
    """Raise `ModelError` when operands or attributes of the operator certainly do not fit."""
    why = why_malformed(query.op, query.types, query.n_outputs, query.attrs)
    if why:
        raise ModelError(f"{query.op}{why}")
    rule = RULES.get(query.op)
    try:
        check_choices(query.op, query.attrs)
        if rule is not None:
            rule(query)
    except ModelError as error:
        raise naming(query.op, error) from error


def check_indices(query: TypeQuery) -> None:
    """Raise `ModelError` when a constant index of the operator is outside its axis."""
    indexing = REGISTRY[query.op].indexing if query.op in REGISTRY else None
    if indexing is None or indexing.axes is IndexedAxes.FIRST:
        return
    x, value = shape_of(query, 0), query.values[1]
    if indexing.axes is IndexedAxes.ATTRIBUTE:
        axis = get_int(query.attrs, "axis", 0)
        if x is not None and -len(x) <= axis < len(x):
            _inside(query, value, x[axis])
    elif x is not None and isinstance(value, np.ndarray) and value.ndim:
        batch = get_int(query.attrs, "batch_dims", 0)
        for place in range(min(value.shape[-1], len(x) - batch)):
            _inside(query, value[..., place], x[batch + place])


def _inside(query: TypeQuery, value: Value | None, size: Dim) -> None:
    """Constant indices into an axis of `size`, which may count from its end."""
    if (
        not isinstance(value, np.ndarray)
        or value.dtype.kind not in "iu"
        or not value.size
        or not isinstance(size, int)
    ):
        return
    low, high = int(value.min()), int(value.max())
    if low < -size or high >= size:
        raise ModelError(
            f"{query.op}: index {low if low < -size else high} is outside an axis of {size}"
        )

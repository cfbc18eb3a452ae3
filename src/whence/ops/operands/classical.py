"""Classical machine learning: operators whose attributes say which features they read."""

from __future__ import annotations

from collections.abc import Mapping

from whence.errors import ModelError
from whence.ops.attributes import get_ints
from whence.ops.definition import Check, TypeQuery
from whence.ops.operands.checks import demand_rank, exceeds, shape_of


def _trees(query: TypeQuery) -> None:
    """Rows of features, or one row, of which each node of a tree looks at one."""
    demand_rank(query, 0, 0, 2)
    x, features = shape_of(query, 0), get_ints(query.attrs, "nodes_featureids", ())
    if x is None or not features:
        return
    columns = x[-1] if x else 1
    if min(features) < 0 or exceeds(max(features) + 1, columns):
        wrong = min(features) if min(features) < 0 else max(features)
        raise ModelError(f"a tree asks for feature {wrong} of {columns}")


_FORMS = ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor")
RULES: Mapping[str, Check] = {f"ai.onnx.ml::{form}": _trees for form in _FORMS}

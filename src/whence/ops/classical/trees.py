"""Tree ensembles of `ai.onnx.ml`: all rows walk down all trees together, one level at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_floats, get_int, get_ints, get_str, get_strs
from whence.ops.classical.linear_models import class_labels, classical, rows_of, rows_type
from whence.ops.classical.scores import pair, transform, transform_single
from whence.ops.definition import Attrs, Call, OpDef, TypeQuery, Value
from whence.ops.operands.checks import demand_rank, exceeds, shape_of
from whence.ops.precision import tensor
from whence.ops.types.type_rules import tensor_type
from whence.types import DType, TensorType, ValueType

_MODES = (
    "BRANCH_LEQ",
    "BRANCH_LT",
    "BRANCH_GTE",
    "BRANCH_GT",
    "BRANCH_EQ",
    "BRANCH_NEQ",
    "BRANCH_MEMBER",
    "LEAF",
)
_LEAF = _MODES.index("LEAF")
_MEMBER = _MODES.index("BRANCH_MEMBER")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True, slots=True)
class Contributions:
    """What leaves add to targets, as parallel arrays sorted by leaf."""

    leaf: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    targets: int
    """How many targets there are."""

    @classmethod
    def sorted(
        cls, leaf: np.ndarray, target: np.ndarray, weight: np.ndarray, targets: int
    ) -> Contributions:
        if target.size and not 0 <= target.min() <= target.max() < targets:
            raise ModelError(f"a leaf contributes to target {int(target.max())} of {targets}")
        order = np.argsort(leaf, kind="stable")
        return cls(leaf[order], target[order], weight[order].astype(np.float64), targets)


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Trees as parallel arrays over nodes. A leaf points to itself, so that finished rows stay."""

    roots: np.ndarray
    feature: np.ndarray
    split: np.ndarray
    mode: np.ndarray
    on_true: np.ndarray
    on_false: np.ndarray
    missing_is_true: np.ndarray
    members: dict[int, np.ndarray]
    """For nodes that test membership, the set."""
    contributions: Contributions

    def leaves(self, x: np.ndarray) -> np.ndarray:
        """The leaf [N, T] that each row reaches in each tree."""
        at = np.broadcast_to(self.roots, (x.shape[0], self.roots.size)).copy()
        if int(self.feature.max(initial=0)) >= x.shape[1]:
            raise ModelError(f"a tree asks for feature {int(self.feature.max())} of {x.shape[1]}")
        rows = np.arange(x.shape[0])[:, np.newaxis]
        # A tree has no path longer than its nodes; a longer walk means that the model has a cycle.
        for _ in range(self.mode.size + 1):
            mode = self.mode[at]
            if (mode == _LEAF).all():
                return at
            at = np.where(
                self._is_true(x[rows, self.feature[at]], at, mode),
                self.on_true[at],
                self.on_false[at],
            )
        raise ModelError("the trees have a cycle")

    def _is_true(self, value: np.ndarray, at: np.ndarray, mode: np.ndarray) -> np.ndarray:
        split = self.split[at]
        tests = [
            value <= split,
            value < split,
            value >= split,
            value > split,
            value == split,
            value != split,
        ]
        result: np.ndarray = np.choose(np.minimum(mode, 5), tests)
        for node, members in self.members.items():
            result = np.where(at == node, np.isin(value, members), result)
        return np.where(
            np.isnan(value),
            self.missing_is_true[at] | (result & (mode == _MODES.index("BRANCH_NEQ"))),
            result,
        )

    def scores(self, x: np.ndarray, aggregate: str) -> tuple[np.ndarray, np.ndarray]:
        """The aggregated weights [N, targets] of the leaves reached, and which have any."""
        start = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
        combine = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
        parts = self.contributions
        total = np.full((x.shape[0], parts.targets), start)
        seen = np.zeros((x.shape[0], parts.targets), np.bool_)
        rows, nodes = np.arange(x.shape[0]), np.arange(self.mode.size)
        first = np.searchsorted(parts.leaf, nodes, "left")
        end = np.searchsorted(parts.leaf, nodes, "right")
        for leaf in self.leaves(x).T:
            # A leaf may contribute to several targets: each pass takes one contribution of every
            # row that has one left.
            for offset in range(int((end - first)[leaf].max(initial=0))):
                here = first[leaf] + offset < end[leaf]
                entry = (first[leaf] + offset)[here]
                place = (rows[here], parts.target[entry])
                total[place] = combine(total[place], parts.weight[entry])
                seen[place] = True
        if aggregate == "AVERAGE":
            total /= max(self.roots.size, 1)
        return np.where(seen, total, 0), seen


def _number_array(attrs: Attrs, name: str) -> np.ndarray:
    """A list of numbers given as floats or, under the same name with `_as_tensor`, as a tensor."""
    given = attrs.get(f"{name}_as_tensor")
    if isinstance(given, np.ndarray):
        return given.reshape(-1)
    return np.array(get_floats(attrs, name), np.float32)


def _from_lists(call: Call, prefix: str, targets: int) -> Ensemble:
    """The older form: nodes by tree and number, leaves among them, contributions in lists."""
    attrs = call.attrs
    names = list(
        zip(get_ints(attrs, "nodes_treeids"), get_ints(attrs, "nodes_nodeids"), strict=True)
    )
    place = {name: at for at, name in enumerate(names)}
    try:
        mode = np.array([_MODES.index(name) for name in get_strs(attrs, "nodes_modes")], np.int64)
        on_true, on_false = (
            np.array(
                [
                    at if mode[at] == _LEAF else place[names[at][0], child]
                    for at, child in enumerate(get_ints(attrs, f"nodes_{side}nodeids"))
                ],
                np.int64,
            )
            for side in ("true", "false")
        )
        homes = zip(
            get_ints(attrs, f"{prefix}_treeids"), get_ints(attrs, f"{prefix}_nodeids"), strict=True
        )
        weight_node = np.array([place[home] for home in homes], np.int64)
    except (KeyError, ValueError) as error:
        raise ModelError(f"the trees are inconsistent at {error}") from None
    missing = np.array(
        get_ints(attrs, "nodes_missing_value_tracks_true") or (0,) * len(names), np.bool_
    )
    first: dict[int, int] = {}
    for at, (tree, _) in enumerate(names):
        first.setdefault(tree, at)
    return Ensemble(
        roots=np.array(list(first.values()), np.int64),
        feature=np.array(get_ints(attrs, "nodes_featureids"), np.int64),
        split=_number_array(attrs, "nodes_values"),
        mode=mode,
        on_true=on_true,
        on_false=on_false,
        missing_is_true=missing,
        members={},
        contributions=Contributions.sorted(
            weight_node,
            np.array(get_ints(attrs, f"{prefix}_ids"), np.int64),
            _number_array(attrs, f"{prefix}_weights"),
            targets,
        ),
    )


def _inputs(call: Call) -> np.ndarray:
    x = tensor(call, 0)
    if x.ndim > 2:
        raise ModelError(f"input 0 must be a matrix, found rank {x.ndim}")
    return rows_of(x if x.dtype.kind == "f" else x.astype(np.float32))


def _base_values(call: Call, scores: np.ndarray) -> np.ndarray:
    """What the scores [N, C] begin with: nothing, a number for all, or one for each."""
    base = _number_array(call.attrs, "base_values")
    if base.size not in {0, 1, scores.shape[1]}:
        raise ModelError(f"{base.size} base_values do not fit {scores.shape[1]} scores")
    return base


def _regressor(call: Call) -> Value:
    ensemble = _from_lists(call, "target", get_int(call.attrs, "n_targets", 1))
    scores, _ = ensemble.scores(_inputs(call), get_str(call.attrs, "aggregate_function", "SUM"))
    base = _base_values(call, scores)
    scores = (scores + base if base.size else scores).astype(np.float32)
    return transform_single(scores, get_str(call.attrs, "post_transform", "NONE"))


def _classifier(call: Call) -> tuple[Value, Value]:
    labels = class_labels(call.attrs, "classlabels_int64s")
    kind = get_str(call.attrs, "post_transform", "NONE")
    ensemble = _from_lists(call, "class", max(len(labels), 1))
    scores, seen = ensemble.scores(_inputs(call), "SUM")
    base = _base_values(call, scores).astype(np.float64)
    if len(labels) != 2:
        if base.size:
            scores, seen = scores + base, np.ones_like(seen)
        best = np.where(seen, scores, -np.inf).argmax(axis=1)
        return labels[best], transform(scores.astype(np.float32), kind)
    return _two_classes(ensemble, labels, kind, scores, seen, base)


def _two_classes(
    ensemble: Ensemble,
    labels: np.ndarray,
    kind: str,
    scores: np.ndarray,
    seen: np.ndarray,
    base: np.ndarray,
) -> tuple[Value, Value]:
    """ONNX Runtime's rules for two classes, where a model may give one score for both."""
    lone = ~seen[:, 1] if base.size < 2 else np.zeros(len(scores), np.bool_)
    if base.size == 2:
        second = np.where(seen[:, 1], base[1] + scores[:, 0], scores[:, 1] + base[1])
        scores = np.stack([np.where(seen[:, 1], -second, scores[:, 0] + base[0]), second], axis=1)
    elif base.size:
        scores = scores + np.array([base[0], 0.0])
    deciding = np.where(seen[:, 1], scores[:, 1], np.where(seen[:, 0], scores[:, 0], 0))
    one_score = np.unique(ensemble.contributions.target).size == 1
    shares = one_score and bool((ensemble.contributions.weight >= 0).all())
    winners = labels[(deciding > (0.5 if shares else 0)).astype(np.int64)]
    both = transform(np.where(seen, scores, 0).astype(np.float32), kind)
    return winners, np.where(
        lone[:, np.newaxis], pair(scores[:, 0].astype(np.float32), kind, mixed=not shares), both
    )


def _tree_ensemble(call: Call) -> Value:
    """The newer form: leaves apart from inner nodes, everything by index."""
    attrs, x = call.attrs, _inputs(call)
    inner = len(get_ints(attrs, "nodes_featureids"))
    weights = attrs.get("leaf_weights")
    targets = np.array(get_ints(attrs, "leaf_targetids"), np.int64)
    modes, splits = attrs.get("nodes_modes"), attrs.get("nodes_splits")
    if (
        not isinstance(weights, np.ndarray)
        or not isinstance(modes, np.ndarray)
        or not isinstance(splits, np.ndarray)
    ):
        raise ModelError("nodes_modes, nodes_splits and leaf_weights must be tensors")
    leaves = np.arange(inner, inner + targets.size)

    def children(side: str) -> np.ndarray:
        ids, leaf = (
            np.array(get_ints(attrs, name), np.int64)
            for name in (f"nodes_{side}nodeids", f"nodes_{side}leafs")
        )
        return np.concatenate([np.where(leaf != 0, ids + inner, ids), leaves])

    def padded(values: np.ndarray, fill: float) -> np.ndarray:
        return np.concatenate([values.reshape(-1), np.full(targets.size, fill, values.dtype)])

    missing = np.array(get_ints(attrs, "nodes_missing_value_tracks_true") or (0,) * inner, np.bool_)
    ensemble = Ensemble(
        roots=np.array(get_ints(attrs, "tree_roots"), np.int64),
        feature=padded(np.array(get_ints(attrs, "nodes_featureids"), np.int64), 0),
        split=padded(splits, 0),
        mode=padded(modes.astype(np.int64), _LEAF),
        on_true=children("true"),
        on_false=children("false"),
        missing_is_true=padded(missing, 0),
        members=_members(attrs, modes),
        contributions=Contributions.sorted(
            leaves, targets, weights.reshape(-1), get_int(attrs, "n_targets", 1)
        ),
    )
    scores, _ = ensemble.scores(x, _AGGREGATES[get_int(attrs, "aggregate_function", 1)])
    return transform_single(
        scores.astype(np.float32), _TRANSFORMS[get_int(attrs, "post_transform", 0)]
    ).astype(x.dtype)


def _members(attrs: Attrs, modes: np.ndarray) -> dict[int, np.ndarray]:
    """The sets that membership nodes test; the model lists them with a NaN after each."""
    values = attrs.get("membership_values")
    nodes = np.flatnonzero(modes.reshape(-1) == _MEMBER)
    if not isinstance(values, np.ndarray) or not nodes.size:
        return {}
    values = values.reshape(-1)
    ends = [*np.flatnonzero(np.isnan(values)), values.size]
    starts = [0, *(end + 1 for end in ends)]
    return {
        int(node): values[start:end] for node, start, end in zip(nodes, starts, ends, strict=False)
    }


def _classifier_type(query: TypeQuery) -> tuple[ValueType, ...]:
    labels = class_labels(query.attrs, "classlabels_int64s")
    scores = rows_type(query, max(len(labels), 1))
    assert scores.shape is not None
    return TensorType(DType.of(labels), scores.shape[:1]), scores


def _targets_type(query: TypeQuery) -> TensorType:
    return rows_type(query, get_int(query.attrs, "n_targets", 1))


def _tree_ensemble_type(query: TypeQuery) -> TensorType:
    return TensorType(tensor_type(query, 0).dtype, _targets_type(query).shape)


def _check_features(query: TypeQuery) -> None:
    """Rows of features, or one row, of which each node of a tree looks at one."""
    demand_rank(query, 0, 0, 2)
    x, features = shape_of(query, 0), get_ints(query.attrs, "nodes_featureids", ())
    if x is None or not features:
        return
    columns = x[-1] if x else 1
    if min(features) < 0 or exceeds(max(features) + 1, columns):
        wrong = min(features) if min(features) < 0 else max(features)
        raise ModelError(f"a tree asks for feature {wrong} of {columns}")


OPS: tuple[OpDef, ...] = (
    classical("TreeEnsemble", _tree_ensemble, _tree_ensemble_type, _check_features),
    classical("TreeEnsembleClassifier", _classifier, _classifier_type, _check_features),
    classical("TreeEnsembleRegressor", _regressor, _targets_type, _check_features),
)

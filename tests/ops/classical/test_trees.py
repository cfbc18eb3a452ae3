from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.classical.oracle import check, run
from whence.errors import ModelError

TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]
X = np.random.default_rng(5).standard_normal((40, 3)).astype(np.float32)
GAPS = np.where(np.random.default_rng(6).random((40, 3)) < 0.3, np.float32(np.nan), X)


def forest(
    mode: str = "BRANCH_LEQ", trees: int = 5, depth: int = 3, seed: int = 0
) -> dict[str, Any]:
    """Full binary trees with random splits, and a list of (tree, node) of all leaves."""
    rng = np.random.default_rng(seed)
    nodes = 2 ** (depth + 1) - 1
    inner = 2**depth - 1
    return {
        "nodes_treeids": tuple(tree for tree in range(trees) for _ in range(nodes)),
        "nodes_nodeids": tuple(range(nodes)) * trees,
        "nodes_featureids": tuple(int(value) for value in rng.integers(0, 3, nodes * trees)),
        "nodes_values": tuple(
            float(value) for value in rng.standard_normal(nodes * trees).astype(np.float32)
        ),
        "nodes_modes": ((mode,) * inner + ("LEAF",) * (nodes - inner)) * trees,
        "nodes_truenodeids": tuple(2 * node + 1 if node < inner else 0 for node in range(nodes))
        * trees,
        "nodes_falsenodeids": tuple(2 * node + 2 if node < inner else 0 for node in range(nodes))
        * trees,
        "nodes_missing_value_tracks_true": tuple(
            int(value) for value in rng.integers(0, 2, nodes * trees)
        ),
    }


def contributions(
    prefix: str, targets: int, positive: bool = False, trees: int = 5, depth: int = 3
) -> dict[str, Any]:
    rng = np.random.default_rng(9)
    leaves = [
        (tree, node, target)
        for tree in range(trees)
        for node in range(2**depth - 1, 2 ** (depth + 1) - 1)
        for target in range(targets)
    ]
    weights = rng.standard_normal(len(leaves)).astype(np.float32)
    return {
        f"{prefix}_treeids": tuple(tree for tree, _, _ in leaves),
        f"{prefix}_nodeids": tuple(node for _, node, _ in leaves),
        f"{prefix}_ids": tuple(target for _, _, target in leaves),
        f"{prefix}_weights": tuple(
            float(weight) for weight in (np.abs(weights) / 8 if positive else weights)
        ),
    }


@pytest.mark.parametrize(
    "mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
)
@pytest.mark.parametrize("x", [X, GAPS], ids=["full", "gaps"])
def test_branches(mode: str, x: np.ndarray) -> None:
    check("TreeEnsembleRegressor", x, n_targets=1, **forest(mode), **contributions("target", 1))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 2])
def test_regressor(targets: int, kind: str, aggregate: str) -> None:
    rest = {**forest(), **contributions("target", targets), "base_values": (0.25, 0.5)[:targets]}
    check(
        "TreeEnsembleRegressor",
        X,
        n_targets=targets,
        post_transform=kind,
        aggregate_function=aggregate,
        **rest,
    )


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_classifier_of_three(kind: str, dtype: type) -> None:
    rest = {**forest(), **contributions("class", 3), "classlabels_strings": ("a", "b", "c")}
    check("TreeEnsembleClassifier", (X * 2).astype(dtype), n_outputs=2, post_transform=kind, **rest)
    check(
        "TreeEnsembleClassifier",
        (X * 2).astype(dtype),
        n_outputs=2,
        post_transform=kind,
        base_values=(0.1, 0.2, -0.3),
        **rest,
    )


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("given", [1, 2])
@pytest.mark.parametrize("base", [(), (0.25,), (0.25, 0.5)], ids=len)
def test_classifier_of_two(given: int, positive: bool, kind: str, base: tuple[float, ...]) -> None:
    rest = {**forest(), **contributions("class", given, positive), "classlabels_int64s": (0, 1)}
    if base:
        rest["base_values"] = base
    check("TreeEnsembleClassifier", X, n_outputs=2, post_transform=kind, **rest)


def test_inconsistent_trees() -> None:
    broken = forest() | {"nodes_truenodeids": (99,) * 75}
    with pytest.raises(ModelError, match="TreeEnsembleRegressor: the trees are inconsistent"):
        run("TreeEnsembleRegressor", X, n_targets=1, **broken, **contributions("target", 1))
    with pytest.raises(
        ModelError, match="TreeEnsembleRegressor: a leaf contributes to target 1 of 1"
    ):
        run("TreeEnsembleRegressor", X, n_targets=1, **forest(), **contributions("target", 2))
    with pytest.raises(ModelError, match="TreeEnsembleRegressor: a tree asks for feature 2 of 1"):
        run(
            "TreeEnsembleRegressor", X[:, :1], n_targets=1, **forest(), **contributions("target", 1)
        )


def test_cycle() -> None:
    broken = forest() | {"nodes_truenodeids": (0,) * 75, "nodes_falsenodeids": (0,) * 75}
    with pytest.raises(ModelError, match="TreeEnsembleRegressor: the trees have a cycle"):
        run("TreeEnsembleRegressor", X, n_targets=1, **broken, **contributions("target", 1))


def test_sets() -> None:
    result = run(
        "TreeEnsemble",
        np.array([[1.0], [2.0], [3.0], [np.nan]], np.float32),
        tree_roots=(0,),
        nodes_featureids=(0, 0),
        nodes_splits=np.array([0, 2.5], np.float32),
        nodes_modes=np.array([6, 0], np.uint8),
        nodes_truenodeids=(0, 1),
        nodes_falsenodeids=(1, 2),
        nodes_trueleafs=(1, 1),
        nodes_falseleafs=(0, 1),
        membership_values=np.array([1.0, 3.0], np.float32),
        leaf_targetids=(0, 1, 1),
        leaf_weights=np.array([10, 20, 30], np.float32),
        n_targets=2,
    )
    assert result.tolist() == [[10, 0], [0, 20], [10, 0], [0, 30]]

"""Linear models and support vector machines of `ai.onnx.ml`."""

from __future__ import annotations

import itertools

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_floats, get_int, get_ints, get_str, get_strs
from whence.ops.classical.scores import pair, transform, transform_single
from whence.ops.definition import Attrs, Call, Check, Infer, OpDef, Reference, TypeQuery, Value
from whence.ops.formula import sigmoid
from whence.ops.operand import UNARY
from whence.ops.precision import tensor
from whence.ops.types.type_rules import tensor_type
from whence.types import Dim, DType, TensorType


def rows_of(x: np.ndarray) -> np.ndarray:
    """An array as a matrix; a vector is one row."""
    return x.reshape(1 if x.ndim < 2 else x.shape[0], -1)


def features(call: Call) -> np.ndarray:
    """Input 0 as float32 of shape [N, F]."""
    return rows_of(tensor(call, 0).astype(np.float32))


def class_labels(attrs: Attrs, integers: str = "classlabels_ints") -> np.ndarray:
    """The labels of a classifier: text when the model gives text, else whole numbers."""
    texts = get_strs(attrs, "classlabels_strings")
    return np.array(texts, np.object_) if texts else np.array(get_ints(attrs, integers), np.int64)


def floats(attrs: Attrs, name: str) -> np.ndarray:
    return np.array(get_floats(attrs, name), np.float32)


def linear_scores(call: Call, rows: int) -> np.ndarray:
    """X · Wᵀ + b with one row of `coefficients` for each of `rows` results."""
    x = features(call)
    weights = floats(call.attrs, "coefficients")
    offsets = floats(call.attrs, "intercepts")
    if weights.size != rows * x.shape[1] or offsets.size not in {0, rows}:
        raise ModelError(
            f"{weights.size} coefficients do not fit {rows} results of {x.shape[1]} features"
        )
    scores = x @ weights.reshape(rows, -1).T
    return np.asarray(scores + offsets if offsets.size else scores)


def _linear_regressor(call: Call) -> Value:
    scores = linear_scores(call, get_int(call.attrs, "targets", 1))
    return transform_single(scores, get_str(call.attrs, "post_transform", "NONE"))


def _linear_classifier(call: Call) -> tuple[Value, Value]:
    labels, kind = class_labels(call.attrs), get_str(call.attrs, "post_transform", "NONE")
    rows = len(get_floats(call.attrs, "intercepts")) or len(labels)
    scores = linear_scores(call, rows)
    if rows == 1 and len(labels) == 2:
        return labels[(scores[:, 0] > 0).astype(np.int64)], pair(scores[:, 0], kind, mixed=False)
    return labels[scores.argmax(axis=1)], transform(scores, kind)


def kernel(call: Call, x: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The similarity [N, V] of each row of `x` to each of `vectors`."""
    kind = get_str(call.attrs, "kernel_type", "LINEAR")
    gamma, coef, degree = (*get_floats(call.attrs, "kernel_params"), 0.0, 0.0, 0.0)[:3]
    product = x @ vectors.T
    if kind == "LINEAR":
        return np.asarray(product)
    if kind == "POLY":
        return np.asarray((gamma * product + coef) ** degree)
    if kind == "SIGMOID":
        return np.asarray(np.tanh(gamma * product + coef))
    if kind != "RBF":
        raise ModelError(f"unknown kernel_type {kind!r}")
    # Differences, not |x|² - 2xv + |v|², which cancels badly when they are close.
    return np.exp(
        -gamma * np.stack([((x - vector) ** 2).sum(axis=1) for vector in vectors], axis=1)
    )


def _svm_regressor(call: Call) -> Value:
    x, weights, rho = features(call), floats(call.attrs, "coefficients"), floats(call.attrs, "rho")
    count = get_int(call.attrs, "n_supports", 0)
    vectors = (
        floats(call.attrs, "support_vectors").reshape(count, -1)
        if count
        else weights.reshape(1, -1)
    )
    similar = kernel(call, x, vectors)
    value = (similar @ weights if count else similar[:, 0]) + rho[0]
    if get_int(call.attrs, "one_class", 0):
        value = np.where(value > 0, 1, -1)
    return value.reshape(-1, 1).astype(np.float32)


def _svm_classifier(call: Call) -> tuple[Value, Value]:
    x = features(call)
    labels = class_labels(call.attrs)
    kind = get_str(call.attrs, "post_transform", "NONE")
    weights = floats(call.attrs, "coefficients")
    rho = floats(call.attrs, "rho")
    sizes = get_ints(call.attrs, "vectors_per_class")
    if not get_floats(call.attrs, "support_vectors"):
        scores = kernel(call, x, weights.reshape(len(labels), -1)) + rho[0]
        return labels[scores.argmax(axis=1)], transform(scores, kind)
    total, classes = sum(sizes), len(sizes)
    similar = kernel(call, x, floats(call.attrs, "support_vectors").reshape(total, -1))
    weights = weights.reshape(classes - 1, total)
    parts = [
        slice(end - size, end) for size, end in zip(sizes, itertools.accumulate(sizes), strict=True)
    ]
    pairs = list(itertools.combinations(range(classes), 2))
    # Row j-1 weighs a class against class j above it, row i against class i below it.
    duels = (
        np.stack(
            [
                similar[:, parts[i]] @ weights[j - 1, parts[i]]
                + similar[:, parts[j]] @ weights[i, parts[j]]
                for i, j in pairs
            ],
            axis=1,
        )
        + rho
    )
    votes = np.zeros((x.shape[0], classes), np.int64)
    for at, (i, j) in enumerate(pairs):
        votes[:, i] += duels[:, at] > 0
        votes[:, j] += duels[:, at] <= 0
    winners = labels[votes.argmax(axis=1)]
    slopes, offsets = floats(call.attrs, "prob_a"), floats(call.attrs, "prob_b")
    if slopes.size:
        chances = np.clip(
            1 - sigmoid(duels.astype(np.float64) * slopes + offsets),
            _SMALLEST_CHANCE,
            1 - _SMALLEST_CHANCE,
        )
        return winners, transform(_couple(chances, pairs, classes).astype(np.float32), kind)
    if classes == 2:
        return winners, pair(duels[:, 0], kind, mixed=kind == "NONE")
    return winners, transform(duels, kind)


_SMALLEST_CHANCE = 1e-7


def _couple(chances: np.ndarray, pairs: list[tuple[int, int]], classes: int) -> np.ndarray:
    """Class probabilities [N, C] from the chances of each class in each duel, by the second method
    of Wu, Lin and Weng (2004).

    Minimises Σ (r_ji p_i - r_ij p_j)² over probabilities by coordinate descent, stopping where
    LIBSVM does.
    """
    rows = chances.shape[0]
    r = np.zeros((rows, classes, classes))
    for at, (i, j) in enumerate(pairs):
        r[:, i, j], r[:, j, i] = chances[:, at], 1 - chances[:, at]
    q = -np.swapaxes(r, 1, 2) * r
    diagonal = np.arange(classes)
    q[:, diagonal, diagonal] = (r**2).sum(axis=1)
    p = np.full((rows, classes), 1 / classes)
    for _ in range(max(100, classes)):
        qp = np.einsum("nij,nj->ni", q, p)
        value = (p * qp).sum(axis=1)
        active = np.abs(qp - value[:, np.newaxis]).max(axis=1) >= 0.005 / classes
        if not active.any():
            break
        for t in range(classes):
            step = np.where(active, (value - qp[:, t]) / q[:, t, t], 0)
            p[:, t] += step
            value = (value + step * (step * q[:, t, t] + 2 * qp[:, t])) / (1 + step) ** 2
            qp = (qp + step[:, np.newaxis] * q[:, t]) / (1 + step)[:, np.newaxis]
            p /= (1 + step)[:, np.newaxis]
    return p


def rows_type(query: TypeQuery, columns: Dim) -> TensorType:
    """Float scores: a row for each row of input 0."""
    data = tensor_type(query, 0)
    rows: Dim = None if data.shape is None else data.shape[0] if len(data.shape) > 1 else 1
    return TensorType(DType.F32, (rows, columns))


def classical(
    name: str, reference: Reference, infer: Infer | None = None, check: Check | None = None
) -> OpDef:
    """An operator of `ai.onnx.ml` with one operand."""
    name = f"ai.onnx.ml::{name}"
    return OpDef(name, infer=infer, reference=reference, operands=UNARY, check=check)


def _linear_classes(query: TypeQuery) -> tuple[TensorType, TensorType]:
    labels = class_labels(query.attrs)
    rows = len(get_floats(query.attrs, "intercepts")) or len(labels)
    scores = rows_type(query, 2 if rows == 1 and len(labels) == 2 else rows)
    assert scores.shape is not None
    return TensorType(DType.of(labels), scores.shape[:1]), scores


def _linear_type(query: TypeQuery) -> TensorType:
    return rows_type(query, get_int(query.attrs, "targets", 1))


OPS: tuple[OpDef, ...] = (
    classical("LinearClassifier", _linear_classifier, _linear_classes),
    classical("LinearRegressor", _linear_regressor, _linear_type),
    classical("SVMClassifier", _svm_classifier),
    classical("SVMRegressor", _svm_regressor, lambda query: rows_type(query, 1)),
)

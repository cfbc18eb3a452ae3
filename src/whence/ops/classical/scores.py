"""What classical classifiers and regressors do to their raw scores before they hand them out, as
ONNX Runtime does it.

The standard names the transformations and no more; the treatment of a lone score of two classes is
ONNX Runtime's.
"""

from __future__ import annotations

import math

import numpy as np

from whence.errors import ModelError
from whence.ops.formula import sigmoid

_NEARLY_ZERO = 1e-7


def transform(scores: np.ndarray, kind: str) -> np.ndarray:
    """Scores of shape [N, C], two or more for each row, after `post_transform`."""
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return sigmoid(scores)
    if kind == "PROBIT":
        return probit(scores)
    if kind not in {"SOFTMAX", "SOFTMAX_ZERO"}:
        raise ModelError(f"unknown post_transform {kind!r}")
    grown = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    if kind == "SOFTMAX_ZERO":
        # A score of zero stands for "no opinion" and stays zero.
        grown = np.where(np.abs(scores) > _NEARLY_ZERO, grown, 0).astype(scores.dtype)
    return np.asarray(grown / grown.sum(axis=1, keepdims=True))


def transform_single(scores: np.ndarray, kind: str) -> np.ndarray:
    """Scores of shape [N, C] of a regressor: a lone one is changed by PROBIT only."""
    return scores if scores.shape[1] == 1 and kind != "PROBIT" else transform(scores, kind)


def pair(score: np.ndarray, kind: str, mixed: bool) -> np.ndarray:
    """The scores [N, 2] of both classes from the one score of the second. `mixed` scores may be
    negative, others are shares of 1.
    """
    if kind == "LOGISTIC":
        return np.stack([sigmoid(-score), sigmoid(score)], axis=1)
    first = -score if mixed else 1 - score
    return np.stack([first, score], axis=1)


def probit(share: np.ndarray) -> np.ndarray:
    """√2 · erf⁻¹(2p - 1) by Winitzki's approximation, which ONNX Runtime uses too."""
    a = 0.147
    x = 2 * share - 1
    log = np.log((1 - x) * (1 + x))
    middle = 2 / (math.pi * a) + log / 2
    return np.asarray(
        math.sqrt(2) * np.sign(x) * np.sqrt(np.sqrt(middle * middle - log / a) - middle)
    ).astype(share.dtype)

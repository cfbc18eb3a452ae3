"""Operands and attributes that do not fit their operator are refused, whatever the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whence.errors import ModelError
from whence.kernels.group import RULES as ELEMENT_RULES
from whence.kernels.lower import FAMILIES, VIEWS
from whence.ops.definition import TypeQuery
from whence.ops.operands.rules import RULES
from whence.ops.types.inference import infer
from whence.types import DType, TensorType


def test_every_operator_with_a_kernel_has_a_rule() -> None:
    """Kernels read as much of an operand as the operator says there is. Whoever writes a kernel
    writes down what it relies on, or that inference checks it all (`by_types`).
    """
    native = {*FAMILIES, *ELEMENT_RULES, *VIEWS}
    without = sorted(native - set(RULES))
    assert not without, f"{without}: `check=` of their definitions, from `ops/operands/checks.py`"


F, N, U, B = DType.F32, DType.I64, DType.U8, DType.BOOL


def t(dtype: DType, *shape: int) -> TensorType:
    return TensorType(dtype, shape)


Case = tuple[str, list[Any], dict[str, Any], str]
X = t(F, 3, 4)
IMAGE = t(F, 1, 4, 8, 8)
Q3, K3 = t(F, 2, 3, 48), t(F, 2, 6, 24)
Q4, K4 = t(F, 1, 2, 4, 8), t(F, 1, 2, 6, 8)
HEADS = {"q_num_heads": 3, "kv_num_heads": 3}
SERIES = t(F, 5, 2, 3)
ROTARY = t(F, 1, 2, 5, 8)
CACHE = t(F, 2, 1, 4, 5)
WORDS = t(DType.I32, 2, 6)


def grams(**changed: Any) -> dict[str, Any]:
    """Two words and three pairs of words, each counted by itself."""
    return {
        "mode": "TF",
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": 0,
        "ngram_counts": (0, 2),
        "ngram_indexes": (0, 1, 2, 3, 4),
        "pool_int64s": (1, 2, 3, 4, 5, 6, 7, 8),
        **changed,
    }


SIZE = np.array([2, 3, 4, 5], np.int64)
TREES: dict[str, Any] = {
    **dict.fromkeys(("tree_roots", "leaf_targetids", "nodes_featureids"), (0,)),
    **dict.fromkeys(("nodes_truenodeids", "nodes_falsenodeids"), (0,)),
    **dict.fromkeys(("nodes_trueleafs", "nodes_falseleafs"), (1,)),
    **dict.fromkeys(("leaf_weights", "nodes_splits"), np.ones(1, np.float32)),
    "nodes_modes": np.zeros(1, np.uint8),
}
REFUSED: dict[str, Case] = {
    "offsets of fewer places": (
        "DeformConv",
        [t(F, 1, 1, 3, 3), t(F, 1, 1, 2, 2), t(F, 1, 8, 2, 2)],
        {"kernel_shape": (2, 2), "pads": (0, 0, 0, 16)},
        "the offsets is",
    ),
    **{
        f"{op} of integers": (op, [t(DType.I8, 3)], {}, "floating-point numbers")
        for op in (
            "Sqrt",
            "Exp",
            "Log",
            "Sin",
            "Sigmoid",
            "Softplus",
            "Reciprocal",
            "Round",
            "Mish",
        )
    },
    **{f"{op} of truths": (op, [t(B, 3)] * 2, {}, "numbers") for op in ("Sub", "Div", "Mod")},
    "the sign of a truth": ("Sign", [t(B, 3)], {}, "numbers"),
    "bits of two widths": (
        "BitCast",
        [t(DType.I8, 3)],
        {"to": 1},
        "i8 and f32 do not have the same",
    ),
    "a map of three axes": ("AffineGrid", [t(F, 2, 3, 4), SIZE], {}, "theta is"),
    "three sizes": ("AffineGrid", [t(F, 2, 2, 3), SIZE[:3]], {}, "size has 3 numbers"),
    "sizes below nothing": ("AffineGrid", [t(F, 2, 2, 3), -SIZE + 4], {}, "not be negative"),
    "places of three axes": ("GridSample", [IMAGE, t(F, 1, 5, 5, 3)], {}, "the grid is"),
    "other places": ("MaxUnpool", [IMAGE, t(N, 1, 4, 8, 7)], {"kernel_shape": (2, 2)}, "maxima is"),
    "regions of three": ("RoiAlign", [IMAGE, t(F, 2, 3), t(N, 2)], {}, "rois is"),
    "images of regions": ("RoiAlign", [IMAGE, t(F, 2, 4), t(N, 3)], {}, "batch_indices is"),
    "regions of no rows": (
        "RoiAlign",
        [IMAGE, t(F, 2, 4), t(N, 2)],
        {"output_height": 0},
        "becomes 0 x 1 elements",
    ),
    "regions of no columns": (
        "MaxRoiPool",
        [IMAGE, t(F, 2, 5)],
        {"pooled_shape": (2, 0)},
        "becomes 2 x 0 elements",
    ),
    "boxes of five": ("NonMaxSuppression", [t(F, 1, 6, 5), t(F, 1, 1, 6)], {}, "boxes is"),
    "scores of others": ("NonMaxSuppression", [t(F, 1, 6, 4), t(F, 1, 1, 7)], {}, "boxes is"),
    "no square": ("Det", [t(F, 2, 3, 4)], {}, "not square"),
    "no truth": ("Compress", [X, t(N, 3)], {}, "truth values"),
    "target": ("NegativeLogLikelihoodLoss", [X, t(N, 4)], {}, "the target is"),
    "weights of classes": ("SoftmaxCrossEntropyLoss", [X, t(N, 3), t(F, 3)], {}, "the weight is"),
    "three parts of a number": ("DFT", [t(F, 1, 8, 3)], {"axis": 1}, "the last axis"),
    "a block that does not divide": (
        "Col2Im",
        [t(F, 1, 5, 5), np.array([5, 5]), np.array([1, 2])],
        {},
        "cannot be divided",
    ),
    "channels of codes": ("ConvInteger", [t(U, 1, 4, 8, 8), t(U, 2, 3, 3, 3)], {}, "do not fit"),
    "slopes of integers": ("LeakyRelu", [t(N, 3)], {"alpha": 0.5}, "floating-point numbers"),
    "parts of integers": ("HardSwish", [t(DType.I32, 3)], {}, "floating-point numbers"),
    "no power": ("LpPool", [t(F, 1, 1, 4)], {"kernel_shape": (2,), "p": 0}, "p is 0"),
    "a negative power": ("GlobalLpPool", [t(F, 1, 1, 4)], {"p": -1}, "p is -1"),
    "an empty axis": ("ArgMax", [t(F, 0, 4)], {}, "no elements to compare"),
    "features": (
        "ai.onnx.ml::TreeEnsemble",
        [t(F, 6, 2)],
        {**TREES, "nodes_featureids": (0, 2)},
        "asks for feature 2 of 2",
    ),
    "a transform": (
        "ai.onnx.ml::TreeEnsemble",
        [t(F, 6, 2)],
        {**TREES, "post_transform": -(2**31)},
        "post_transform is -2147483648",
    ),
    "a cache of others": ("TensorScatter", [CACHE, t(F, 3, 1, 2, 5)], {}, "the update is"),
    "a longer update": ("TensorScatter", [CACHE, t(F, 2, 1, 6, 5)], {}, "do not fit a cache of 4"),
    "places": ("TensorScatter", [CACHE, t(F, 2, 1, 2, 5), t(N, 17)], {}, "write_indices is"),
    "batch": ("TensorScatter", [CACHE, CACHE], {"axis": -4}, "that of the batch"),
    "grams outside": ("TfIdfVectorizer", [WORDS], grams(ngram_counts=(0, 2**31)), "do not divide"),
    "half a gram": ("TfIdfVectorizer", [WORDS], grams(ngram_counts=(0, 3)), "do not divide"),
    "lengths": ("TfIdfVectorizer", [WORDS], grams(max_gram_length=2**31), "2 kinds"),
    "no lengths": ("TfIdfVectorizer", [WORDS], grams(min_gram_length=0), "at least 1"),
    "far away": ("TfIdfVectorizer", [WORDS], grams(ngram_indexes=(0, 1, 2, 3, 2**40)), "0 to 1099"),
    "few": ("TfIdfVectorizer", [WORDS], grams(ngram_indexes=(0, 1)), "should be 5 numbers"),
    "weights": ("TfIdfVectorizer", [WORDS], grams(weights=(1.0, 2.0)), "2 weights"),
    "softmax of codes": ("Softmax", [t(U, 4)], {}, "it takes floating-point numbers"),
    "skipped words": ("TfIdfVectorizer", [WORDS], grams(max_skip_count=2**62), "limit"),
    "softmax": ("Softmax", [X], {"axis": 7}, "axis 7 does not exist"),
    "log softmax": ("LogSoftmax", [X], {"axis": -3}, "axis -3 does not exist"),
    "hardmax": ("Hardmax", [X], {"axis": 2}, "axis 2 does not exist"),
    "lp": ("LpNormalization", [X], {"axis": 2}, "axis 2 does not exist"),
    "layer norm": ("LayerNormalization", [X, t(F, 4)], {"axis": 5}, "axis 5 does not exist"),
    "rms norm": ("RMSNormalization", [X, t(F, 4)], {"axis": -5}, "axis -5 does not exist"),
    "arg max": ("ArgMax", [X], {"axis": 2}, "axis 2 does not exist"),
    "running sum": ("CumSum", [X, np.array(2)], {}, "axis 2 does not exist"),
    "mean variance": ("MeanVarianceNormalization", [X], {"axes": (0, 5)}, "axes 5"),
    "groups": (
        "GroupNormalization",
        [IMAGE, t(F, 4), t(F, 4)],
        {"num_groups": 3},
        "4 channels cannot be divided by 3",
    ),
    "no groups": ("GroupNormalization", [IMAGE, t(F, 4), t(F, 4)], {"num_groups": 0}, "by 0"),
    "reduce": ("ReduceSum", [X, np.array([2])], {}, "axis 2 does not exist"),
    "concat": ("Concat", [X, X], {"axis": 2}, "axis 2 does not exist"),
    "gather": ("Gather", [X, t(N, 2)], {"axis": 2}, "axis 2 does not exist"),
    "gather by floats": ("Gather", [X, t(F, 2)], {}, "it takes indices"),
    "split": ("Split", [X], {"axis": 2, "num_outputs": 1}, "axis 2 does not exist"),
    "parts of nothing": ("Split", [t(F, 0)], {"num_outputs": 10**12}, "cannot split an axis of 0"),
    "flatten": ("Flatten", [X], {"axis": 3}, "axis 3 does not exist"),
    "one hot": ("OneHot", [t(N, 3), np.array(5), t(F, 2)], {"axis": 2}, "axis 2 does not exist"),
    "one hot values": ("OneHot", [t(N, 3), np.array(5), t(F, 3)], {}, "a list of 2"),
    "one hot depth": ("OneHot", [t(N, 3), t(N, 2), t(F, 2)], {}, "one number"),
    "not": ("Not", [t(N, 3)], {}, "it takes truth values"),
    "and": ("And", [t(F, 3), t(F, 3)], {}, "it takes truth values"),
    "where": ("Where", [t(N, 3), t(F, 3), t(F, 3)], {}, "it takes truth values"),
    "bits": ("BitwiseAnd", [t(F, 3), t(F, 3)], {}, "it takes integers"),
    "neg": ("Neg", [t(B, 3)], {}, "it takes numbers"),
    "sum of truths": ("ReduceSum", [t(B, 3)], {}, "it takes numbers"),
    "mean of truths": ("ReduceMean", [t(B, 3)], {}, "it takes numbers"),
    "pool of truths": ("MaxPool", [t(B, 1, 4, 8, 8)], {"kernel_shape": (2, 2)}, "it takes numbers"),
    "largest of truths": ("GlobalMaxPool", [t(B, 1, 4, 8, 8)], {}, "it takes numbers"),
    "largest truths": ("TopK", [t(B, 3), np.array([1])], {}, "it takes numbers"),
    "truths between": ("Clip", [t(B, 3)], {}, "it takes numbers"),
    "axes of images": ("MeanVarianceNormalization", [X], {}, "axes 2 does not exist"),
    "labels": (
        "Einsum",
        [t(F, 5, 2, 3), t(F, 5, 17, 4)],
        {"equation": "bij, bjk -> bik"},
        "axis 'j' of equation 'bij,bjk->bik' is 17",
    ),
    "labels of a diagonal": ("Einsum", [t(F, 2, 3)], {"equation": "ii->i"}, "axis 'i'"),
    "axes of an equation": ("Einsum", [X], {"equation": "ijk->i"}, "does not have the axes of"),
    "operands of an equation": ("Einsum", [X], {"equation": "ij,jk->ik"}, "has 2 operands"),
    "taps": (
        "DeformConv",
        [t(F, 1, 1, 3, 3), t(F, 1, 1, 2, 0), t(F, 1, 8, 2, 2)],
        {},
        "have no taps",
    ),
    "offsets": (
        "DeformConv",
        [t(F, 1, 1, 3, 3), t(F, 1, 1, 2, 2), t(F, 1, 4, 2, 2)],
        {},
        "the offsets is",
    ),
    "deformed channels": (
        "DeformConv",
        [t(F, 1, 3, 3, 3), t(F, 1, 1, 2, 2), t(F, 1, 8, 2, 2)],
        {},
        "do not fit an input",
    ),
    "output type": (
        "QuantizeLinear",
        [X, t(F), t(U)],
        {"output_dtype": int(DType.I8)},
        "output_dtype is i8, and the zero point is u8",
    ),
    "perm": ("Transpose", [X], {"perm": (0, 0)}, "does not order the axes"),
    "stride": ("Conv", [IMAGE, t(F, 4, 4, 3, 3)], {"strides": (0, 1)}, "must be positive"),
    "dilation": ("MaxPool", [IMAGE], {"kernel_shape": (2, 2), "dilations": (-1, 1)}, "positive"),
    "pads": ("MaxPool", [IMAGE], {"kernel_shape": (2, 2), "pads": (-1, 0, 0, 0)}, "negative"),
    "pads of a convolution": (
        "Conv",
        [IMAGE, t(F, 4, 4, 3, 3)],
        {"pads": (0, 0, -2, 0)},
        "must not be negative",
    ),
    "transposed strides": (
        "ConvTranspose",
        [IMAGE, t(F, 4, 4, 3, 3)],
        {"strides": (0, 1)},
        "must be positive",
    ),
    "transposed extra": (
        "ConvTranspose",
        [IMAGE, t(F, 4, 4, 3, 3)],
        {"output_padding": (-1, 0)},
        "must not be negative",
    ),
    "transposed pads": (
        "ConvTranspose",
        [IMAGE, t(F, 4, 4, 3, 3)],
        {"pads": (0, -2, 0, 0)},
        "must not be negative",
    ),
    "kernel without axes": ("Conv", [IMAGE, t(F, 4, 4)], {}, "at least 3 axes"),
    "pool of rows": ("MaxPool", [X], {"kernel_shape": ()}, "at least 3 axes"),
    "boxes of two detectors": (
        "DetectionPostProcess",
        [t(F, 1, 6, 4), t(F, 1, 6, 3), t(F, 5, 4)],
        {"num_classes": 2},
        "the list of boxes is",
    ),
    "scores of fewer boxes": (
        "DetectionPostProcess",
        [t(F, 1, 6, 4), t(F, 1, 5, 3), t(F, 6, 4)],
        {"num_classes": 2},
        "the list of scores is",
    ),
    "half a box": (
        "DetectionPostProcess",
        [t(F, 1, 6, 2), t(F, 1, 6, 3), t(F, 6, 4)],
        {"num_classes": 2},
        "fewer than 4 numbers",
    ),
    "more classes than scores": (
        "DetectionPostProcess",
        [t(F, 1, 6, 4), t(F, 1, 6, 3), t(F, 6, 4)],
        {"num_classes": 4},
        "4 classes do not fit",
    ),
    "top k": ("TopK", [X, np.array([9])], {"axis": 1}, "k is 9, and the axis has 4"),
    "negative k": ("TopK", [X, np.array([-1])], {}, "k is -1"),
    "many ks": ("TopK", [X, t(N, 2)], {}, "one number"),
    "slice": ("Slice", [X, np.array([0, 0]), np.array([1])], {}, "2 starts, 1 ends"),
    "slice of more": ("Slice", [X, np.array([0] * 3), np.array([1] * 3)], {}, "too many"),
    "pad": ("Pad", [X, np.array([1, 1])], {}, "a list of 4"),
    "pad by nothing known": ("Pad", [X, np.zeros(4, int)], {"mode": "mirror"}, "mode is 'mirror'"),
    "pad with several": ("Pad", [X, np.zeros(4, int), t(F, 3)], {}, "one number"),
    "pad an axis": ("Pad", [X, np.zeros(2, int), None, np.array([4])], {}, "axis 4"),
    "tile": ("Tile", [X, np.array([2])], {}, "a list of 2"),
    "blocks": ("DepthToSpace", [X], {"blocksize": 2}, "should have 4 axes"),
    "no block": ("SpaceToDepth", [IMAGE], {"blocksize": 0}, "divided by 0"),
    "order": ("DepthToSpace", [IMAGE], {"blocksize": 2, "mode": "RCD"}, "mode is 'RCD'"),
    "triangle": ("Trilu", [t(F, 4)], {}, "at least 2 axes"),
    "range": ("Range", [np.array(0), np.array(5), np.array(0)], {}, "delta is 0"),
    "range of lists": ("Range", [t(N, 2), t(N), t(N)], {}, "one number"),
    "scales": ("Resize", [IMAGE, None, np.ones(3, np.float32)], {}, "a list of 4"),
    "no scale": ("Resize", [IMAGE, None, np.zeros(4, np.float32)], {}, "should be above 0"),
    "sequences": ("ReverseSequence", [X, t(N, 2)], {}, "sequence_lens"),
    "axes of sequences": (
        "ReverseSequence",
        [X, t(N, 4)],
        {"time_axis": 2, "batch_axis": 1},
        "time_axis 2",
    ),
    "long sequences": (
        "ReverseSequence",
        [X, np.array([1, 2, 9, 1])],
        {"time_axis": 0, "batch_axis": 1},
        "not lengths of an axis of 3",
    ),
    "zero point": ("DequantizeLinear", [t(U, 1, 8), t(F, 8), t(U, 2)], {}, "the zero point is"),
    "zero point of another type": (
        "DequantizeLinear",
        [t(U, 1, 8), t(F), t(DType.I8)],
        {},
        "elements of input 0",
    ),
    "blocks of scales": (
        "DequantizeLinear",
        [t(U, 1, 64), t(F, 1, 2), t(U, 1, 2)],
        {"axis": 1, "block_size": 8},
        r"should be \[1,8\]",
    ),
    "scales of rows": ("QuantizeLinear", [t(F, 3, 4), t(F, 3, 4)], {}, r"should be \[4\]"),
    "axis of scales": ("QuantizeLinear", [t(F, 3, 4), t(F, 3)], {"axis": 3}, "axis 3"),
    "scale of codes": ("DequantizeLinear", [t(U, 8), t(U)], {}, "floating-point"),
    "scale of whole numbers": ("QuantizeLinear", [t(F, 8), t(N)], {}, "floating-point"),
    "zero point of reals": ("QuantizeLinear", [t(F, 8), t(F), t(F)], {}, "it takes codes"),
    "integer rows and columns": ("MatMulInteger", [t(U, 3, 4), t(U, 3, 5)], {}, "inner dimensions"),
    "integer vectors": ("MatMulInteger", [t(U, 4), t(U, 3)], {}, "inner dimensions"),
    "integer batches": ("MatMulInteger", [t(U, 2, 3, 4), t(U, 3, 4, 5)], {}, "do not broadcast"),
    "zero points of rows": ("MatMulInteger", [t(U, 3, 4), t(U, 4, 5), t(U, 2)], {}, "input 2"),
    "zero points of columns": (
        "MatMulInteger",
        [t(U, 3, 4), t(U, 4, 5), None, t(U, 4)],
        {},
        "input 3",
    ),
    "sizes of heads": ("Attention", [Q3, K3, K3], HEADS, "sizes of queries and keys"),
    "heads": ("Attention", [Q3, K3, K3], {**HEADS, "q_num_heads": 5}, "cannot be divided by 5"),
    "heads not said": ("Attention", [Q3, K3, K3], {}, "q_num_heads"),
    "mask": ("Attention", [Q4, K4, K4, t(F, 2, 3)], {}, "attn_mask is"),
    "mask of one axis": ("Attention", [Q4, K4, K4, t(F, 7)], {}, "attn_mask is"),
    "mask of more keys": ("Attention", [Q4, K4, K4, t(F, 4, 7)], {}, "attn_mask is"),
    "mask of batches": ("Attention", [Q4, K4, K4, t(F, 3, 1, 4, 6)], {}, "attn_mask is"),
    "heads of values": ("Attention", [Q4, K4, t(F, 1, 1, 6, 8)], {}, "heads of keys and values"),
    "past": (
        "Attention",
        [Q4, K4, K4, None, t(F, 1, 2, 12, 8), t(F, 1, 2, 3, 8)],
        {},
        "past keys and values",
    ),
    "half a past": ("Attention", [Q4, K4, K4, None, t(F, 1, 2, 12, 8)], {}, "come together"),
    "heads of the past": (
        "Attention",
        [Q4, K4, K4, None, t(F, 1, 1, 3, 8), t(F, 1, 1, 3, 8)],
        {},
        "past_key",
    ),
    "rotary cache": ("RotaryEmbedding", [ROTARY, t(F, 1, 3, 4), t(F, 1, 3, 4)], {}, "cos_cache"),
    "rotary width": ("RotaryEmbedding", [ROTARY, t(F, 1, 5, 3), t(F, 1, 5, 3)], {}, "cos_cache"),
    "rotary sine": ("RotaryEmbedding", [ROTARY, t(F, 1, 5, 4), t(F, 1, 4, 4)], {}, "sin_cache"),
    "rotary positions": (
        "RotaryEmbedding",
        [ROTARY, t(F, 20, 4), t(F, 20, 4), t(N, 1, 3)],
        {},
        "position_ids",
    ),
    "rotary pairs": (
        "RotaryEmbedding",
        [ROTARY, t(F, 1, 5, 4), t(F, 1, 5, 4)],
        {"rotary_embedding_dim": 10},
        "cannot rotate 10 of 8",
    ),
    "recurrent": ("LSTM", [t(F, 2, 3), t(F, 1, 32, 3), t(F, 1, 32, 8)], {}, "should have 3 axes"),
    "direction": ("GRU", [SERIES, t(F, 1, 24, 3), t(F, 1, 24, 8)], {"direction": "up"}, "'up'"),
    "lengths of a recurrent layer": (
        "GRU",
        [SERIES, t(F, 1, 24, 3), t(F, 1, 24, 8), None, np.array([9, 1], np.int32)],
        {"hidden_size": 8},
        "not lengths of an axis of",
    ),
    "peepholes": (
        "LSTM",
        [SERIES, t(F, 1, 32, 3), t(F, 1, 32, 8), None, None, None, None, t(F, 1, 8)],
        {"hidden_size": 8},
        "P is",
    ),
    "updates": ("ScatterND", [X, t(N, 1, 1), t(N, 1, 4)], {}, "elements of input 0"),
    "reduction": (
        "ScatterElements",
        [X, t(N, 1, 4), t(F, 1, 4)],
        {"reduction": "sub"},
        "reduction is 'sub'",
    ),
    "bounds": ("Clip", [X, t(N)], {}, "elements of input 0"),
    "window of nothing": ("LRN", [IMAGE], {"size": 0}, "size is 0"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused(what: str) -> None:
    op, operands, attrs, why = REFUSED[what]
    types = tuple(
        TensorType.of(operand) if isinstance(operand, np.ndarray) else operand
        for operand in operands
    )
    values = tuple(operand if isinstance(operand, np.ndarray) else None for operand in operands)
    with pytest.raises(ModelError, match=why) as caught:
        infer(TypeQuery(op, attrs, types, values, 1))
    assert str(caught.value).startswith(f"{op}:")


FITS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "bits of a width": ("BitCast", [t(DType.I32, 3)], {"to": 1}),
    "a signal of real numbers": ("STFT", [t(F, 1, 40), np.array(8), t(F, 16)], {}),
    "a map of a plane": ("AffineGrid", [t(F, 2, 2, 3), SIZE], {}),
    "a map of space": ("AffineGrid", [t(F, 2, 3, 4), np.array([2, 3, 4, 5, 6])], {}),
    "places in a plane": ("GridSample", [IMAGE, t(F, 1, 5, 7, 2)], {}),
    "scores of boxes": ("NonMaxSuppression", [t(F, 1, 6, 4), t(F, 1, 2, 6)], {}),
    "a class for every place": ("SoftmaxCrossEntropyLoss", [IMAGE, t(N, 1, 8, 8), t(F, 4)], {}),
    "groups of codes": ("ConvInteger", [t(U, 1, 4, 8, 8), t(U, 2, 2, 3, 3)], {"group": 2}),
    "a mask for some keys": ("Attention", [Q4, K4, K4, t(F, 4, 3)], {}),
    "a mask for all queries": ("Attention", [Q4, K4, K4, t(B, 6)], {}),
    "a mask for all heads": ("Attention", [Q4, K4, K4, t(B, 1, 1, 4, 6)], {}),
    "heads side by side": ("Attention", [t(F, 2, 3, 24), K3, K3], HEADS),
    "the mask of a past": (
        "Attention",
        [Q4, K4, K4, t(F, 4, 9), t(F, 1, 2, 3, 8), t(F, 1, 2, 3, 8)],
        {},
    ),
    "one angle for all": (
        "RotaryEmbedding",
        [t(F, 2, 2, 5, 8), t(F, 1, 5, 4), t(F, 1, 5, 4)],
        {},
    ),
    "one zero point": ("DequantizeLinear", [t(U, 1, 8), t(F, 8), t(U)], {}),
    "a last block that is short": (
        "DequantizeLinear",
        [t(U, 1, 20), t(F, 1, 3)],
        {"axis": 1, "block_size": 8},
    ),
    "labels of one": ("Einsum", [t(F, 1, 3), t(F, 5, 4)], {"equation": "ij,ik->jk"}),
    "labels and dots": ("Einsum", [t(F, 9, 2, 3), t(F, 3, 4)], {"equation": "...ij,jk->...ik"}),
    "offsets of taps": (
        "DeformConv",
        [t(F, 1, 2, 3, 3), t(F, 4, 1, 2, 2), t(F, 1, 16, 2, 2), t(F, 4), t(F, 1, 8, 2, 2)],
        {"group": 2, "offset_group": 2},
    ),
    "extremes of truths": ("ReduceMax", [t(B, 3)], {}),
    "no rows": ("ArgMax", [t(F, 0, 4)], {"axis": 1}),
    "steps of a cache": ("TensorScatter", [CACHE, t(F, 2, 1, 2, 5), t(N, 2)], {}),
    "n-grams": ("TfIdfVectorizer", [WORDS], grams()),
    "k of all": ("TopK", [X, np.array([4])], {}),
    "an axis more": ("OneHot", [t(N, 3), np.array(5), t(F, 2)], {"axis": 1}),
    "an empty region": ("Resize", [IMAGE, t(F, 0), np.ones(4, np.float32)], {}),
}


@pytest.mark.parametrize("what", FITS)
def test_what_fits_is_not(what: str) -> None:
    op, operands, attrs = FITS[what]
    types = tuple(
        TensorType.of(operand) if isinstance(operand, np.ndarray) else operand
        for operand in operands
    )
    values = tuple(operand if isinstance(operand, np.ndarray) else None for operand in operands)
    infer(TypeQuery(op, attrs, types, values, 1))

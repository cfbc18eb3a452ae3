"""The models that mutation begins with: the `onnx` package's own node tests, one operator each,
with inputs that make sense to it; operators of com.microsoft; and TFLite files with what ONNX has
not: state, layers that TFLite alone has, weights quantised by blocks.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.backend.test.case.node import collect_testcases

# Results that two runs need not share, and operators on values that are no tensors of numbers.
_LEFT_OUT = frozenset(
    {"Bernoulli", "RandomUniformLike", "Dropout", "ImageDecoder", "Adam", "Adagrad", "Momentum"}
    | {"StringSplit", "StringNormalizer", "StringConcat", "RegexFullMatch", "LabelEncoder"}
)
_MOST_BYTES = 40_000


@dataclass(frozen=True)
class Seed:
    """A valid model and inputs for it."""

    name: str
    op: str
    model: bytes
    inputs: tuple[np.ndarray, ...]
    form: str = "onnx"


def node_tests() -> list[Seed]:
    """One seed for each node test whose values are small tensors of numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    found = []
    for case in cases:
        model = case.model
        assert isinstance(model, ModelProto)
        (inputs, outputs), *_ = case.data_sets or ()
        ops = {node.op_type for node in model.graph.node}
        values = [*inputs, *outputs]
        if ops & _LEFT_OUT or not all(
            isinstance(value, np.ndarray) and value.dtype.kind in "biuf" for value in values
        ):
            continue
        if sum(value.nbytes for value in values) > _MOST_BYTES or len(model.graph.node) > 60:
            continue
        main = max(model.graph.node, key=lambda node: len(node.input)).op_type
        found.append(Seed(case.name, main, model.SerializeToString(), tuple(inputs)))
    return found


def contributed_operators() -> list[Seed]:
    """Operators of com.microsoft, as their tests have them."""
    # They need packages that only reading and running such models takes.
    from tests.frontends.onnx import test_contrib, test_contrib_attention, test_contrib_quantised
    from tests.frontends.onnx.contrib_data import Arrays
    from tests.frontends.onnx.models import MICROSOFT, feeds_of, single

    heads = {"num_heads": test_contrib_attention.HEADS}
    groups = {"num_heads": 4, "kv_num_heads": 2}
    attention = test_contrib_attention
    cases: list[tuple[str, Arrays, dict[str, Any], int]] = [
        *test_contrib.EXACT,
        *((op, arrays, attrs, 1) for op, arrays, attrs in test_contrib_quantised.QUANTISED),
        *(("Attention", arrays, heads | attrs, n) for arrays, attrs, n in attention.ATTENTION),
        *(
            ("MultiHeadAttention", arrays, heads | attrs, n)
            for arrays, attrs, n in attention.MULTI_HEAD
        ),
        *(
            ("GroupQueryAttention", arrays, groups | attrs, 3)
            for arrays, attrs in attention.GROUPED
        ),
    ]
    found = []
    for number, (op, arrays, attrs, outputs) in enumerate(cases):
        model = single(op, arrays, 17, n_outputs=outputs, domain=MICROSOFT, **attrs)
        inputs = tuple(feeds_of(arrays).values())
        if all(value.dtype.kind in "biuf" for value in inputs):
            name = f"contributed {number} {op}"
            found.append(Seed(name, f"{MICROSOFT} {op}", model.SerializeToString(), inputs))
    return found


def tflite_files() -> list[Seed]:
    """TFLite files as other tests write them. Loops are left out: changed numbers would have them
    run for as long as they say.
    """
    # They need packages that only reading and running such files takes.
    from tests.frontends.tflite.stateful import MODELS
    from tests.frontends.tflite.test_blockwise import blockwise
    from tests.frontends.tflite.test_detection import detector, options

    codes = np.arange(-8, 8, dtype=np.int8).repeat(20).reshape(5, 64)
    files = {
        **{name: make().bytes() for name, make in MODELS.items() if name != "iterations"},
        "blockwise": blockwise(codes, np.full((5, 2), 0.02, np.float16)).bytes(),
        "detector": detector(options()).bytes(),
    }
    return [Seed(name, f"tflite {name}", data, (), "tflite") for name, data in files.items()]


def everything() -> list[Seed]:
    return [*node_tests(), *contributed_operators(), *tflite_files()]


def save(seeds: Sequence[Seed], path: Path) -> None:
    path.write_bytes(pickle.dumps(list(seeds)))


def restore(path: Path) -> dict[str, list[Seed]]:
    """The seeds by operator, so that each operator has the same chance."""
    by_op: dict[str, list[Seed]] = {}
    for seed in pickle.loads(path.read_bytes()):
        by_op.setdefault(seed.op, []).append(seed)
    return by_op

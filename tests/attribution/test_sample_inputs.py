"""Inputs that are made up for models that leave their sizes open."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from whence.api import compile_model
from whence.attribution import profile_executable
from whence.attribution.sample_inputs import guess_shapes, sample_inputs
from whence.errors import InputError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.types import Dim, DType


def taking(**inputs: tuple[DType, list[Dim] | None]) -> Graph:
    build = GraphBuilder("open")
    for name, (dtype, shape) in inputs.items():
        build.output(f"{name}_out", build.op("Identity", build.input(name, dtype, shape)))
    return build.finish()


def test_sizes_make_sense_and_agree() -> None:
    graph = taking(
        image=(DType.F32, ["n", 3, "height", None]),
        tokens=(DType.I64, ["batch_size", "length"]),
        mask=(DType.BOOL, ["batch_size", "length"]),
        turned=(DType.F32, ["length", "batch_size", 4]),
        fixed=(DType.F32, [2, 2]),
        anything=(DType.F32, None),
    )
    found = sample_inputs(graph)
    assert found.guessed == {
        "image": (1, 3, 224, 224),
        "tokens": (1, 32),
        "mask": (1, 32),
        "turned": (32, 1, 4),
        "anything": (),
    }
    assert {name: np.shape(value) for name, value in found.values.items()} == {
        **found.guessed,
        "fixed": (2, 2),
    }
    assert found.options == (
        "--dim batch_size=1 --dim length=32 --shape image=1x3x224x224 --shape anything=scalar"
    )
    assert set(np.unique(np.asarray(found.values["tokens"]))) <= {0, 1}
    assert guess_shapes(taking(x=(DType.F32, [1, 2]))) == {}


def test_names_are_quoted_for_a_shell() -> None:
    shapes: dict[str, list[int | str | None]] = {"the input": ["n;rm", 4], "it's": [None, 4]}
    graph = taking(**{name: (DType.F32, shape) for name, shape in shapes.items()})
    found = sample_inputs(graph)
    assert shlex.split(found.options) == [
        *("--dim", "n;rm=1"),
        *("--shape", "it's=1x4"),
    ]


def test_a_guess_that_does_not_work_says_what_to_do(tmp_path: Path) -> None:
    kinds = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "n"]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2]),
    ]
    weights = [
        numpy_helper.from_array(np.ones((7, 2), np.float32), "w"),
        numpy_helper.from_array(np.array([1, 9], np.int64), "wanted"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        # Seven elements for the product, and nine for the reshape: there is no size for both.
        helper.make_node("Reshape", ["x", "wanted"], ["r"], name="reshaped"),
        helper.make_node("ReduceMax", ["r"], ["m"], name="most"),
        helper.make_node("Add", ["p", "m"], ["y"], name="sum"),
    ]
    file = tmp_path / "picky.onnx"
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "picky", kinds[:1], kinds[1:], weights)), file
    )
    executable = compile_model(file, threads=1)
    with pytest.raises(
        InputError,
        match=r"guessed for them \(--dim n=7\): .*reshaped.*; say which sizes to use with --dim",
    ):
        profile_executable(executable, runs=1, warmup=0)


def test_indices_lead_into_their_axes() -> None:
    """Also where the axis has one element, and where the model takes them as real numbers."""
    build = GraphBuilder("lookups")
    table = build.const(np.ones((1, 4), np.float32))
    given = {
        "ids": build.input("ids", DType.I64, ["n"]),
        "real": build.input("real", DType.F32, [64]),
    }
    number = build.op("Cast", given["real"], to=int(DType.I64))
    build.output(
        "a", build.op("Gather", table, build.op("Unsqueeze", given["ids"], build.const(0)))
    )
    build.output("b", build.op("Gather", build.const(np.ones((7, 2), np.float32)), number))
    graph = build.finish()
    values = sample_inputs(graph).values
    assert not values["ids"].any()
    assert ((values["real"] >= 0) & (values["real"] < 7)).all()
    profile_executable(compile_model(graph), runs=2, warmup=1, model="lookups")

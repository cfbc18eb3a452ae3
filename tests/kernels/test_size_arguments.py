"""Kernels that differ only in incidental sizes share a function, and each hands its own over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import whence
from tests.cpu_backend import cpu_backend
from tests.kernels.harness import Cases, engine
from whence.api import prepare
from whence.backends.cpu.generator import build_program
from whence.extent import is_symbolic
from whence.graph.builder import Symbol
from whence.kernels.index import Index, Var
from whence.kernels.ir import Fn, Load, Name, Op
from whence.kernels.size_arguments import SizeArguments
from whence.types import DType


def _conv(
    cases: Cases, x: Symbol, channels: int, out: int, size: int, relu: bool = True, **attrs: Any
) -> Symbol:
    weights = cases.rng.standard_normal((out, channels, size, size)).astype(np.float32) / channels
    bias = cases.rng.standard_normal(out).astype(np.float32)
    y = cases.op("Conv", x, cases.const(weights), cases.const(bias), **attrs)
    return cases.op("Relu", y) if relu else y


def _shared(cases: Cases) -> dict[str, set[str]]:
    """By shared function: the kernels that call it, whose results are right."""
    graph = cases.build.finish()
    results = whence.compile(graph, engine=engine())(**cases.feeds)
    for result, expected in zip(results, graph.run(cases.feeds), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    found: dict[str, set[str]] = {}
    toolchain = cpu_backend(engine()).toolchain
    for unit in build_program(prepare(graph), toolchain, load=False).units:
        for function in unit.functions:
            for called in function.calls:
                found.setdefault(called.symbol, set()).add(function.symbol)
    return found


def test_sizes_of_images_and_channels_are_arguments():
    cases = Cases()
    # Whole tiles of pixels and of channels, of whatever size a processor's registers make them,
    # and images that stay in any second-level cache: larger ones are worked on in parts.
    for channels, out, side in ((32, 64, 12), (64, 128, 24), (96, 192, 12)):
        x = cases.normal(1, channels, side, side)
        cases.expect(_conv(cases, x, channels, out, 1), f"{channels}x{side}")
    assert [len(kernels) for kernels in _shared(cases).values()] == [3]


def test_what_is_added_behind_it_is_another_function():
    cases = Cases()
    for side in (12, 18):
        x, y = cases.normal(1, 32, side, side), cases.normal(1, 64, side, side)
        cases.expect(_conv(cases, x, 32, 64, 1), f"{side}")
        total = cases.op("Add", _conv(cases, x, 32, 64, 1, relu=False), y)
        cases.expect(cases.op("Relu", total), f"{side} + y")
    assert sorted(len(kernels) for kernels in _shared(cases).values()) == [2, 2]


@pytest.mark.parametrize("images", [1, 3])
def test_images_with_padding_and_strides(images: int):
    cases = Cases()
    for side in (33, 57):
        x = cases.normal(images, 16, side, side)
        y = _conv(cases, x, 16, 32, 3, pads=(1, 1, 1, 1), strides=(2, 2))
        cases.expect(y, f"{side}")
    assert _shared(cases)


def test_numbers_that_make_terms_vanish_stay():
    sizes = SizeArguments()
    assert [sizes.argument(size) for size in (-3, 0, 1)] == [-3, 0, 1]
    assert is_symbolic(sizes.argument(2))
    assert is_symbolic(sizes.argument(2))
    assert (sizes.names, sizes.values) == (("s0", "s1"), (2, 2))


def test_only_strides_of_the_given_variables_are_arguments():
    sizes = SizeArguments()
    index = Index(5, ((Var("channels", 4), 144), (Var("lane", 16), 1), (Var("pixel", 9), 16)))
    value = Op(Fn.ADD, (Name("acc", DType.F32), Load("in2", index, DType.F32)), DType.F32)
    made = sizes.in_value(value, {"channels"})
    assert isinstance(made, Op)
    load = made.args[1]
    assert isinstance(load, Load)
    strides = {str(atom): stride for atom, stride in load.index.terms}
    assert [is_symbolic(stride) for stride in strides.values()] == [True, False, False]
    assert sizes.values == (144,)


def test_what_is_used_twice_is_one_part_with_one_argument() -> None:
    sizes, channels = SizeArguments(), Var("channels", 8)
    x = Load("bias", Index(0, ((channels, 16),)), DType.F32)
    swish = Op(Fn.MUL, (x, Op(Fn.SIGMOID, (x,), DType.F32)), DType.F32)
    made = sizes.in_value(swish, {"channels"})
    assert isinstance(made, Op)
    inner = made.args[1]
    assert isinstance(inner, Op)
    assert made.args[0] is inner.args[0]
    assert sizes.values == (16,)

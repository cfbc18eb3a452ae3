"""What is compiled for open sizes has the kernels that it has for numbers: fusion and lowering ask
only for what correctness needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from whence.api import prepare
from whence.backends.cpu.generator import CpuGenerator
from whence.building.backend import Lowered
from whence.building.build import lower_graph
from whence.codegen.render_c import render_kernel
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.extent import dimensions_of, is_symbolic
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.kernels.conv.winograd_program import Winograd
from whence.kernels.ir import Loop
from whence.ops.binding import Port
from whence.ops.open_dimensions import open_dimensions
from whence.passes.shapes.propagate_types import fix_input_shapes
from whence.types import DType


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _conv(build: GraphBuilder, x: Symbol, taken: int, made: int, size: int, stride: int) -> Symbol:
    pad = size // 2
    weights = build.const(_weights(made, taken, size, size))
    return build.op(
        "Conv", x, weights, kernel_shape=(size,) * 2, strides=(stride,) * 2, pads=(pad,) * 4
    )


def _image(build: GraphBuilder) -> Symbol:
    return build.input("x", DType.F32, [1, 3, "height", "width"])


def _scaled_convolutions() -> Graph:
    """A scale and a shift for all channels behind each convolution, as PP-LCNet has them."""
    build = GraphBuilder("scaled")
    x = _image(build)
    for taken in (3, 32, 32):
        x = build.op("HardSwish", _conv(build, x, taken, 32, 3, 2))
        x = build.op("Mul", x, build.const(np.array([1.5], np.float32)))
        x = build.op("Add", x, build.const(np.array([0.5], np.float32)))
    build.output("y", x)
    return build.finish()


def _residual() -> Graph:
    build = GraphBuilder("residual")
    x = build.op("Relu", _conv(build, _image(build), 3, 16, 3, 2))
    for _ in range(2):
        inner = build.op("Relu", _conv(build, x, 16, 16, 3, 1))
        x = build.op("Add", x, build.op("HardSwish", _conv(build, inner, 16, 16, 3, 1)))
    build.output("y", x)
    return build.finish()


def _pyramid() -> Graph:
    """Coarse features, enlarged, are added to finer ones, and all sizes are put together."""
    build = GraphBuilder("pyramid")
    fine = _conv(build, _image(build), 3, 16, 3, 2)
    middle = _conv(build, fine, 16, 16, 3, 2)
    coarse = _conv(build, middle, 16, 16, 3, 2)
    scales = build.const(np.array([1, 1, 2, 2], np.float32))
    how: dict[str, Any] = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    empty = build.const(np.zeros(0, np.float32))
    larger = build.op("Resize", coarse, empty, scales, **how)
    middle = build.op("Add", middle, larger)
    both = build.op("Add", fine, build.op("Resize", middle, empty, scales, **how))
    build.output("y", _conv(build, both, 16, 16, 3, 1))
    return build.finish()


def _squeeze_and_excite() -> Graph:
    build = GraphBuilder("excite")
    x = build.op("Relu", _conv(build, _image(build), 3, 32, 3, 2))
    mean = build.op("ReduceMean", x, build.const(np.array([2, 3], np.int64)), keepdims=1)
    inner = build.op("Relu", _conv(build, mean, 32, 16, 1, 1))
    x = build.op("Mul", x, build.op("HardSigmoid", _conv(build, inner, 16, 32, 1, 1)))
    build.output("y", _conv(build, x, 32, 16, 1, 1))
    return build.finish()


def _attention() -> Graph:
    build = GraphBuilder("attention")
    x = build.input("x", DType.F32, ["batch", "sequence", 32])

    def heads(perm: Sequence[int]) -> Symbol:
        made = build.op("MatMul", x, build.const(_weights(32, 32) + perm[2]))
        shaped = build.op("Reshape", made, build.const(np.array([0, 0, 4, 8], np.int64)))
        return build.op("Transpose", shaped, perm=tuple(perm))

    scores = build.op("MatMul", heads((0, 2, 1, 3)), heads((0, 2, 3, 1)))
    scores = build.op("Mul", scores, build.const(np.array(0.35, np.float32)))
    mixed = build.op("MatMul", build.op("Softmax", scores, axis=-1), heads((0, 2, 1, 3)))
    mixed = build.op("Transpose", mixed, perm=(0, 2, 1, 3))
    mixed = build.op("Reshape", mixed, build.const(np.array([0, 0, 32], np.int64)))
    made = build.op("Add", x, build.op("MatMul", mixed, build.const(_weights(32, 32))))
    ones = build.const(np.ones(32, np.float32))
    build.output("y", build.op("LayerNormalization", made, ones, axis=-1))
    return build.finish()


def _unpadded() -> Graph:
    """Images that become smaller, so that sizes are differences, with a slope for each channel."""
    build = GraphBuilder("unpadded")
    x = _image(build)
    for taken in (3, 16):
        weights = build.const(_weights(16, taken, 3, 3))
        x = build.op("Conv", x, weights, kernel_shape=(3, 3))
        x = build.op("PRelu", x, build.const(_weights(16, 1, 1)))
    build.output("y", x)
    return build.finish()


def _half() -> Graph:
    """In half precision, whose sums are rounded before anything reads them."""
    build = GraphBuilder("half")
    x = build.input("x", DType.F16, [1, 1, "height", "width"])
    weights = build.const(_weights(2, 1, 3, 3).astype(np.float16))
    build.output("y", build.op("Gelu", build.op("Conv", x, weights, kernel_shape=(3, 3))))
    return build.finish()


_IMAGE, _TEXT = {"x": (1, 3, 64, 96)}, {"x": (2, 24, 32)}
_MODELS: Mapping[str, tuple[Callable[[], Graph], Mapping[str, Sequence[int]]]] = {
    "scaled": (_scaled_convolutions, _IMAGE),
    "residual": (_residual, _IMAGE),
    "pyramid": (_pyramid, _IMAGE),
    "excite": (_squeeze_and_excite, _IMAGE),
    "attention": (_attention, _TEXT),
    "unpadded": (_unpadded, _IMAGE),
    "half": (_half, {"x": (1, 1, 64, 96)}),
}


def _lowered(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> Lowered:
    graph = prepare(fix_input_shapes(graph, shapes))
    generator = CpuGenerator(Toolchain(Target.named("x86_64-avx2"), jobs=1), load=False)
    return lower_graph(graph, generator)


def _kernels(lowered: Lowered) -> list[str]:
    """What runs, in the order in which it does: the operators of each kernel."""
    assert all(step.code is not None for step in lowered.steps)
    return ["+".join(node.op for node in each.step.members) for each in lowered.steps]


def _opened(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> Mapping[str, Sequence[int]]:
    ports = [Port(node.name, node.type) for node in graph.inputs]
    opened = open_dimensions(ports, shapes)[1]
    assert dimensions_of(size for shape in opened.values() for size in shape) is not None
    return opened


@pytest.mark.parametrize("name", _MODELS)
def test_open_sizes_have_the_kernels_of_numbers(name: str) -> None:
    make, shapes = _MODELS[name]
    opened = _lowered(make(), _opened(make(), shapes))
    assert _kernels(opened) == _kernels(_lowered(make(), shapes))


@pytest.mark.parametrize("name", ["pyramid", "excite"])
def test_no_element_divides_by_an_open_size(name: str) -> None:
    """A division by what the compiler does not know takes as long as many elements: positions are
    counted instead.
    """
    make, shapes = _MODELS[name]
    lowered = _lowered(make(), _opened(make(), shapes))
    kernels = [step.step.kernel for step in lowered.steps]
    nests = [kernel for kernel in kernels if kernel and isinstance(kernel.body[0], Loop)]
    assert any(loop.digits for kernel in nests for loop in kernel.body if isinstance(loop, Loop))
    for kernel in nests:
        text = render_kernel(kernel, "kernel")
        inner = text.partition("for (int64_t task")[2]
        assert not re.search(r"[/%] \(+dim_|[/%] \(\d+\*", inner), text


def _enlarged() -> Graph:
    build = GraphBuilder("enlarged")
    x = build.input("x", DType.F32, [1, 16, "height", "width"])
    scales = build.const(np.array([1, 1, 1.5, 1.5], np.float32))
    x = build.op("Resize", x, build.const(np.zeros(0, np.float32)), scales, mode="linear")
    build.output("y", build.op("Relu", x))
    return build.finish()


def test_places_of_a_resize_are_computed_once_for_each_column() -> None:
    shapes = {"x": (1, 16, 40, 48)}
    lowered = _lowered(_enlarged(), _opened(_enlarged(), shapes))
    (kernel,) = (step.step.kernel for step in lowered.steps)
    assert kernel is not None
    assert is_symbolic(kernel.scratch_bytes)
    before, _, inner = render_kernel(kernel, "kernel").partition("for (int64_t task")
    assert "(float)(i2)" in before
    assert "(float)(i2)" not in inner
    # Of rows, once for a row: it is the same in all of the inner loop.
    assert "(float)(i1)" in inner


def test_parts_of_a_concatenation_ask_nothing_about_where_they_begin() -> None:
    """Beginning at a line of the cache is quicker, and otherwise as right."""
    build = GraphBuilder("parts")
    x = build.input("x", DType.F32, [1, 3, "height", "width"])
    parts = [build.op(op, x) for op in ("Relu", "Neg")]
    build.output("y", build.op("Concat", *parts, axis=1))
    graph = build.finish()
    opened = _opened(graph, {"x": (1, 3, 8, 16)})
    _lowered(graph, opened)
    dimensions = dimensions_of(size for shape in opened.values() for size in shape)
    assert dimensions is not None
    assert not dimensions.guards


def test_a_small_first_call_does_not_decide_how_large_images_are_convolved() -> None:
    """Of a small image, small tiles are cheapest to transform; others come later, with the weights
    packed already.
    """

    def tiles(height: int, width: int) -> set[int]:
        build = GraphBuilder("convolved")
        x = build.input("x", DType.F32, [1, 96, "height", "width"])
        build.output("y", build.op("Relu", _conv(build, x, 96, 64, 3, 1)))
        graph = build.finish()
        lowered = _lowered(graph, _opened(graph, {"x": (1, 96, height, width)}))
        bodies = [step.step.kernel.body for step in lowered.steps if step.step.kernel]
        return {each.size for body in bodies for each in body if isinstance(each, Winograd)}

    assert tiles(10, 12) == tiles(160, 160) == {4}


def test_channels_that_leave_their_blocks_are_transposed_in_registers() -> None:
    """Pixels of an image whose size is open, one after another: the last whole block of them ends
    within the image.
    """
    build = GraphBuilder("heads")
    made = _conv(build, build.input("x", DType.F32, [1, 32, "height", "width"]), 32, 64, 1, 1)
    heads = build.const(np.array([1, 2, 32, -1], np.int64))
    build.output("y", build.op("Reshape", made, heads))
    graph = build.finish()
    lowered = _lowered(graph, _opened(graph, {"x": (1, 32, 8, 6)}))
    kernel = lowered.steps[-1].step.kernel
    assert kernel is not None
    text = render_kernel(kernel, "kernel")
    assert "w_transpose_f32x16" in text
    assert not re.search(r"[/%] dim_", text)


def test_a_convolution_without_padding_asks_no_element_where_it_lies() -> None:
    build = GraphBuilder("mean")
    x = build.input("x", DType.F32, [1, 16, 4, "anchors"])
    build.output("y", build.op("Conv", x, build.const(_weights(1, 16, 1, 1))))
    graph = build.finish()
    lowered = _lowered(graph, _opened(graph, {"x": (1, 16, 4, 84)}))
    (kernel,) = (step.step.kernel for step in lowered.steps)
    assert kernel is not None
    (inner,) = re.findall(r"total\[lane\] = .*", render_kernel(kernel, "kernel"))[1:2]
    assert "?" not in inner

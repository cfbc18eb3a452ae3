"""Loop nests: seams, factors, pieces, and outputs of several shapes."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np

from tests.kernels.harness import Cases
from tests.kernels.native import NativeCase, run_native
from whence.building.program import Program
from whence.codegen.render_c import render_kernel
from whence.graph.builder import GraphBuilder
from whence.kernels.loops.nest import lower_loopnest
from whence.kernels.tile import AVX2
from whence.types import DType


def _source(program: Program) -> str:
    """The generated kernels, without what stands before them."""
    return "\n".join(
        text[text.index("\nvoid ") :] for text in (unit.source for unit in program.units)
    )


def test_a_concatenation_asks_no_element_where_it_is():
    cases = Cases()
    for axis in range(3):
        shapes = [[2, 3, 5] for _ in range(4)]
        for extra, shape in enumerate(shapes):
            shape[axis] += extra
        cases.expect(
            cases.op("Concat", *(cases.normal(*shape) for shape in shapes), axis=axis),
            f"axis_{axis}",
        )
    program = cases.check()
    assert "?" not in _source(program).replace("> 0 ?", "")


def test_concatenations_with_neighbours():
    cases = Cases()
    x, y = cases.normal(2, 8, 6), cases.normal(2, 4, 6)
    joined = cases.op("Concat", cases.op("Relu", x), cases.op("Neg", y), axis=1)
    cases.expect(cases.op("Add", joined, cases.normal(12, 1)), "elementwise")
    cases.expect(
        cases.op("Transpose", cases.op("Concat", x, y, axis=1), perm=(0, 2, 1)), "transposed"
    )
    cases.expect(
        cases.op("Reshape", cases.op("Concat", x, y, axis=1), cases.const(np.array([2, 72]))),
        "reshaped",
    )
    many = [cases.normal(2, 1, 3) for _ in range(100)]
    cases.expect(cases.op("Concat", *many, axis=1), "many")
    cases.check()


def test_pads_and_slices():
    cases = Cases()
    x = cases.normal(2, 3, 9, 11)
    for mode in ("constant", "edge", "reflect", "wrap"):
        pads = cases.const(np.array([0, 0, 1, 2, 0, 1, 3, 0]))
        cases.expect(cases.op("Pad", x, pads, mode=mode), mode)
    negative = cases.const(np.array([0, 0, -1, 2, 0, 0, 3, -4]))
    cases.expect(cases.op("Pad", x, negative, cases.const(np.float32(7))), "negative")
    cut = [cases.const(np.array(value)) for value in ([1, -2], [9, 0], [2, 3], [3, -3])]
    cases.expect(cases.op("Slice", x, *cut), "slice")
    cases.check()


def test_a_padding_may_be_a_list_of_one():
    """Old exporters write it so; it need not be known before the run."""
    cases = Cases()
    pads = cases.const(np.array([0, 1, 2, 0]))
    cases.expect(cases.op("Pad", cases.normal(3, 8), pads, cases.normal(1)))
    cases.check(peer=False)


def test_the_magnitude_of_the_most_negative_number_is_itself():
    """As for the reference, and no less when something is computed of it at once."""
    cases = Cases()
    for dtype in (np.int8, np.int32, np.int64):
        low = np.iinfo(dtype).min
        size = cases.op("Abs", cases.feed(np.array([low, low + 1, -1, 0, 5], dtype)))
        zero = cases.const(np.array(0, dtype))
        cases.expect(size, f"{dtype.__name__}", 0.0)
        cases.expect(cases.op("Less", size, zero), f"less_{dtype.__name__}", 0.0)
        cases.expect(cases.op("Max", size, zero), f"max_{dtype.__name__}", 0.0)
        cases.expect(cases.op("ReduceL1", size), f"sum_{dtype.__name__}", 0.0)
    cases.check(peer=False)


def test_the_sign_of_a_negative_number_changes():
    """What is computed of a border alone is computed of a number, and `--1` is no expression."""
    cases = Cases()
    pads = cases.const(np.array([0, 3, 0, 9]))
    for dtype in (np.float32, np.int8, np.int64):
        x, fill = cases.normal(20, 40, dtype=dtype), cases.const(np.array(-2, dtype))
        for op in ("Neg", "Abs"):
            cases.expect(cases.op(op, cases.op("Pad", x, pads, fill)), f"{op}_{dtype.__name__}")
    reflected = cases.op(
        "Pad", cases.normal(40, 3), cases.const(np.array([0, 1, 0, 0])), mode="reflect"
    )
    cases.expect(cases.op("Neg", reflected), "reflected")
    cases.check()


def test_outputs_of_different_shapes():
    cases = Cases()
    for axis, sizes in ((0, (1, 3)), (1, (2, 5, 1)), (2, (4, 4, 2))):
        shape = [4, 8, 10]
        y = cases.op(
            "Split",
            cases.normal(*shape),
            cases.const(np.array(sizes)),
            axis=axis,
            n_outputs=len(sizes),
        )
        for index in range(len(sizes)):
            cases.expect(y[index], f"{axis}_{index}")
    cases.check()


def test_moves_are_index_arithmetic():
    cases = Cases()
    for shape in ((2, 12, 20), (3, 6, 16)):
        x = cases.normal(*shape)
        rank4 = cases.op(
            "Reshape", x, cases.const(np.array([shape[0], shape[1] // 2, 2, shape[2]]))
        )
        for perm in itertools.permutations(range(4)):
            turned = cases.op("Transpose", rank4, perm=perm)
            dims = [(shape[0], shape[1] // 2, 2, shape[2])[axis] for axis in perm]
            cases.expect(
                cases.op(
                    "Reshape", turned, cases.const(np.array([dims[0] * dims[1], dims[2] * dims[3]]))
                ),
                f"{shape}_{perm}",
            )
    program = cases.check()
    # Indices are divided once for a row at most, never for an element.
    inner = [line for line in _source(program).splitlines() if "out0[" in line and "i" in line]
    assert inner
    assert all("(i" not in line for line in inner)


def test_depth_and_space():
    cases = Cases()
    x = cases.normal(2, 12, 4, 6)
    for mode in ("DCR", "CRD"):
        cases.expect(cases.op("DepthToSpace", x, blocksize=2, mode=mode), mode)
    cases.expect(cases.op("SpaceToDepth", x, blocksize=2), "space")
    cases.check()


def test_broadcasts_scalars_and_long_rows():
    cases = Cases()
    for left, right in (
        ((), ()),
        ((3, 1, 5), (4, 1)),
        ((1,), (7, 2)),
        ((2, 1, 1, 3), (1, 5, 4, 1)),
        ((2, 30000), (1, 30000)),
        ((2, 9973), (2, 1)),
    ):
        cases.expect(cases.op("Sub", cases.normal(*left), cases.normal(*right)), f"{left}_{right}")
    cases.check()


def test_turned_squares():
    cases = Cases()
    for shape in ((200, 300), (16, 16), (33, 17), (15, 40), (40, 15)):
        cases.expect(cases.op("Transpose", cases.normal(*shape)), str(shape))
    x = cases.normal(3, 40, 7, 35)
    for perm in ((0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0)):
        cases.expect(cases.op("Transpose", x, perm=perm), str(perm))
    turned = cases.op("Transpose", cases.normal(2, 35, 50), perm=(0, 2, 1))
    cases.expect(
        cases.op(
            "Add",
            cases.op("Relu", turned),
            cases.op("Mul", cases.normal(2, 50, 35), cases.weights(50, 1)),
        ),
        "with others",
    )
    cases.expect(
        cases.op("Transpose", cases.feed(cases.rng.integers(0, 9, (40, 50)).astype(np.int64))),
        "integers",
    )
    program = cases.check()
    assert "w_transpose_f32x16(" in _source(program)


def test_every_work_item_once():
    cases = Cases()
    x = cases.normal(5, 7, 3)
    cases.expect(
        cases.op("Concat", x, cases.op("Tile", x, cases.const(np.array([1, 2, 1]))), axis=1)
    )
    program = cases.check()
    (segment,) = program.actions
    tasks = sum(segment.plan.steps[number].tasks for number in range(segment.plan.n_steps))  # type: ignore[union-attr]
    assert 1 <= tasks <= math.prod((5, 21, 3))


def _shuffle(channels: int, groups: int, side: int) -> NativeCase:
    rng, build = np.random.default_rng(0), GraphBuilder("shuffle")
    x = rng.standard_normal((1, -(-channels // 16), side, side, 16)).astype(np.float32)
    plain = build.op("FromBlocked", build.input("x", DType.F32, x.shape), channels=channels)
    parts = build.const(np.array([1, groups, channels // groups, side, side]))
    turned = build.op("Transpose", build.op("Reshape", plain, parts), perm=(0, 2, 1, 3, 4))
    whole = build.op("Reshape", turned, build.const(np.array([1, channels, side, side])))
    build.output("y", build.op("ToBlocked", whole, block=16))
    graph = build.finish()
    return NativeCase(
        "shuffle", graph, {"x": x}, lambda group, *_: lower_loopnest(group), AVX2, "ToBlocked"
    )


def test_a_shuffle_of_channels_divides_no_index_for_every_element():
    cases = [_shuffle(*sizes) for sizes in ((24, 4, 8), (40, 5, 6), (136, 4, 14), (32, 2, 3))]
    for case, (made,) in zip(cases, run_native(cases), strict=True):
        np.testing.assert_array_equal(made, np.asarray(case.graph.run(case.feeds)[0]))
    text = render_kernel(_shuffle(136, 4, 14).kernel(), "shuffle")
    # The innermost loop is over pixels, and no index is divided by anything it counts.
    innermost = text[: text.index("out0[")].rsplit("for (int64_t ", 1)[1].split()[0]
    assert not re.search(rf"\(?\b{innermost}\b\)? [/%]", text)


def test_a_shuffle_loads_together_what_lies_side_by_side():
    """Groups of 28 channels: 4 of them in a row are in one block, whichever they are."""
    text = render_kernel(_shuffle(112, 4, 14).kernel(), "shuffle")
    loads = re.findall(r"= in0\[(.*)\];", text)
    assert len(loads) == 16
    assert len({re.sub(r"\s*\+ \d+$", "", load) for load in loads}) == 4


def _joined_blocks(*channels: int) -> NativeCase:
    """A concatenation along channels that lie in blocks of 16."""
    rng, build = np.random.default_rng(0), GraphBuilder("joined")
    feeds = {
        f"x{place}": rng.standard_normal((2, -(-count // 16), 3, 5, 16)).astype(np.float32)
        for place, count in enumerate(channels)
    }
    parts = [
        build.op("FromBlocked", build.input(name, DType.F32, value.shape), channels=count)
        for (name, value), count in zip(feeds.items(), channels, strict=True)
    ]
    build.output("y", build.op("ToBlocked", build.op("Concat", *parts, axis=1), block=16))
    return NativeCase(
        "joined",
        build.finish(),
        feeds,
        lambda group, *_: lower_loopnest(group),
        AVX2,
        "ToBlocked",
    )


def test_a_concatenation_of_blocked_channels():
    sizes = ((24, 24, 24, 24), (16, 32), (12, 20), (8, 5, 30), (40, 3))
    cases = [_joined_blocks(*each) for each in sizes]
    for case, (made,) in zip(cases, run_native(cases), strict=True):
        np.testing.assert_array_equal(made, np.asarray(case.graph.run(case.feeds)[0]))


def test_no_channel_of_a_block_asks_where_it_is():
    """Seams may lie between blocks or within them: no comparison and no division is left."""
    for sizes in ((24, 24, 24, 24), (16, 32), (12, 20)):
        text = render_kernel(_joined_blocks(*sizes).kernel(), "joined")
        assert "?" not in text.replace("> 0 ?", "")
        assert not re.search(r"\b[bi]\d+\b\)? [/%]", text)


def test_a_rotation_is_two_loops_side_by_side():
    """Halves of a row that trade places are read without asking which half an element is in."""
    build = GraphBuilder("rotated")
    x = build.input("x", DType.F32, (6, 16))
    first, second = (
        build.op("Slice", x, *(build.const(np.array([each])) for each in (begin, begin + 8, 1)))
        for begin in (0, 8)
    )
    build.output("y", build.op("Concat", build.op("Neg", second), first, axis=1))
    values = np.random.default_rng(0).standard_normal((6, 16)).astype(np.float32)
    graph = build.finish()
    case = NativeCase(
        "rotated", graph, {"x": values}, lambda group, *_: lower_loopnest(group), AVX2, "Concat"
    )
    ((made,),) = run_native([case])
    np.testing.assert_array_equal(made, np.concatenate([-values[:, 8:], values[:, :8]], axis=1))

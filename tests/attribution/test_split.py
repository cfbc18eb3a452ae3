"""Who has which part of a kernel, on graphs where the answer is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.attribution.harness import RATES, conv_bn_relu, profile_of, program_of, shares
from whence.attribution.cost_model import CostModel
from whence.attribution.source_costs import source_costs, source_kinds
from whence.attribution.split import Splitter, inserted_nodes, largest_remainder
from whence.frontends.onnx.reader import read_onnx
from whence.graph import Graph, Node
from whence.graph.builder import GraphBuilder
from whence.kernels.ir import Member
from whence.provenance import EdgeKind, Ledger, SourceOp
from whence.types import DType

COSTS = CostModel(RATES)
WEIGHTS = st.lists(st.integers(0, 10**18), min_size=1, max_size=40)


@given(st.integers(0, 10**15), WEIGHTS)
def test_parts_add_up_and_are_fair(total: int, weights: list[int]) -> None:
    parts = largest_remainder(total, weights)
    assert sum(parts) == total
    whole = sum(weights) or len(weights)
    for part, weight in zip(parts, weights if sum(weights) else [1] * len(weights), strict=True):
        assert abs(part * whole - total * weight) < whole
    if any(weights):
        assert all(part == 0 for part, weight in zip(parts, weights, strict=True) if weight == 0)


def test_nothing_is_split_over_nobody() -> None:
    assert largest_remainder(0, []) == []
    with pytest.raises(ValueError, match="over nothing"):
        largest_remainder(3, [])


def test_two_chains_of_which_one_does_ten_times_the_work() -> None:
    build = GraphBuilder("chains")
    for name, width in (("small", 64), ("large", 640)):
        x = build.input(name, DType.F32, [256, 64])
        for number in range(2):
            x = build.op(
                "MatMul",
                x,
                build.const(np.ones((64, width), np.float32)),
                name=f"{name}/{number}/product",
            )
            x = build.op("Tanh", x, name=f"{name}/{number}/tanh")
            if number == 0:
                x = build.op(
                    "ReduceMean",
                    build.op("Reshape", x, build.const(np.array([256, 64, -1]))),
                    build.const(np.array([2])),
                    keepdims=0,
                )
        build.output(f"{name}_out", x)
    graph = build.finish()
    program = program_of(graph)
    splitter = Splitter(program, source_costs(graph, COSTS), source_kinds(graph), COSTS)
    # A machine on which everything takes as long as its arithmetic: the time of a kernel is its
    # flops.
    times = [sum(member.flops for member in step.members) for step in program.steps]
    found = profile_of(graph, times)
    part = shares(found)
    large = sum(share for name, share in part.items() if name.startswith("large/"))
    small = sum(share for name, share in part.items() if name.startswith("small/"))
    assert large / small == pytest.approx(10, rel=0.1)
    assert all(splitter.split(step) for step in program.steps)


def test_a_cheap_activation_in_a_heavy_product_costs_little() -> None:
    build = GraphBuilder("heavy")
    x = build.input("x", DType.F32, [256, 512])
    product = build.op("MatMul", x, build.const(np.ones((512, 512), np.float32)), name="product")
    build.output("y", build.op("Relu", product, name="relu"))
    found = profile_of(build.finish())
    assert len(found.kernels) == 1
    part = shares(found)
    assert part["product"] > 0.95
    assert part["relu"] < 0.05


def test_a_cheap_activation_in_a_heavy_convolution_costs_little_and_what_was_folded_costs_nothing() -> (
    None
):
    part = shares(profile_of(conv_bn_relu()))
    assert part["/net/layer1/conv"] > 0.95
    assert part["/net/layer1/bn"] == 0
    assert part["/net/layer1/relu"] < 0.05
    assert part["/net/same"] == 0


@pytest.mark.parametrize("rows", [16, 4096])
def test_an_expensive_erf_in_a_cheap_addition(rows: int) -> None:
    build = GraphBuilder("erf")
    x, y = (build.input(name, DType.F32, [rows, 256]) for name in "xy")
    build.output("z", build.op("Erf", build.op("Add", x, y, name="add"), name="erf"))
    found = profile_of(build.finish())
    assert len(found.kernels) == 1
    part = shares(found)
    # In cache the function is most of the work; while the sum waits for memory most of it hides.
    # `test_truth` measures both.
    assert 0.55 < part["erf"] < 0.8 if rows == 16 else part["erf"] < 0.25


def test_a_reference_implementation_is_split_by_the_work_as_well() -> None:
    build = GraphBuilder("heavy")
    x = build.input("x", DType.F32, [256, 512])
    product = build.op("MatMul", x, build.const(np.ones((512, 512), np.float32)), name="product")
    build.output("y", build.op("Relu", product, name="relu"))
    graph = build.finish()
    program = program_of(graph)
    (step,) = program.steps
    reference = dataclasses.replace(
        step,
        symbol="",
        members=tuple(Member(member.node, member.op, 1, 1) for member in step.members),
    )
    weights = {
        share.source: share.weight
        for share in Splitter(
            program, source_costs(graph, COSTS), source_kinds(graph), COSTS
        ).split(reference)
    }
    assert weights[1] > 0.95 * sum(weights.values())


def test_operators_with_names_of_another_format_are_known_by_what_they_were_read_as() -> None:
    graph = conv_bn_relu()
    expected = shares(profile_of(graph))
    for number, name in enumerate(("CONV_2D", "BATCH_NORM", "RELU", "NOTHING")):
        graph.ledger.sources[number] = dataclasses.replace(graph.ledger.sources[number], op=name)
    assert source_kinds(graph) == {
        1: {"Conv"},
        2: {"BatchNormalization"},
        3: {"Relu"},
        4: {"Identity"},
    }
    assert shares(profile_of(graph)) == expected


def test_a_residual_addition_pays_for_the_operand_it_reads() -> None:
    rng = np.random.default_rng(0)
    build = GraphBuilder("residual")
    x = build.input("x", DType.F32, [1, 16, 64, 64])
    y = build.op(
        "Conv", x, build.const(rng.standard_normal((16, 16, 1, 1)).astype(np.float32)), name="conv"
    )
    build.output("y", build.op("Relu", build.op("Add", y, x, name="add"), name="relu"))
    part = shares(profile_of(build.finish()))
    assert part["conv"] > part["add"] > part["relu"] > 0


@pytest.mark.parametrize("view_first", [True, False])
def test_a_view_costs_nothing_beside_what_moves_data(view_first: bool) -> None:
    build = GraphBuilder("head")
    x = build.input("x", DType.F32, [1, 64, 100] if view_first else [1, 4, 16, 100])
    if view_first:
        x = build.op("Reshape", x, build.const(np.array([1, 4, 16, 100])), name="view")
    # The innermost axis stays where it is: no element is fetched out of order.
    x = build.op("Transpose", x, perm=(0, 2, 1, 3), name="transpose")
    if not view_first:
        x = build.op("Reshape", x, build.const(np.array([1, 64, 100])), name="view")
    build.output("y", x)
    found = profile_of(build.finish())
    assert shares(found) == {"view": 0, "transpose": 1}


def test_operators_that_became_one_transpose_leave_its_time_to_the_transpose() -> None:
    build = GraphBuilder("absorbed")
    x = build.input("x", DType.F32, [8, 16, 100])
    view = build.op("Unsqueeze", x, build.const(np.array([0])), name="view")
    turned = build.op("Transpose", view, perm=(0, 1, 3, 2), name="transpose")
    build.output("y", build.op("Squeeze", turned, build.const(np.array([0])), name="narrow"))
    part = shares(profile_of(build.finish()))
    assert part["transpose"] == 1


def test_of_twins_the_one_that_stays_has_the_work_and_the_other_says_so() -> None:
    build = GraphBuilder("twins")
    x = build.input("x", DType.F32, [64, 64])
    left, right = build.op("Exp", x, name="left"), build.op("Exp", x, name="right")
    build.output("y", build.op("Softmax", left, name="one"))
    build.output("z", build.op("ReduceMax", right, name="other", keepdims=0))
    left_row, right_row, *_ = profile_of(build.finish()).sources
    assert left_row.time_ns > 0
    assert right_row.time_ns == 0
    assert right_row.became == "an identical operator does its work (merge_duplicates)"


def test_operators_of_a_pattern_are_told_apart_by_what_they_did() -> None:
    """A layer normalisation spelt out: the squares are cheap, however general a power is."""
    build = GraphBuilder("norm")
    x = build.input("x", DType.F32, [64, 256])
    axes, two, eps = (
        build.const(np.array([-1])),
        build.const(np.float32(2)),
        build.const(np.float32(1e-5)),
    )
    centred = build.op("Sub", x, build.op("ReduceMean", x, axes, name="mean"), name="sub")
    variance = build.op(
        "ReduceMean", build.op("Pow", centred, two, name="pow"), axes, name="variance"
    )
    deviation = build.op("Sqrt", build.op("Add", variance, eps, name="eps"), name="sqrt")
    y = build.op("Div", centred, deviation, name="div")
    y = build.op("Mul", y, build.const(np.ones(256, np.float32)), name="scale")
    build.output("y", build.op("Add", y, build.const(np.ones(256, np.float32)), name="bias"))
    part = shares(profile_of(build.finish()))
    assert part["pow"] < 0.3
    assert part["div"] > part["eps"]


def test_an_inserted_node_is_charged_to_its_cause_and_marked() -> None:
    ledger = Ledger()
    for number in (1, 2):
        ledger.add_source(SourceOp(number, f"op{number}", "Conv"))
    inserted, copied, merged, plain = (ledger.new_id() for _ in range(4))
    ledger.record(inserted, [(1, EdgeKind.INSERT)], "layout", "")
    ledger.record(copied, [(inserted, EdgeKind.COPY)], "later", "")
    ledger.record(merged, [(copied, EdgeKind.FUSE), (2, EdgeKind.FUSE)], "later", "")
    ledger.record(plain, [(2, EdgeKind.COPY)], "later", "")
    assert inserted_nodes(ledger) == {inserted, copied}


def test_layout_changes_show_as_such() -> None:
    """A blocked convolution between operators that are not: something has to change the layout, for
    the convolution.
    """
    found = profile_of(conv_bn_relu())
    conv = next(row for row in found.sources if row.op == "Conv")
    marked = [kernel for kernel in found.kernels if kernel.inserted]
    changes = [kernel for kernel in found.kernels if {"ToBlocked", "FromBlocked"} & set(kernel.ops)]
    assert (conv.inserted_ns > 0) == bool(changes)
    assert conv.inserted_ns == sum(
        part.inserted_ns for kernel in found.kernels for part in kernel.origin if part.id == conv.id
    )
    for kernel in marked:
        assert conv.id in {part.id for part in kernel.origin}
        assert sum(part.inserted_ns for part in kernel.origin) == kernel.time_ns


def test_the_time_of_a_loop_is_split_over_its_body() -> None:
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["carried", "w"], ["product"], name="inner_product"),
            helper.make_node("Relu", ["product"], ["next"], name="inner_relu"),
            helper.make_node("Identity", ["going"], ["still"], name="inner_same"),
        ],
        "body",
        [
            helper.make_tensor_value_info("iteration", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, [64, 64]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [64, 64]),
        ],
    )
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Loop", ["iterations", "", "x"], ["y"], name="loop", body=body)],
            "looping",
            [
                helper.make_tensor_value_info("iterations", TensorProto.INT64, []),
                helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64]),
                helper.make_tensor_value_info("w", TensorProto.FLOAT, [64, 64]),
            ],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 64])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    onnx.checker.check_model(model)
    part = shares(profile_of(read_onnx(model)))
    assert part["inner_product"] > part["inner_relu"] > 0
    assert sum(part.values()) == pytest.approx(1)


def test_a_step_without_any_origin_is_a_named_residual() -> None:
    build = GraphBuilder("odd")
    x = build.input("x", DType.F32, [8, 8])
    build.output("y", build.op("Exp", x, name="exp"))
    graph: Graph = build.finish()
    exp = next(node for node in graph if node.op == "Exp")
    # A node that nobody answers for: no pass makes one, so it is put in by hand.
    stranger = graph.insert_before(
        graph.outputs[0],
        Node(graph.new_id(), "Cast", (exp.ref(),), exp.outputs, {"to": int(DType.F32)}),
    )
    graph.set_inputs(graph.outputs[0], (stranger.ref(),))
    program = program_of(graph)
    lonely = [step for step in program.steps if not step.origin]
    found = profile_of(graph)
    assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns
    assert {name for name in found.residual_ns if name.startswith("unattributed: ")} == {
        f"unattributed: {step.name}" for step in lonely
    }

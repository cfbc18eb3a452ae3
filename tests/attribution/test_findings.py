"""Models with one known fault each: the first finding names it, with the prize that follows from
the times. Times are made up; `benchmarks/findings_truth.py` measures what mending saves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tests.attribution.harness import RATES, measured, profile_of, program_of
from whence.attribution.assemble import assemble
from whence.attribution.findings import RULES
from whence.attribution.findings.elementwise_chains import elementwise_chains
from whence.attribution.findings.measurement_quality import GUESSED
from whence.attribution.findings.tiny_kernels import tiny_kernels
from whence.attribution.profile import Profile
from whence.attribution.read import read_profile
from whence.attribution.rows import Event, KernelRow, WorkerEvent
from whence.attribution.shape_traits import trait_of
from whence.backends.cpu.generator import CpuGenerator, build_program
from whence.building.prepare import prepare_graph
from whence.codegen.toolchain import Toolchain
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.rates import ArithmeticUnit, MachineRates, Rate
from whence.types import DType


def _graph(build: Callable[[GraphBuilder], Symbol]) -> Graph:
    graph = GraphBuilder("faulty")
    graph.output("y", build(graph))
    return graph.finish()


def _few_items(graph: GraphBuilder) -> Symbol:
    """Running sums of one sequence cannot be divided."""
    x = graph.input("x", DType.F32, [1 << 20])
    return graph.op("CumSum", x, graph.const(np.array(0)), name="running")


def _reference(graph: GraphBuilder) -> Symbol:
    x = graph.op("Relu", graph.input("x", DType.F32, [4, 64, 64]), name="relu")
    return graph.op("Det", x, name="determinant")


def _transposes(graph: GraphBuilder) -> Symbol:
    x = graph.input("x", DType.F32, [64, 512, 96])
    turned = graph.op("Transpose", x, name="turn", perm=(1, 0, 2))
    return graph.op("Softmax", turned, name="softmax", axis=-1)


def _three_channels(graph: GraphBuilder) -> Symbol:
    x = graph.input("x", DType.F32, [1, 3, 64, 64])
    weights = graph.const(np.ones((32, 3, 3, 3), np.float32))
    return graph.op("Conv", x, weights, name="first", pads=(1, 1, 1, 1))


def _tiny(graph: GraphBuilder) -> Symbol:
    x = graph.input("x", DType.F32, [4, 8])
    for number in range(6):
        x = graph.op("Softmax", x, name=f"tiny{number}", axis=number % 2)
    return x


def _chain(graph: GraphBuilder) -> Symbol:
    """A sum of everything stands between each two."""
    x = graph.input("x", DType.F32, [4096, 2048])
    for number in range(3):
        x = graph.op("Mul", x, graph.op("ReduceMax", x, keepdims=1), name=f"scale{number}")
    return x


def _first(found: Profile) -> tuple[str, float]:
    best = found.findings[0]
    return best.rule, best.prize_ns / found.run_ns


def test_three_channels_in() -> None:
    graph = _graph(_three_channels)
    found = profile_of(
        graph, [1_000_000 if "conv" in step.name else 10_000 for step in program_of(graph).steps]
    )
    best = found.findings[0]
    assert best.rule == "low_share_of_peak"
    assert "3 channels in" in best.title
    assert "first" in best.title
    (kernel,) = (row for row in found.kernels if row.id in best.kernels)
    assert best.prize_ns == pytest.approx(1_000_000 * (1 - kernel.of_peak / 0.6), rel=0.01)


def test_few_channels_out_leave_lanes_empty_even_when_mended() -> None:
    """Space folded into depth fills them with products that the model does not need."""

    def build(graph: GraphBuilder) -> Symbol:
        x = graph.input("x", DType.F32, [1, 3, 64, 64])
        weights = graph.const(np.ones((3, 3, 3, 3), np.float32))
        return graph.op("Conv", x, weights, name="filter", pads=(1, 1, 1, 1))

    found = profile_of(_graph(build), 1_000_000)
    best = found.findings[0]
    assert best.rule == "low_share_of_peak"
    assert "3 channels in and 3 channels out" in best.title
    (kernel,) = found.kernels
    # Of 2 × 2 pixels together, a filter has 12 channels, in lanes for 16, and 4 times the products.
    assert kernel.reach == 12 / 16 / 4
    assert found.rates is not None
    left = kernel.best_of_peak / (found.rates.reached * kernel.reach)
    assert best.prize_ns == pytest.approx(kernel.time_ns / found.runs * (1 - left))


@pytest.mark.parametrize(
    ("channels", "size", "stride", "reach"),
    [
        # 4 × 4 pixels together have 16 channels, and Winograd's convolution 16 products for 36.
        (1, 3, 1, 36 / 16 / 16),
        # 4 × 4 pixels together read 3 × 3 blocks of 4 × 4 where the filter reads 7 × 7 pixels.
        (4, 7, 1, 36 / 16 * (7 / 12) ** 2),
        (4, 1, 1, 1 / 4),
        # Two steps of 2 pixels read 2 blocks of 4, where the filter reads 3 pixels.
        (2, 3, 2, (3 / 8) ** 2),
    ],
)
def test_what_folding_space_into_depth_leaves_of_the_peak(
    channels: int, size: int, stride: int, reach: float
) -> None:
    def build(graph: GraphBuilder) -> Symbol:
        x = graph.input("x", DType.F32, [1, 3, 64, 64])
        weights = graph.const(np.ones((channels, 3, size, size), np.float32))
        pads = ((size - 1) // 2,) * 4
        return graph.op("Conv", x, weights, pads=pads, strides=(stride, stride))

    kernels = profile_of(_graph(build), 1_000_000).kernels
    assert [row.reach for row in kernels if row.is_contraction] == [pytest.approx(reach)]


def test_an_operator_in_reference() -> None:
    found = profile_of(_graph(_reference), [50_000, 900_000])
    best = found.findings[0]
    assert best.rule == "reference_operators"
    assert "Det runs in reference" in best.title
    assert best.prize_ns / found.run_ns == pytest.approx(0.9, abs=0.1)
    assert any("why:" in fact for fact in best.evidence)


def test_a_transpose_that_nothing_needs() -> None:
    found = profile_of(_graph(_transposes), 1_000_000)
    if len(found.kernels) == 1:
        pytest.fail("the transpose was fused: this is no constructed fault any more")
    best = found.findings[0]
    assert best.rule == "data_movement"
    assert "Transpose moves data" in best.title
    assert best.prize_ns == pytest.approx(1_000_000, rel=0.01)


def test_a_transpose_for_an_operator_that_computes_is_not_said_to_be_that_operator() -> None:
    """A convolution of a file with channels last: it is another kernel that computes."""
    made = profile_of(_graph(_transposes), 1_000_000)
    turn, softmax = made.kernels
    (origin,) = turn.origin
    both = dataclasses.replace(softmax, origin=(*softmax.origin, origin))
    found = dataclasses.replace(made, kernels=(turn, both))
    titles = [each.title for each in found.findings if each.rule == "data_movement"]
    assert titles == ["Transpose around Transpose: 50 % of the time, turn"]


def test_what_another_engine_inserts_is_no_work_of_the_operator() -> None:
    """And which part of the engine inserts it, or how large it is, is not known."""
    made = profile_of(_graph(_transposes), 1_000_000)
    turn, softmax = made.kernels
    turn = dataclasses.replace(turn, bytes=0, executed_bytes=0)
    inserted = dataclasses.replace(turn, id=2, ops=("Reorder",), inserted=True)
    found = dataclasses.replace(made, engine="others 1.0", kernels=(turn, softmax, inserted))
    moved, changed = (
        next(each for each in found.findings if each.rule == rule)
        for rule in ("data_movement", "layout_changes")
    )
    assert moved.title.startswith("Transpose moves data and computes nothing: ")
    assert moved.evidence == ()
    assert ", inserted by others 1.0 for turn" in changed.title


def test_kernels_slow_for_one_reason_are_one_finding() -> None:
    def build(graph: GraphBuilder) -> Symbol:
        x = graph.input("x", DType.F32, [1, 3, 64, 64])
        for number, made in enumerate((3, 2)):
            weights = graph.const(np.ones((made, 3, 3, 3), np.float32))
            y = graph.op("Conv", x, weights, name=f"filter{number}", pads=(1, 1, 1, 1))
            graph.output(f"y{number}", y)
        return graph.op("Relu", x, name="relu")

    found = [
        each
        for each in profile_of(_graph(build), 1_000_000).findings
        if each.rule == "low_share_of_peak"
    ]
    assert len(found) == 1
    assert found[0].title.startswith("2 kernels (filter")
    assert ": few channels; " in found[0].title
    assert len(found[0].kernels) == 2


def test_long_names_are_shortened() -> None:
    def build(graph: GraphBuilder) -> Symbol:
        x = graph.input("x", DType.F32, [64, 512, 96])
        name = ";".join(f"net/block_{number}/Relu" for number in range(8))
        turned = graph.op("Transpose", x, name=name, perm=(1, 0, 2))
        return graph.op("Softmax", turned, name="softmax", axis=-1)

    title = profile_of(_graph(build), 1_000_000).findings[0].title
    assert title.endswith("of the time, net/block_0/Rel…et/block_6/Relu;net/block_7/Relu")


def test_channels_of_integer_convolutions_are_last() -> None:
    """(made, k..., read in a group): a filter of one row reads more than one channel."""
    graph = GraphBuilder("integers")
    x = graph.input("x", DType.I8, [1, 1, 40, 16])
    weights = graph.const(np.ones((32, 1, 1, 16), np.int8))
    graph.output("y", graph.op("IntegerConv", x, weights, name="conv"))
    program = program_of(graph.finish())
    (trait,) = (trait_of(program.graph, step) for step in program.steps)
    assert trait.kind == "small"


def test_layout_changes_are_told_by_the_pass_that_inserted_them() -> None:
    graph = GraphBuilder("layouts")
    x = graph.input("x", DType.F32, [1, 32, 28, 28])
    weights = graph.const(np.ones((32, 32, 3, 3), np.float32))
    graph.output("y", graph.op("Conv", x, weights, name="conv", pads=(1, 1, 1, 1)))
    made = graph.finish()
    steps = program_of(made).steps
    found = profile_of(
        made, [900_000 if len(step.nodes) and "block" in step.name else 1_000 for step in steps]
    )
    best = found.findings[0]
    assert best.rule == "layout_changes"
    assert "inserted by block_channels for conv" in best.title


def test_tiny_kernels() -> None:
    graph = _graph(_tiny)
    found = profile_of(graph, 300)
    assert _first(found)[0] == "tiny_kernels"
    assert _first(found)[1] == pytest.approx(1.0, abs=0.15)
    kernels = (found.kernels[0],)
    (one,) = tiny_kernels(dataclasses.replace(found, kernels=kernels))
    assert one.title.startswith("1 tiny kernel takes ")
    assert " of the time, and its work " in one.title


def test_elementwise_kernels_in_a_row() -> None:
    graph = _graph(_chain)
    found = profile_of(graph, 20_000_000)
    chains = [each for each in found.findings if each.rule == "elementwise_chains"]
    assert chains
    # Each maximum reads what the product before it made, and so does the next product.
    assert len(chains[0].kernels) == len(found.kernels) == 6
    assert chains[0].prize_ns == pytest.approx((2 * 2 + 2) / (3 + 3 * 2) * found.run_ns, rel=0.01)


def test_the_last_of_a_chain_belongs_to_it_though_threads_wait_in_it() -> None:
    found = profile_of(_graph(_chain), 20_000_000)
    last = dataclasses.replace(found.kernels[-1], bound="waiting")
    (waiting,) = elementwise_chains(dataclasses.replace(found, kernels=(*found.kernels[:-1], last)))
    (all_moving,) = elementwise_chains(found)
    assert waiting.prize_ns == all_moving.prize_ns
    # One that computes much for every byte is no part of it.
    busy = dataclasses.replace(last, flops=10 * last.bytes)
    (shorter,) = elementwise_chains(dataclasses.replace(found, kernels=(*found.kernels[:-1], busy)))
    assert len(shorter.kernels) == len(found.kernels) - 1


def test_too_few_work_items() -> None:
    graph = _graph(_few_items)
    program = program_of(graph)
    times = [2_000_000] * len(program.steps)
    found = assemble(
        graph, program, measured(program, times), model="m", engine="cpu", threads=8, rates=RATES
    )
    best = next(each for each in found.findings if each.rule == "few_work_items")
    assert "1 work item for 8 threads" in best.title
    # An eighth of the time, or what memory needs: these rates are of a machine with two threads.
    (kernel,) = (row for row in found.kernels if row.id in best.kernels)
    left = max(2_000_000 / 8, kernel.least_ns)
    assert best.prize_ns == pytest.approx(2_000_000 - left, rel=0.01)


@pytest.mark.parametrize("threads", [4, 16])
def test_the_mean_of_few_large_channels_has_work_for_all_threads(threads: int) -> None:
    def build(graph: GraphBuilder) -> Symbol:
        x = graph.input("x", DType.F32, [1, 3, 224, 224])
        weights = graph.const(np.ones((32, 3, 3, 3), np.float32))
        return graph.op("GlobalAveragePool", graph.op("Conv", x, weights, pads=(1, 1, 1, 1)))

    graph = _graph(build)
    generator = CpuGenerator(Toolchain(), threads, load=False)
    prepared = graph.copy()
    prepare_graph(prepared, generator.preferences)
    program = build_program(prepared, Toolchain(), threads=threads, load=False)
    # As long as its operations are many, each kernel takes its time.
    times = [2 * sum(each.flops for each in step.members) // 100 + 1 for step in program.steps]
    found = assemble(
        graph,
        program,
        measured(program, times),
        model="m",
        engine="cpu",
        threads=threads,
        rates=RATES,
    )
    large = [row for row in found.kernels if row.flops > 1_000_000]
    assert len(large) == 2
    assert all(row.items >= threads for row in large)
    assert not _prizes(found, "few_work_items")


def with_kernels(profile: Profile, threads: int, rates: MachineRates, *rows: KernelRow) -> Profile:
    return dataclasses.replace(
        profile,
        threads=threads,
        rates=rates,
        kernels=rows,
        runs=1,
        wall_ns=sum(row.time_ns for row in rows),
        runs_ns=(sum(row.time_ns for row in rows),),
    )


SIXTEEN = dataclasses.replace(
    RATES,
    measured=True,
    threads=16,
    peak={ArithmeticUnit.F32: Rate(50.0, 500.0)},
    barrier_ns=5_000,
    wake_ns=30_000,
)
"""16 threads do ten times what one does."""


def _prizes(profile: Profile, rule: str) -> list[float]:
    return [each.prize_ns for each in profile.findings if each.rule == rule]


@pytest.mark.parametrize(
    ("items", "waited", "expected"),
    [
        # As many as threads, or twice as many: no thread has more than another, whatever they wait.
        (16, 40_000, None),
        (32, 40_000, None),
        # 17 for 16: in the second round all but one wait, if they do; the wake-up and the meeting
        # stay.
        (17, 90_000, 15 / 32),
        (17, 75_000, 0.75 - 0.05 - 0.3 * 15 / 16),
        (17, 30_000, None),
        # 28 for 16 are at most an eighth.
        (28, 90_000, 1 / 8),
    ],
)
def test_waiting_is_of_few_items_only_as_far_as_threads_have_unequal_numbers_of_them(
    items: int, waited: int, expected: float | None
) -> None:
    made = profile_of(_graph(_three_channels), 100_000)
    row = dataclasses.replace(
        made.kernels[0], time_ns=100_000, calls=1, waited_ns=waited, items=items, workers=16,
        bound="compute", least_ns=20_000,
    )  # fmt: skip
    found = _prizes(with_kernels(made, 16, SIXTEEN, row), "few_work_items")
    assert found == ([] if expected is None else [pytest.approx(expected * 100_000)])


def test_how_other_engines_divide_their_work_is_not_told() -> None:
    """Their profiles say of no kernel how many work items it has, or what dispatch is."""
    found = profile_of(_graph(_few_items), 1_000_000)
    own = dataclasses.replace(found, residual_ns={"dispatch": found.wall_ns // 2})
    assert {"few_work_items", "much_dispatch"} <= {each.rule for each in own.findings}
    other = dataclasses.replace(own, engine="onnxruntime 1.31.1")
    assert not {"few_work_items", "much_dispatch"} & {each.rule for each in other.findings}


def test_idle_threads_would_save_what_the_machine_gains_by_them() -> None:
    """Ten times with 16 threads, less what it costs that they meet, and not below what memory
    needs.
    """
    made = profile_of(_graph(_few_items), 1_000_000)
    row = dataclasses.replace(
        made.kernels[0], time_ns=1_000_000, calls=1, items=1, workers=1, bound="compute", least_ns=0
    )
    (prize,) = _prizes(with_kernels(made, 16, SIXTEEN, row), "few_work_items")
    assert prize == pytest.approx(1_000_000 * (1 - 1 / 10) - 5_000)
    slow = dataclasses.replace(row, least_ns=600_000)
    (prize,) = _prizes(with_kernels(made, 16, SIXTEEN, slow), "few_work_items")
    assert prize == pytest.approx(400_000 - 5_000)


def test_without_a_transpose_the_next_kernel_wakes_the_threads() -> None:
    made = profile_of(_graph(_transposes), 50_000)
    assert len(made.kernels) == 2
    turn, softmax = (
        dataclasses.replace(row, time_ns=50_000, calls=1, items=512, workers=16, least_ns=5_000)
        for row in made.kernels
    )
    assert _prizes(with_kernels(made, 16, SIXTEEN, turn, softmax), "data_movement") == [
        50_000 - 30_000 * 15 / 16
    ]
    # The second kernel of a run finds them awake, and where no other is shared nobody wakes them.
    assert _prizes(with_kernels(made, 16, SIXTEEN, softmax, turn), "data_movement") == [50_000]
    alone = dataclasses.replace(softmax, workers=1)
    assert _prizes(with_kernels(made, 16, SIXTEEN, turn, alone), "data_movement") == [50_000]


def test_how_late_threads_are_is_taken_from_the_run_in_which_they_noted_it() -> None:
    made = profile_of(_graph(_transposes), 50_000)
    turn, softmax = (
        dataclasses.replace(row, time_ns=50_000, calls=1, items=512, workers=4, least_ns=5_000)
        for row in made.kernels
    )
    lanes = [WorkerEvent(worker, turn.id, 1_000 + 8_000 * worker, 51_000) for worker in range(3)]
    found = dataclasses.replace(
        with_kernels(made, 4, SIXTEEN, turn, softmax),
        timeline=(Event(turn.id, 1_000, 51_000), Event(softmax.id, 51_000, 101_000)),
        workers=(*lanes, *(WorkerEvent(each, softmax.id, 51_000, 101_000) for each in range(4))),
    )
    # 8 and 16 us late, and one that never came.
    assert _prizes(found, "data_movement") == [50_000 - (8_000 + 16_000 + 50_000) / 4]


def test_what_makes_figures_doubtful_has_no_prize_and_stands_last() -> None:
    found = profile_of(_graph(_three_channels), 1_000_000)
    noisy = dataclasses.replace(
        found, environment={GUESSED: "--shape x=1x3x64x64"}, runs_ns=(100, 200, 300, 400), runs=4
    )
    rules = [each.rule for each in noisy.findings]
    assert rules[-3:] == ["guessed_shapes", "noise", "unmeasured_machine"]
    assert "--shape x=1x3x64x64" in noisy.findings[-3].title
    assert [each.prize_ns for each in noisy.findings[-3:]] == [0, 0, 0]


def test_findings_are_the_same_when_the_profile_is_read_back(tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    found = profile_of(_graph(_tiny), 300)
    found.save(tmp_path)
    assert read_profile(tmp_path).findings == found.findings
    assert [each["rule"] for each in found.to_dict()["findings"]] == [
        each.rule for each in found.findings
    ]


def test_nothing_is_found_in_an_empty_profile() -> None:
    found = dataclasses.replace(
        profile_of(_graph(_tiny), 300), kernels=(), sources=(), runs=0, runs_ns=(), wall_ns=0,
        residual_ns={}, rates=None,
    )  # fmt: skip
    assert found.findings == []


def test_every_rule_is_a_function_with_a_name_of_its_own() -> None:
    names = [getattr(rule, "__name__", "") for rule in RULES]
    assert len(set(names)) == len(names)

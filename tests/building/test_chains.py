"""Kernels of neighbouring layers that are interleaved: in what order, where their values lie, and
that results stay what they are.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import whence.building.chains
from tests.building.layers import Layers, small_cache
from tests.cpu_backend import cpu_backend
from whence.api import compile_model
from whence.attribution import profile_executable
from whence.backends.cpu.generator import CpuGenerator
from whence.backends.cpu.instance import Instance
from whence.building.build import build, lower_graph
from whence.building.chains import slices_of
from whence.building.location import MemoryRegion
from whence.building.native_code import LONGEST_CHAIN
from whence.building.plan_json import decode_plan, encode_plan
from whence.building.program import Chain, Program, Segment
from whence.graph import Graph
from whence.graph.state import initial_state
from whence.kernels.ir.slices import Slice, Slices
from whence.kernels.lower import Step
from whence.ops.definition import OpClass, Pattern
from whence.ops.registry import REGISTRY, operators
from whence.ops.traits import Trait
from whence.runtime.engine import Engine
from whence.runtime.native_library import runtime_unit
from whence.runtime.profiler import Profiler
from whence.runtime.state_memory import StateMemory


def bottlenecks() -> tuple[Graph, np.ndarray]:
    """Two inverted residuals, the first with a stride, the second with a residual."""
    layers = Layers(16, 33, 29)
    first = layers.inverted_residual(layers.x, 16, 48, stride=2)
    return layers.finish(layers.inverted_residual(first, 16, 80)), layers.data()


def read_twice() -> tuple[Graph, np.ndarray]:
    """A value that a layer goes over slice by slice, and that is added up with its columns moved."""
    layers = Layers(16, 24, 24)
    first = layers.conv(layers.x, 16, 32)
    moved = layers.build.op("Transpose", first, perm=(0, 1, 3, 2))
    second = layers.build.op("Add", layers.conv(first, 32, 32), moved)
    return layers.finish(layers.conv(second, 32, 16)), layers.data()


def pooled() -> tuple[Graph, np.ndarray]:
    """Pools, a convolution without padding, and an output in the middle."""
    layers = Layers(3, 40, 31)
    first = layers.conv(layers.x, 3, 32, 3, strides=(2, 2))
    small = layers.build.op("MaxPool", first, kernel_shape=(3, 3), strides=(1, 1))
    last = layers.conv(small, 32, 24, 5, strides=(2, 1), dilations=(1, 2), pads=(0, 0, 0, 0))
    average = layers.build.op("AveragePool", last, kernel_shape=(2, 2), pads=(1, 1, 0, 0))
    return layers.finish(average, small), layers.data()


def last_row() -> tuple[Graph, np.ndarray]:
    """A view of a layer's last row, which the layer after the next adds to every row."""
    layers = Layers(16, 24, 24)
    first = layers.conv(layers.x, 16, 16)
    begin, end, axis = (layers.build.const(np.array([value])) for value in (23, 24, 2))
    row = layers.build.op("Slice", first, begin, end, axis)
    made = layers.conv(layers.conv(first, 16, 16), 16, 16)
    return layers.finish(layers.conv(layers.build.op("Add", made, row), 16, 16)), layers.data()


def many_layers() -> tuple[Graph, np.ndarray]:
    """More than a chain has: there is another one behind it."""
    layers = Layers(16, 24, 24)
    value = layers.x
    for _ in range(LONGEST_CHAIN + 2):
        value = layers.conv(value, 16, 16)
    return layers.finish(value), layers.data()


Model = Callable[[], tuple[Graph, np.ndarray]]
MODELS: tuple[Model, ...] = (bottlenecks, read_twice, pooled, last_row, many_layers)


def program_of(graph: Graph, engine: Engine, cache: int = 1 << 14) -> Program:
    return build(graph, CpuGenerator(small_cache(cpu_backend(engine).toolchain, cache)))


def chains_of(program: Program) -> Sequence[Chain]:
    return [
        chain
        for action in program.actions
        if isinstance(action, Segment)
        for chain in action.chains
    ]


@pytest.fixture(scope="module")
def alone() -> Engine:
    return Engine(threads=1)


@pytest.mark.parametrize("model", MODELS)
def test_results_are_those_of_one_layer_after_the_other(
    model: Model, alone: Engine, engine: Engine
) -> None:
    graph, x = model()
    program = program_of(graph, alone)
    assert chains_of(program)
    interleaved = Instance(program, cpu_backend(alone)).run([x])
    # Where threads share each kernel, the same steps run one after the other.
    in_order = Instance(program, cpu_backend(engine)).run([x])
    for found, same, expected in zip(interleaved, in_order, graph.run([x]), strict=True):
        np.testing.assert_array_equal(found, same)
        np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_every_work_item_runs_once_and_behind_what_it_reads(model: Model, alone: Engine) -> None:
    graph, _ = model()
    generator = CpuGenerator(small_cache(cpu_backend(alone).toolchain))
    lowered = lower_graph(graph, generator)
    steps = [each.step for each in lowered.steps]
    assert lowered.chains
    for chain in lowered.chains:
        numbers = range(chain.first, chain.last + 1)
        done: dict[int, set[int]] = {number: set() for number in numbers}
        makers = {steps[number].outputs[0]: number for number in numbers}
        for each in chain.ranges:
            step, slices = steps[each.step], slices_of(steps[each.step])
            assert slices is not None
            items = set(range(each.begin, each.end))
            assert items
            assert not items & done[each.step]
            (part,) = (part for part in slices.parts if (each.begin, each.end) in part.tasks)
            for ref in step.inputs:
                owner = lowered.layout.owner(ref)
                if owner in makers:
                    made = slices_of(steps[makers[owner]])
                    assert made is not None
                    finished = [
                        other.made
                        for other in made.parts
                        if all(set(range(*tasks)) <= done[makers[owner]] for tasks in other.tasks)
                    ]
                    needed = part.read if ref == owner else made.parts[-1].made
                    assert max(finished, default=0) >= needed
            done[each.step] |= items
        for number in numbers:
            kernel = steps[number].kernel
            assert kernel is not None
            assert done[number] == set(range(kernel.tasks))


@pytest.mark.parametrize("model", MODELS)
def test_values_of_a_chain_lie_apart(model: Model, alone: Engine) -> None:
    """What an earlier layer reads is still needed when a later one writes."""
    graph, _ = model()
    lowered = lower_graph(graph, CpuGenerator(small_cache(cpu_backend(alone).toolchain)))
    places = lowered.layout.places
    for chain in lowered.chains:
        steps = [each.step for each in lowered.steps[chain.first : chain.last + 1]]
        named = {ref for step in steps for ref in (*step.inputs, *step.outputs)}
        used = {lowered.layout.owner(ref) for ref in named}
        spans = sorted(
            (places[ref].offset, places[ref].offset + graph.nbytes(ref))
            for ref in used
            if ref in places and places[ref].region is MemoryRegion.ARENA
        )
        assert len(spans) > 1
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_state_is_that_of_one_layer_after_the_other(alone: Engine, engine: Engine) -> None:
    """Also where what is made in the middle is the next value of a variable that is read later."""
    layers = Layers(16, 24, 24)
    build = layers.build
    before = build.variable("before", layers.data())
    middle = build.variable("middle", layers.data())
    first = layers.conv(build.op("Add", layers.x, before), 16, 16)
    second = layers.conv(first, 16, 16)
    third = layers.conv(build.op("Add", second, middle), 16, 16)
    build.assign("before", build.op("Add", layers.conv(third, 16, 16), before))
    build.assign("middle", second)
    graph = layers.finish(third)
    program = program_of(graph, alone)
    assert chains_of(program)
    states = [StateMemory(program) for _ in range(2)]
    instances = [Instance(program, cpu_backend(each)) for each in (alone, engine)]
    expected = initial_state(graph)
    for scale in range(1, 4):
        x = scale * layers.data()
        (interleaved,), (in_order,) = (
            instance.run([x], state=state)
            for instance, state in zip(instances, states, strict=True)
        )
        np.testing.assert_array_equal(interleaved, in_order)
        (made,) = graph.run([x], state=expected)
        np.testing.assert_allclose(interleaved, np.asarray(made), rtol=1e-3, atol=1e-3)
    one, other = (state.values() for state in states)
    for name in ("before", "middle"):
        np.testing.assert_array_equal(one[name], other[name])
        np.testing.assert_allclose(one[name], np.asarray(expected[name]), rtol=1e-3, atol=1e-3)


def test_a_chain_has_no_more_steps_than_the_run_time_library_has_room_for(alone: Engine) -> None:
    chains = chains_of(program_of(many_layers()[0], alone))
    assert [chain.last - chain.first + 1 for chain in chains] == [LONGEST_CHAIN, 2]
    headers = dict(runtime_unit().headers)
    assert f"WH_LONGEST_CHAIN = {LONGEST_CHAIN} " in headers["whence_runtime.h"]


def test_nothing_that_checks_indices_joins_a_convolution() -> None:
    """The run-time library asks behind a chain no more whether an index was outside its axis."""
    for op in operators(Trait.CHECKS_INDICES):
        assert REGISTRY[op].pattern > Pattern.BROADCAST
        is_by_element = OpClass.ELEMENTWISE in REGISTRY[op].classes
        assert REGISTRY[op].pattern is Pattern.OPAQUE or not is_by_element


def test_a_chain_ends_where_what_follows_needs_all_of_it(alone: Engine) -> None:
    """The last layer of the second residual adds up the whole image that the first one makes: that
    is made before anything after it, and what it was made of need not stay.
    """
    chains = chains_of(program_of(bottlenecks()[0], alone))
    assert [(chain.first, chain.last) for chain in chains] == [(1, 3), (4, 6)]
    # A kernel as high as the image reads all of it for the first slice.
    layers = Layers(16, 24, 24)
    high = layers.conv(layers.conv(layers.x, 16, 16), 0, 16, 47)
    assert not chains_of(program_of(layers.finish(high), alone))


def test_what_fits_the_cache_or_is_shared_by_threads_is_not_interleaved(alone: Engine) -> None:
    graph, _ = bottlenecks()
    assert not chains_of(program_of(graph, alone, cache=1 << 24))
    toolchain = small_cache(cpu_backend(alone).toolchain)
    assert not chains_of(build(graph, CpuGenerator(toolchain, threads=2)))


class CountedReads(tuple[Slice, ...]):
    """Slices that count how often one of them is looked at."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        CountedReads.reads += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Slice]:
        for each in super().__iter__():
            CountedReads.reads += 1
            yield each


def test_of_many_slices_few_are_looked_at_for_each(
    alone: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image of a camera has thousands, and compiling must not take their number squared."""

    def counted(step: Step) -> Slices | None:
        found = slices_of(step)
        return None if found is None else found._replace(parts=CountedReads(found.parts))

    monkeypatch.setattr(whence.building.chains, "slices_of", counted)
    layers = Layers(16, 600, 30)
    graph = layers.finish(layers.inverted_residual(layers.x, 16, 48, stride=2))
    generator = CpuGenerator(small_cache(cpu_backend(alone).toolchain))
    (chain,) = lower_graph(graph, generator).chains
    assert len(chain.ranges) > 700
    assert CountedReads.reads < 8 * len(chain.ranges)


def test_a_batch_is_not_interleaved(alone: Engine) -> None:
    layers = Layers(16, 24, 24, images=2)
    graph = layers.finish(layers.inverted_residual(layers.x, 16, 48))
    assert not chains_of(program_of(graph, alone))


def test_a_profile_has_each_kernel_once_and_adds_up() -> None:
    """Also where the cache is that of the machine."""
    layers = Layers(16, 160, 160)
    graph = layers.finish(layers.inverted_residual(layers.x, 16, 96))
    model = compile_model(graph, threads=1)
    (program,) = model.programs
    if program.details.tile.is_large(4 * 96 * 160 * 160):
        assert chains_of(program)
        assert any(step.slices > 1 for step in program.steps)
    found = profile_executable(model, runs=3, warmup=1)
    assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns
    assert all(kernel.calls == 3 for kernel in found.kernels)


def test_samples_of_a_chain_follow_each_other(alone: Engine) -> None:
    graph, x = bottlenecks()
    program = program_of(graph, alone)
    profiler = Profiler()
    profiler.begin(program)
    Instance(program, cpu_backend(alone)).run([x], profiler)
    samples = profiler.samples()
    assert samples["step"].tolist() == list(range(len(program.steps)))
    assert (samples["begin"][1:] >= samples["end"][:-1]).all()
    assert (samples["end"] > samples["begin"]).all()


def test_chains_are_cached_with_the_plan(alone: Engine) -> None:
    graph, _ = bottlenecks()
    program = program_of(graph, alone)
    record = json.loads(json.dumps(encode_plan(program.plan)))
    again = decode_plan(record, program.library)
    assert [a.chains for a in again.actions if isinstance(a, Segment)] == [
        a.chains for a in program.actions if isinstance(a, Segment)
    ]

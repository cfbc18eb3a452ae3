"""Small graphs whose kernels are timed to learn what an operator costs: the code is what a model
with that operator would run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from whence.building.nominal_rates import SCALAR_CYCLES, VECTOR_CYCLES
from whence.codegen.emit import emit
from whence.codegen.toolchain import SourceUnit
from whence.errors import UnsupportedError
from whence.fusion import find_groups, fuse
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.kernels.ir import Kernel
from whence.kernels.lower import lower
from whence.kernels.tile import Tile
from whence.ops.registry import lookup, operators
from whence.ops.traits import Trait
from whence.passes.manager import run_passes
from whence.passes.pipeline import PREPARE
from whence.rates import BY_UNITS
from whence.types import DType, TensorType

_COLUMNS = 256
EPILOGUES = ("Sigmoid", "Tanh", "Gelu")
"""The functions that are measured behind products and convolutions."""
ANCHOR_FLOPS = {"product": 2 * 128 * 64 * _COLUMNS, "convolution": 2 * 64 * 64 * 24 * 24}
"""What the product and the convolution that functions are measured behind compute."""
_ANCHORS = operators(Trait.PRODUCT) | operators(Trait.CONVOLUTION)


@dataclass(frozen=True, slots=True)
class Probe:
    """One kernel, and how much it works on."""

    name: str
    kernel: Kernel
    elements: int
    """Of its result."""
    bytes: int
    """That it reads and writes."""
    weights: Mapping[int, np.ndarray] = field(default_factory=dict)
    """By operand, as the kernel wants them packed."""


def element_probes(tile: Tile, elements: int) -> list[Probe]:
    """One for each operator whose cost is measured, on so many elements."""
    rows = max(1, elements // _COLUMNS)
    return [_probe(op, tile, rows, partial(_apply, op)) for op in (*VECTOR_CYCLES, *SCALAR_CYCLES)]


def sum_probes(tile: Tile, elements: int) -> list[Probe]:
    """A sum of two tensors, and the error function of one: how arithmetic and traffic overlap."""
    rows = max(1, elements // _COLUMNS)
    return [
        _probe(f"Add {rows}", tile, rows, _sum),
        _probe(
            f"Add Erf {rows}", tile, rows, lambda graph, x, y: graph.op("Erf", _sum(graph, x, y))
        ),
    ]


def transpose_probes(tile: Tile, side: int) -> list[Probe]:
    """A sum of matrices, without and with one of the operands transposed on the way."""
    builds = {"Straight": _sum, "Transposed": _transposed_sum}
    return [_probe(f"{name} {side}", tile, side, build, side) for name, build in builds.items()]


def epilogue_probes(tile: Tile, units: Tile) -> dict[str, list[Probe]]:
    """A product and a convolution, each alone and with each of `EPILOGUES` applied to its results,
    by vectors and, where the machine has them, by matrix units, which go on by themselves while
    vectors do what follows.
    """
    kinds = [("", tile), *([(BY_UNITS, units)] if units.bf16x2 else [])]
    found = {}
    for name, build in (("product", _product), ("convolution", _convolution)):
        for suffix, by in kinds:
            family = name + suffix
            probes = [
                _anchored(f"{family} {function}", by, build, function)
                for function in ("", *EPILOGUES)
            ]
            if all(probe.kernel.reduced_precision == bool(suffix) for probe in probes):
                found[family] = probes
    return found


_Build = Callable[[GraphBuilder, Symbol, Symbol], Symbol]


def _apply(op: str, graph: GraphBuilder, x: Symbol, y: Symbol) -> Symbol:
    if op == "Mod":
        return graph.op(op, x, y, fmod=1)
    if len(lookup(op).operands.names) == 2:
        return graph.op(op, x, y)
    if op == "LayerNormalization":
        scale = graph.const(np.ones(_COLUMNS, np.float32))
        return graph.op(op, x, scale, scale, axis=-1)
    return graph.op(op, x, axis=-1) if op == "Softmax" else graph.op(op, x)


def _sum(graph: GraphBuilder, x: Symbol, y: Symbol) -> Symbol:
    return graph.op("Add", x, y)


def _transposed_sum(graph: GraphBuilder, x: Symbol, y: Symbol) -> Symbol:
    return _sum(graph, graph.op("Transpose", x, perm=(1, 0)), y)


def _product(graph: GraphBuilder) -> Symbol:
    x = graph.input("x", DType.F32, [128, 64])
    return graph.op("MatMul", x, graph.const(_weights(64, _COLUMNS)))


def _convolution(graph: GraphBuilder) -> Symbol:
    x = graph.input("x", DType.F32, [1, 64, 24, 24])
    return graph.op("Conv", x, graph.const(_weights(64, 64, 1, 1)))


def _weights(*shape: int) -> np.ndarray:
    """So small that sums of 64 products are about 1, as in a model: functions of huge numbers, or
    of none, can take ten times as long.
    """
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32) / 8


def _anchored(
    name: str, tile: Tile, build: Callable[[GraphBuilder], Symbol], function: str
) -> Probe:
    """The kernel of a model's convolution or product, as the passes leave it."""
    graph = GraphBuilder("probe")
    value = build(graph)
    graph.output("z", graph.op(function, value) if function else value)
    prepared = graph.finish()
    run_passes(prepared, PREPARE)
    (step,) = (
        step
        for step in lower(fuse(prepared, find_groups(prepared, "dominator")), tile)
        if step.kernel is not None and any(node.op in _ANCHORS for node in step.members)
    )
    assert step.kernel is not None
    (kind,) = (prepared.type_of(ref) for ref in step.outputs)
    elements = kind.elements if isinstance(kind, TensorType) else None
    packings = step.kernel.packings
    weights = {
        position: packings[position](const) if position in packings else const
        for position, ref in enumerate(step.inputs)
        if (const := prepared.const_value(ref)) is not None
    }
    return _measured(name, step.kernel, elements or 1, weights)


def _probe(name: str, tile: Tile, rows: int, build: _Build, columns: int = _COLUMNS) -> Probe:
    graph = GraphBuilder("probe")
    x, y = (graph.input(each, DType.F32, [rows, columns]) for each in "xy")
    graph.output("z", build(graph, x, y))
    return _measured(name, _kernel(graph.finish(), tile), rows * columns)


def _measured(
    name: str, kernel: Kernel, elements: int, weights: Mapping[int, np.ndarray] | None = None
) -> Probe:
    operands = sum(buffer.elements * buffer.dtype.numpy.itemsize for buffer in kernel.params)
    return Probe(name, kernel, elements, operands, weights or {})


def _kernel(graph: Graph, tile: Tile) -> Kernel:
    steps = lower(fuse(graph, find_groups(graph, "dominator")), tile)
    (step,) = (step for step in steps if not step.is_view)
    if step.kernel is None:
        raise UnsupportedError(f"the machine cannot be measured: {step.why_reference}")
    return step.kernel


def emit_probes(probes: Sequence[Probe]) -> tuple[Mapping[str, str], Sequence[SourceUnit]]:
    """By probe its function, and the C that has them."""
    emitted = emit([probe.kernel for probe in probes], [[probe.name] for probe in probes])
    names = [probe.name for probe in probes]
    return dict(zip(names, emitted.symbols, strict=True)), emitted.units


def operands_of(probe: Probe, rng: np.random.Generator) -> list[np.ndarray]:
    """The weights, and numbers of which every operator has a result, near 1."""
    return [
        np.ascontiguousarray(probe.weights[position]).reshape(-1)
        if position in probe.weights
        else (0.5 + rng.random(buffer.elements, np.float32)).astype(buffer.dtype.numpy)
        for position, buffer in enumerate(probe.kernel.params)
    ]

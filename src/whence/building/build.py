"""Building a program: fuse, lower, render and plan a prepared graph, whatever the backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whence.building.allocate import allocate, values_within
from whence.building.backend import CodeGenerator, Lowered, LoweredStep, Progress, Rendered
from whence.building.chains import find_chains
from whence.building.in_place_concat import concat_in_place
from whence.building.memory_layout import Aliasing
from whence.building.packed_weights import PackedWeights
from whence.building.program import Program
from whence.building.program_parts import dimensions_of_graph
from whence.building.reference_fallback import is_native, with_reference_steps
from whence.building.variables import assignments
from whence.errors import CompileError, ModelError
from whence.fusion import GroupLimits, find_groups, fuse
from whence.fusion.contiguous import MAY_BE_CONTIGUOUS
from whence.graph import Graph
from whence.graph.display_name import display_name
from whence.graph.guards import Guards, RunUnit, find_guards
from whence.graph.operands import why_it_fails
from whence.kernels.lower import Step, lower
from whence.ops.definition import labelled
from whence.provenance import Origin


class PinnedSizesError(Exception):
    """Kernels need the numbers of some dimensions. What is compiled for expressions then serves one
    size, and is slower than what is compiled for the number: whoever opened them closes them.
    """

    def __init__(self, names: set[str]) -> None:
        super().__init__(f"kernels need the sizes of {', '.join(sorted(names))}")
        self.names = names


def build(
    graph: Graph,
    generator: CodeGenerator,
    *,
    fusion: str = "dominator",
    progress: Progress | None = None,
    weights_ready: Callable[[PackedWeights], None] | None = None,
) -> Program:
    """A graph that was prepared as the generator prefers, as its program. `weights_ready` may be
    called with its constants before its code is compiled.
    """
    lowered = lower_graph(graph, generator, fusion=fusion)
    return generator.assemble(lowered._replace(weights_ready=weights_ready), progress)


def lower_graph(graph: Graph, generator: CodeGenerator, *, fusion: str = "dominator") -> Lowered:
    """The steps of a program, rendered and with memory, before anything is compiled."""
    check_graph_operands(graph)
    in_place = generator.preferences.concat_in_place
    fused = fuse(graph, find_groups(graph, fusion, GroupLimits(in_place=in_place)))
    tile = generator.tile
    before = lower(fused, tile, generator.choices)
    lowered, aliasing = concat_in_place(graph, before) if in_place else (before, Aliasing())
    copies = assignments(graph, lowered, aliasing)
    dimensions = dimensions_of_graph(graph)
    if dimensions is not None and dimensions.pinned:
        raise PinnedSizesError(dimensions.pinned)
    before, lowered = [*before, *copies], [*lowered, *copies]
    kernels = {
        position: step.kernel
        for position, step in enumerate(lowered)
        if step.kernel is not None and is_native(graph, step)
    }
    positions = list(kernels)
    rendered = generator.render(
        list(kernels.values()), [_source_names(graph, lowered[each]) for each in positions]
    )
    _check_rendered(generator, rendered, len(positions))
    refused = {
        position: rendered.refused[number]
        for number, position in enumerate(positions)
        if number in rendered.refused
    }
    code = {
        id(lowered[position]): each for position, each in zip(positions, rendered.code, strict=True)
    }
    steps = with_reference_steps(graph, lowered, refused)
    running = [step for step in steps if not step.is_view]
    guards = guards_of(graph, steps, before)
    chains = find_chains(graph, running, guards, tile, values_within(steps, aliasing))
    return Lowered(
        graph,
        fused,
        tile,
        tuple(
            LoweredStep(number, step, code.get(id(step)), guard)
            for number, (step, guard) in enumerate(zip(running, guards, strict=True))
        ),
        allocate(
            graph,
            steps,
            aliasing,
            generator.plan_arena,
            [(chain.first, chain.last) for chain in chains],
        ),
        rendered,
        chains,
    )


def _check_rendered(generator: CodeGenerator, rendered: Rendered, kernels: int) -> None:
    """Of every kernel its function, or why it has none: nothing else would run its operators."""
    what = f"{type(generator).__name__}.render"
    if len(rendered.code) != kernels:
        raise CompileError(
            f"{what} was given {kernels} kernels, its `code` has {len(rendered.code)}"
        )
    for number, code in enumerate(rendered.code):
        if (code is None) != (number in rendered.refused):
            has = "neither code nor a reason" if code is None else "both code and a reason"
            raise CompileError(f"{what}: kernel {number} has {has} in `refused` why it has none")


def check_graph_operands(graph: Graph) -> None:
    """Kernels trust the types of their operands: what was unknown when an operator was read is
    known now, and must fit.
    """
    for node in graph:
        why = why_it_fails(graph, node)
        if why:
            raise ModelError(labelled(f"operator {display_name(node)}", why))


def guards_of(graph: Graph, steps: Sequence[Step], before: Sequence[Step]) -> list[Guards]:
    """Under what conditions each of the steps runs that are no views.

    `before` has the concatenations and splits too that nothing is left of, or not all: what they
    read is needed where they are.
    """
    order = {ref: place for place, step in enumerate(before) for ref in step.outputs}
    entries = {step.entry: place for place, step in reversed(list(enumerate(before)))}
    placed: list[tuple[int, Step | None, RunUnit]] = []
    for step in steps:
        # What a group was taken apart into makes values that no other step knows.
        place = min(
            (order[ref] for ref in step.outputs if ref in order), default=entries[step.entry]
        )
        # An assignment makes nothing for this run: a variable that is a condition is what it was.
        makes = () if step.members[0].op == "Assign" else step.outputs
        placed.append((place, step, RunUnit(step.members, step.inputs, makes)))
    standing = {id(step) for step in steps}
    placed += [
        (place, None, RunUnit(step.members, step.inputs, step.outputs))
        for place, step in enumerate(before)
        if id(step) not in standing
        and len(step.members) == 1
        and step.members[0].op in MAY_BE_CONTIGUOUS
    ]
    placed.sort(key=lambda each: each[0])
    found = find_guards(
        [work for _, _, work in placed],
        [ref for node in graph.results for ref in node.inputs if ref is not None],
    )
    return [
        guards
        for (_, step, _), guards in zip(placed, found, strict=True)
        if step is not None and not step.is_view
    ]


def _source_names(graph: Graph, step: Step) -> list[str]:
    sources = sorted(Origin().union(*(node.origin for node in step.members)))
    return [graph.ledger.source(source).name for source in sources] or [
        node.name or node.op for node in step.members
    ]

"""Concatenations and splits that are not carried out, because their parts lie within their whole.

1. A Split or Slice whose outputs are contiguous ranges of its input is a view of it.
2. A value that is a contiguous range of a Concat's output is made there. What views of one value
   are inputs one after the other, and all of it, count as that value; and what parts of one value
   do so, too: `concat(a, b, c)` after `concat(a, b)` has the latter as its first part.
3. A Concat copies only what cannot be made in place: what the caller gives or gets, constants, and
   what has its place in another value.

The first Concat that reads a value gets it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whence.building.allocate import root
from whence.building.memory_layout import Aliasing, SubBuffer
from whence.building.reference_fallback import is_native, shared_views
from whence.fusion.contiguous import input_offsets, output_offsets
from whence.graph import Graph, Node, Ref
from whence.graph.state import GIVEN
from whence.kernels.group import Group
from whence.kernels.loops.copy_parts import lower_copy_parts
from whence.kernels.lower import Step


def concat_in_place(graph: Graph, steps: Sequence[Step]) -> tuple[list[Step], Aliasing]:
    """The steps that are left to do, and where the values lie that the others would have copied."""
    concat = _InPlaceConcat(graph, steps)
    left = [rest for step in steps for rest in concat.remaining(step)]
    return left, Aliasing(concat.views, concat.parts)


class _InPlaceConcat:
    def __init__(self, graph: Graph, steps: Sequence[Step]) -> None:
        self.graph = graph
        self.views: dict[Ref, SubBuffer] = {}
        self.parts: dict[Ref, SubBuffer] = {}
        self._within = shared_views(graph, steps)
        self._given = {root(self._within, each.first_input).parent for each in graph.results}
        """What the caller gets lies with the caller, what is assigned to a variable with the
        state.
        """

    def remaining(self, step: Step) -> Iterator[Step]:
        """The step, what is left of it, or nothing."""
        node = step.members[0]
        if len(step.members) > 1 or not is_native(self.graph, step):
            yield step
        elif node.op == "Concat" and (begins := input_offsets(self.graph, node)) is not None:
            yield from self._rest(step, node, begins)
        elif not self._given.isdisjoint(step.outputs) or not self._view(node):
            yield step

    def _view(self, node: Node) -> bool:
        """Make the outputs of a Split or Slice views, if they can be."""
        begins = output_offsets(self.graph, node)
        if begins is None:
            return False
        source = node.inputs[0]
        if source is None or self.graph[root(self._within, source).parent.node].is_const:
            return False
        for index, begin in enumerate(begins):
            self.views[node.ref(index)] = self._within[node.ref(index)] = SubBuffer(source, begin)
        return True

    def _rest(self, step: Step, node: Node, begins: Sequence[int]) -> Iterator[Step]:
        """A Concat without the inputs that are made in place."""
        refs = [ref for ref in node.inputs if ref is not None]
        left: list[tuple[Ref, int]] = []
        position = 0
        while position < len(refs):
            whole, count = self._run(refs, position)
            if count and whole != node.ref() and self._is_free(whole):
                self.parts[whole] = self._within[whole] = SubBuffer(node.ref(), begins[position])
            else:
                count = 1
                left.append((refs[position], begins[position]))
            position += count
        if len(left) == len(refs):
            yield step
        elif left:
            yield self._put(step, node, left)

    def _run(self, refs: Sequence[Ref], position: int) -> tuple[Ref, int]:
        """The value that inputs from `position` on are all of, and how many these are; none when
        the first is not its beginning.
        """
        lies = root(self._within, refs[position])
        size, covered, count = self.graph.nbytes(lies.parent), 0, 0
        while position + count < len(refs) and root(
            self._within, refs[position + count]
        ) == SubBuffer(lies.parent, covered):
            covered += self.graph.nbytes(refs[position + count])
            count += 1
            if covered == size:
                break
        return lies.parent, count if covered == size else 0

    def _is_free(self, ref: Ref) -> bool:
        """Can the value be made anywhere?"""
        node = self.graph[ref.node]
        return ref not in self._given and not node.is_const and node.op not in GIVEN

    def _put(self, step: Step, node: Node, left: Sequence[tuple[Ref, int]]) -> Step:
        inputs = tuple(ref for ref, _ in left)
        group = Group(self.graph, f"{step.name}_rest", step.members, inputs, step.outputs)
        size = group.dtype(node.ref()).numpy.itemsize
        kernel = lower_copy_parts(group, node, [begin // size for _, begin in left])
        return Step(group.name, step.entry, step.members, inputs, step.outputs, kernel)

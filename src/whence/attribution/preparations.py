"""The steps that do nothing but prepare an operand of one other step: changes of layout. Who leaves
the operand out leaves them out.
"""

from __future__ import annotations

from collections.abc import Set

from whence.building.program import Program, ProgramStep, Segment
from whence.graph import Ref


class Preparations:
    """Those of a program, in which `inserted` are the nodes that no operator of the file became."""

    def __init__(self, program: Program, inserted: Set[int]) -> None:
        self._program = program
        self._segment = {
            int(action.plan.first_step) + index: action
            for action in program.actions
            if isinstance(action, Segment)
            for index in range(action.plan.n_steps)
        }
        self._makers = {
            node: step
            for step in program.steps
            if step.symbol and inserted >= frozenset(step.nodes)
            for node in step.nodes
        }

    def spared(self, step: ProgramStep, unread: Set[Ref], tried: Set[int]) -> int | None:
        """The step that need not run before a variant of `step` that leaves these operands unread,
        but can run after it.

        Not one of those that are tried themselves.
        """
        for ref in sorted(unread):
            maker = self._makers.get(ref.node)
            if (
                maker is None
                or maker.number in tried
                or self._segment[maker.number] is not self._segment[step.number]
            ):
                continue
            if self._is_read_by(maker, step) and not self._is_overwritten(maker, step):
                return maker.number
        return None

    def _is_read_by(self, maker: ProgramStep, step: ProgramStep) -> bool:
        """And by no other?"""
        graph, inside = self._program.graph, frozenset((*maker.nodes, *step.nodes))
        return all(
            reader.id in inside for node in maker.nodes for reader in graph.consumers(graph[node])
        )

    def _is_overwritten(self, maker: ProgramStep, step: ProgramStep) -> bool:
        """Is anything that `maker` reads no longer there after `step`, because its memory was given
        to what was made since?

        The conditions that it may stand under are: what chooses by them comes later.
        """
        graph = self._program.graph
        read = [ref for node in maker.nodes for ref in graph[node].inputs if ref is not None]
        written = [
            graph[node].ref(index)
            for since in self._program.steps[maker.number + 1 : step.number + 1]
            for node in since.nodes
            for index in range(len(graph[node].outputs))
        ]
        return any(self._overlap(one, other) for one in read for other in written)

    def _overlap(self, one: Ref, other: Ref) -> bool:
        """Do two values have memory in common? What is made and read within a step, and constants,
        have no place.
        """
        graph, places = self._program.graph, self._program.layout.places
        ours, theirs = places.get(one), places.get(other)
        if (
            ours is None
            or theirs is None
            or (ours.region, ours.index) != (theirs.region, theirs.index)
        ):
            return False
        return ours.offset < theirs.offset + graph.nbytes(
            other
        ) and theirs.offset < ours.offset + graph.nbytes(one)

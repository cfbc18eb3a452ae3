"""How a program's kernels are divided: into how many work items, and for how many threads."""

from __future__ import annotations

from typing import NamedTuple

from whence.building.native_code import GANG
from whence.building.program import Program, Segment


class WorkItems(NamedTuple):
    """Of one kernel."""

    items: int
    """That are independent, or in a kernel whose threads meet, that each of them has a range of."""
    pieces: int
    """That are worth handing to a thread."""

    def workers(self, threads: int) -> int:
        """How many of so many threads have something to do."""
        return max(1, min(threads, self.pieces))


NOT_DIVIDED = WorkItems(1, 1)


def work_items(program: Program) -> dict[int, WorkItems]:
    """By step number, for native steps."""
    found = {}
    for action in program.plan.actions:
        if not isinstance(action, Segment):
            continue
        plan = action.plan
        for number in range(int(plan.n_steps)):
            step = plan.steps[number]
            items, grain = int(step.tasks), int(step.grain)
            pieces = items if grain == GANG else items // max(1, grain)
            found[int(plan.first_step) + number] = WorkItems(items, max(1, pieces))
    return found

"""The post-dominator tree of the operators: where all paths from an operator to the graph's end
meet first.

An operator may be computed inside another's loop nest, without storing it, exactly when the other
post-dominates it and everything in between comes along. Meeting points are lowest common ancestors
in the tree built so far; jump pointers find each in logarithmic time, so that a skip connection
over a hundred thousand operators costs no more than one over ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whence.fusion.wiring import Wiring
from whence.ops.definition import Pattern

NO_PARENT = -1


@dataclass(frozen=True, slots=True)
class PostDominators:
    """By position. An operator whose result is a graph output, or whose readers never meet, has no
    parent.
    """

    parent: Sequence[int]
    pattern: Sequence[Pattern]
    """The least local pattern on any path from an operator to its parent."""
    length: Sequence[int]
    """The number of operators on the longest such path, the operator counted, its parent not."""


def post_dominators(wiring: Wiring) -> PostDominators:
    count = len(wiring)
    end = count  # The virtual node after everything.
    parent, jump, depth = [end] * (count + 1), [end] * (count + 1), [0] * (count + 1)
    height = [0] * (count + 1)
    to_parent, to_jump = [Pattern.OPAQUE] * (count + 1), [Pattern.OPAQUE] * (count + 1)

    def meet(first: int, second: int) -> tuple[int, Pattern]:
        """The lowest common ancestor, and the least local pattern on the way to it from either
        side.
        """
        widest = Pattern.ELEMWISE
        if depth[first] < depth[second]:
            first, second = second, first
        while depth[first] > depth[second]:
            if depth[jump[first]] >= depth[second]:
                widest, first = max(widest, to_jump[first]), jump[first]
            else:
                widest, first = max(widest, to_parent[first]), parent[first]
        while first != second:
            if jump[first] != jump[second]:
                widest = max(widest, to_jump[first], to_jump[second])
                first, second = jump[first], jump[second]
            else:
                widest = max(widest, to_parent[first], to_parent[second])
                first, second = parent[first], parent[second]
        return first, widest

    for node in reversed(range(count)):
        target, widest = end, Pattern.OPAQUE
        readers = wiring.readers[node]
        if readers and not wiring.is_output[node]:
            target, widest = next(iter(readers)), Pattern.ELEMWISE
            for reader, pattern in readers.items():
                target, on_the_way = meet(target, reader)
                widest = max(widest, pattern, on_the_way)
                if target == end:
                    break
        parent[node], to_parent[node], depth[node] = target, widest, depth[target] + 1
        height[node] = 1 + max((height[reader] for reader in readers), default=0)
        far = jump[target]
        if depth[target] - depth[far] == depth[far] - depth[jump[far]]:
            # Two jumps of equal length make one of twice the length.
            jump[node], to_jump[node] = jump[far], max(widest, to_jump[target], to_jump[far])
        else:
            jump[node], to_jump[node] = target, widest
    # Every path to the end goes through the parent, so the longest to the parent is what the
    # longest to the end loses there.
    length = [height[node] - height[parent[node]] for node in range(count)]
    return PostDominators(
        [NO_PARENT if ancestor == end else ancestor for ancestor in parent[:count]],
        to_parent[:count],
        length,
    )

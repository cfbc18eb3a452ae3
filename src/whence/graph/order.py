"""Order numbers: which of two nodes of a list stands first is a comparison of two integers."""

from __future__ import annotations

from whence.graph.node import Node

# Distance between neighbours that are not crowded. Halving it makes room for 20 nodes at one place
# before anyone is renumbered.
_GAP = 1 << 20


def number(node: Node) -> None:
    """Number a node that was just linked between its neighbours, renumbering others around it when
    there is no number left.
    """
    before, after = node._prev, node._next
    if before is None:
        node._order = 0 if after is None else after._order - _GAP
    elif after is None:
        node._order = before._order + _GAP
    else:
        node._order = (before._order + after._order) // 2
        if node._order == before._order:
            _renumber(node)


def _renumber(node: Node) -> None:
    """Spread the order numbers of a range of the list around `node`, doubling it until they fit.

    Doubling keeps the amortised cost of an insertion logarithmic however many go to one place.
    """
    width, left, right = 16, node, node
    while True:
        count = 1
        left = right = node
        while left._prev is not None and count < width:
            left, count = left._prev, count + 1
        while right._next is not None and count < 2 * width:
            right, count = right._next, count + 1
        low = left._prev._order if left._prev is not None else left._order - _GAP * count
        high = right._next._order if right._next is not None else low + _GAP * (count + 1)
        step = (high - low) // (count + 1)
        if step > width or (left._prev is None and right._next is None):
            break
        width *= 2
    _spread(left, right, low, step)


def _spread(first: Node, last: Node, low: int, step: int) -> int:
    """Number the nodes from `first` to `last`, `step` apart from `low` on. Returns how many."""
    node, count = first, 1
    while True:
        node._order = low + count * step
        if node is last or node._next is None:
            return count
        node, count = node._next, count + 1

"""An engine's graph, and the operators of the file that each of its nodes stands for."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whence.foreign.recording import EngineNode, Evidence


@dataclass(slots=True)
class Region:
    """The operators of the file that a node stands for."""

    node: EngineNode
    evidence: Evidence
    operators: set[int] = field(default_factory=set)
    moved: int | None = None
    """The operator that the engine computes in another place than the file, before movements."""


class Regions(dict[int, Region]):
    """By node, for those that stand for operators."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: dict[int, list[int]] = defaultdict(list)
        """By operator: the nodes in whose regions it is."""

    def add(self, region: Region) -> None:
        self[region.node.number] = region
        for operator in region.operators:
            self.claims[operator].append(region.node.number)

    def move(self, operator: int, kernel: int) -> None:
        """The operator is in this kernel, and in no other."""
        for each in self.claims.get(operator, ()):
            self[each].operators.discard(operator)
        self[kernel].operators.add(operator)
        self.claims[operator] = [kernel]


class EngineGraph:
    """The engine's nodes, and who feeds whom when nodes that stand for nothing are looked through.
    Those that have names of the file stand for something.
    """

    def __init__(self, nodes: Sequence[EngineNode]) -> None:
        self.nodes = {node.number: node for node in nodes}
        self._standing = {node.number for node in nodes if node.anchors}
        self._feeds: dict[int, frozenset[int]] = {}
        self._readers: dict[int, list[int]] = defaultdict(list)
        for node in nodes:
            for maker in node.inputs:
                self._readers[maker].append(node.number)

    def stand(self, number: int) -> None:
        """The node stands for something from now on."""
        self._standing.add(number)
        self._feeds.clear()

    def feeds(self, number: int) -> frozenset[int]:
        """The nearest nodes before it that stand for something."""
        if number not in self._feeds:
            nearest = self._nearest(number, lambda each: self.nodes[each].inputs)
            self._feeds[number] = frozenset(nearest)
        return self._feeds[number]

    def readers(self, number: int) -> Sequence[int]:
        """The nodes that use what it makes."""
        return self._readers.get(number, ())

    def nearest_readers(self, number: int) -> list[int]:
        """The nearest nodes after it that stand for something."""
        return self._nearest(number, self.readers)

    def _nearest(self, number: int, beside: Callable[[int], Sequence[int]]) -> list[int]:
        found: dict[int, None] = {}
        waiting, seen = deque(beside(number)), {number}
        while waiting:
            each = waiting.popleft()
            if each not in seen and each in self.nodes:
                seen.add(each)
                if each in self._standing:
                    found[each] = None
                else:
                    waiting += beside(each)
        return list(found)

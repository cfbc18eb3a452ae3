"""Which operators of the file each node of an engine's graph stands for: cuts between anchors.

An engine keeps some names of the file: tensors (its node makes exactly those), or names of nodes
(those are in it). Between two such anchors everything belongs to the later one:

1. A node's region is what leads to its anchors, up to the anchors of other nodes, inputs and
   constants.
2. A node that only a name is known of may do more than the operator of that name: ONNX Runtime
   names a convolution before it adds a sum and an activation to it. What stands behind such an
   anchor, in front of somebody else's, is moved to it if its operands all come from it or from
   what feeds it, and the engine gives a reason: two nodes claim it, its place needs an edge that
   the engine's graph does not have, or the node says that it applies such an activation.
3. A convolution or product that several nodes claim belongs to the one of them that computes such.
   One that none of them computes, or only one that computes another as well, while a node elsewhere
   computes the same from the same constants, is done by that one, and so is what that node does
   besides it. So is any other operator that the engine computes once with another, if the node
   that it would be in lacks an edge for it.
4. A node without any name, which computes something, has what lies between the nodes around it: a
   convolution, product or recurrent cell that no other node computes, if it does such work; what
   stands in front of the convolution or product that reads it, which does nothing to its operands;
   the operator there that has its type, or the only one there, which may be in several kernels.
   A recurrent layer in both directions may be two nodes of one type that read the same.
   Else it is part of an operator that the nodes around it have (`unnamed_nodes.py`), or left open.
5. What stands in a nested graph, and no node has, is in the nodes of the operator with that graph.
6. What is left at the end of the file, and no node has, is an epilogue of the node before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whence.foreign.engine_graph import EngineGraph, Region, Regions
from whence.foreign.recording import Evidence
from whence.foreign.source import SourceGraph, reached
from whence.foreign.unnamed_nodes import UnnamedNodes


def find_regions(source: SourceGraph, engine: EngineGraph) -> Regions:
    """Of nodes that have an anchor or a place between their neighbours."""
    finder = _RegionFinder(source, engine)
    for region in finder.regions.values():
        if region.evidence is Evidence.NAME and not region.node.is_whole:
            finder.take_epilogue(region)
    finder.settle_heavy()
    finder.settle_duplicates()
    unnamed = UnnamedNodes(source, engine, finder.regions)
    for node in engine.nodes.values():
        if node.runs and not node.is_layout and node.number not in finder.regions:
            unnamed.place(node)
    finder.place_nested()
    finder.place_last()
    return finder.regions


class _RegionFinder:
    def __init__(self, source: SourceGraph, engine: EngineGraph) -> None:
        self.source, self.engine = source, engine
        self.named = {
            number
            for node in engine.nodes.values()
            for number in node.anchors
            if number in source.live
        }
        self.regions = Regions()
        self.claims = self.regions.claims
        for node in engine.nodes.values():
            own = dict.fromkeys(node.anchors)
            # What could have been computed when the model was loaded, and is not.
            running = [number for number in own if number in source.live] or list(own)
            if running:
                evidence = Evidence.TENSOR if node.makes else Evidence.NAME
                inside = set(running) if node.is_whole else self._behind(running)
                self.regions.add(Region(node, evidence, inside))

    def _behind(self, own: Sequence[int]) -> set[int]:
        """The operators, and what leads to them up to the anchors of others."""
        return set(reached(own, lambda each: {*self.source[each].feeds_from} - self.named))

    def take_epilogue(self, region: Region) -> None:
        number, waiting = region.node.number, sorted(region.operators)
        while waiting:
            for reader in self.source.readers(waiting.pop(0)):
                if (
                    reader in region.operators
                    or reader in self.named
                    or self.source[reader].is_heavy
                    or not self._comes_from(region, reader)
                ):
                    continue
                others = [each for each in self.claims[reader] if each != number]
                if (
                    len(others) > 1
                    or any(self._lacks_edge(self.regions[each], reader) for each in others)
                    or self._is_its_activation(region, reader)
                ):
                    self.regions.move(reader, number)
                    waiting.append(reader)

    def settle_heavy(self) -> None:
        for operator in self.source.heavy:
            claiming = self.claims.get(operator, ())
            able = [each for each in claiming if self.regions[each].node.is_heavy]
            if len(able) == 1 < len(claiming):
                self.regions.move(operator, able[0])
            if not all(self._has_another(self.regions[each], operator) for each in able):
                continue
            doing = {
                each
                for twin in self.source.duplicates(operator)
                for each in self.claims.get(twin, ())
                if self.regions[each].node.is_heavy and each not in able
            }
            if len(doing) == 1:
                (kernel,) = doing
                self.regions.move(operator, kernel)
                # What the kernel does besides it does for both as well.
                for each in sorted(self.regions[kernel].operators):
                    for twin in self.source.duplicates(each):
                        if twin not in self.named:
                            self.regions.move(twin, kernel)

    def settle_duplicates(self) -> None:
        """What another operator does as well, from the same operands, is in the node of that one if
        that feeds who reads it, and the node it would be in lacks an edge for it or for what leads
        to it. Readers come first: a chain that is computed once ends in one that feeds somebody
        else.
        """
        source, claims = self.source, self.claims
        for operator in sorted(source.live - self.named, reverse=True):
            holding = claims.get(operator, ())
            duplicates = [each for each in source.duplicates(operator) if each in self.named]
            doing = {kernel for twin in duplicates for kernel in claims.get(twin, ())}
            if len(holding) == len(doing) == 1 and not source[operator].is_heavy:
                holder, (kernel,) = self.regions[holding[0]], doing
                reading = {
                    each for reader in source.readers(operator) for each in claims.get(reader, ())
                }
                chain = self._behind([operator]) & holder.operators
                if any(kernel in self.engine.feeds(each) for each in reading) and any(
                    self._lacks_edge(holder, each) for each in chain
                ):
                    self.regions.move(operator, kernel)

    def _has_another(self, region: Region, operator: int) -> bool:
        """Does the node do such work for another operator, whose name it has or leads to?"""
        node = region.node
        return (
            operator not in node.anchors
            and not node.is_composite
            and sum(self.source[each].is_heavy for each in region.operators) > 1
        )

    def _makers_elsewhere(self, region: Region, operator: int) -> Iterator[int]:
        """What the operator reads that neither the region makes, nor a node that feeds it."""
        feeds = self.engine.feeds(region.node.number)
        for maker in self.source[operator].feeds_from:
            if maker not in region.operators and feeds.isdisjoint(self.claims.get(maker, ())):
                yield maker

    def _comes_from(self, region: Region, operator: int) -> bool:
        """Do its operands all come from the region, or from nodes that feed the region's? What is
        known from the sizes of tensors alone is no data.
        """
        elsewhere = self._makers_elsewhere(region, operator)
        return all(self.source[maker].is_known_from_sizes for maker in elsewhere)

    def _lacks_edge(self, region: Region, operator: int) -> bool:
        """Would it, in this region, need an edge that the engine's graph does not have?"""
        return any(True for _ in self._makers_elsewhere(region, operator))

    def _is_its_activation(self, region: Region, operator: int) -> bool:
        wanted = region.node.activation
        return self.source[operator].op == wanted and not any(
            self.source[each].op == wanted for each in region.operators
        )

    def _left(self) -> Iterator[int]:
        """The operators that do something and that no node has."""
        for number in sorted(self.source.live):
            if self.source[number].stands_for is None and not self.claims.get(number):
                yield number

    def place_nested(self) -> None:
        """What stands in a nested graph, and no node has, is in the nodes of the operator that
        holds the graph.
        """
        for number in self._left():
            holder = self.source[number].holder
            if holder is not None:
                self.claims[number] = list(self.claims.get(holder, ()))
                for each in self.claims[number]:
                    self.regions[each].operators.add(number)

    def place_last(self) -> None:
        """What is left at the end of the file is in the node before it."""
        for number in self._left():
            able = {
                each
                for maker in self.source[number].feeds_from
                for each in self.claims.get(maker, ())
                if self.regions[each].evidence is not Evidence.TENSOR
                and not self.regions[each].node.is_whole
                and self._comes_from(self.regions[each], number)
            }
            if len(able) == 1:
                self.regions.move(number, able.pop())

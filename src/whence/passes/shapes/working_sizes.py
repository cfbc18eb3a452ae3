"""Which sizes a model works with, where it does not work with those of a call.

Types are inferred with dimensions in place of sizes. When an operator refuses its operands, the
last question about a size that was answered with no tells what it needs: the nearest size with
which the answer is yes is tried next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from whence.errors import InputError, WhenceError
from whence.extent import Dimensions, Relation, names
from whence.graph import Graph
from whence.ops.binding import Port
from whence.ops.named_dimensions import dimension_name, names_in, open_sizes, size_of
from whence.ops.open_dimensions import open_dimensions
from whence.passes.shapes.propagate_types import fix_input_shapes
from whence.types import Dim, TensorType

Check = Callable[[Graph], None]
Shapes = dict[str, tuple[int, ...]]
_REPAIRS, _ALTERNATIVES = 4, 4
_MOST = 4096
"""The largest size that is looked for by trying."""
_DEFAULT = 32


def explain_sizes(
    graph: Graph, shapes: Mapping[str, Sequence[Dim]], error: WhenceError, check: Check
) -> InputError | None:
    """An error that names the input, its dimension, the size that was given and one that the model
    works with, where a model whose sizes are open does not work with these shapes; `None` where the
    reason is another. `check` raises what a graph with the sizes of a call raises.
    """
    sizes: dict[str, int] = {}
    for place in open_sizes(input_ports(graph)):
        size = dict(enumerate(shapes.get(place.input, ()))).get(place.axis)
        if not isinstance(size, int) or sizes.setdefault(place.name, int(size)) != size:
            # Two sizes of one dimension are a mistake of their own.
            return None
    for found in repaired(graph, sizes, {}, check):
        changed = [name for name, size in sizes.items() if found.get(name, size) != size]
        if len(changed) == 1 and works(graph, found, check):
            name = changed[0]
            given, wanted = sizes[name], found[name]
            place = next(each for each in open_sizes(input_ports(graph)) if each.name == name)
            smaller = wanted < given and works(graph, {**found, name: wanted - 1}, check)
            return InputError(
                f"input '{place.input}' has size {given} in dimension '{name}', and the model works"
                f" with {'at most ' if smaller else ''}{wanted}: {error}"
            )
    return None


def works(graph: Graph, sizes: Mapping[str, int], check: Check) -> bool:
    """Does no operator refuse operands of these sizes?"""
    try:
        check(fix_input_shapes(graph.copy(), input_shapes(graph, sizes)))
    except WhenceError:
        return False
    return True


def repaired(
    graph: Graph,
    sizes: dict[str, int],
    given: Mapping[str, int],
    check: Check = lambda graph: None,
) -> Iterator[dict[str, int]]:
    """Sizes that differ in what the graph's operators could not work with, each from what the one
    before failed on; those of `given` stay.
    """
    for _ in range(_REPAIRS):
        shapes = input_shapes(graph, sizes)
        ports = [_named_port(port) for port in input_ports(graph)]
        dimensions, opened = open_dimensions(ports, shapes)
        try:
            check(fix_input_shapes(graph.copy(), opened))
            return
        except WhenceError:
            others = list(itertools.islice(_otherwise(dimensions, given), _ALTERNATIVES))
        if not others:
            return
        yield from (independent({**sizes, **other}, given) for other in others)
        sizes = independent({**sizes, **others[0]}, given)


def independent(sizes: dict[str, int], given: Mapping[str, int]) -> dict[str, int]:
    """Without the dimensions that are expressions over others: they follow from those."""
    return {name: size for name, size in sizes.items() if not names_in(name) or name in given}


def input_ports(graph: Graph) -> list[Port]:
    return [Port(node.name, node.type) for node in graph.inputs]


def input_shapes(graph: Graph, sizes: Mapping[str, int]) -> Shapes:
    """The shapes of the inputs that have open sizes."""
    found: Shapes = {}
    for name, kind in input_ports(graph):
        if isinstance(kind, TensorType) and not kind.is_static:
            found[name] = tuple(
                dim if isinstance(dim, int) else _size(dimension_name(name, axis, dim), sizes)
                for axis, dim in enumerate(kind.shape or ())
            )
    return found


def _size(name: str, sizes: Mapping[str, int]) -> int:
    size = size_of(name, sizes)
    return _DEFAULT if size is None else max(size, 0)


def _named_port(port: Port) -> Port:
    """With a name for every open size, so that each is a dimension."""
    name, kind = port
    if not isinstance(kind, TensorType) or kind.shape is None:
        return port
    shape = tuple(
        dim if isinstance(dim, int) else dimension_name(name, axis, dim)
        for axis, dim in enumerate(kind.shape)
    )
    return Port(name, replace(kind, shape=shape))


def _otherwise(dimensions: Dimensions, given: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The size, by the name in the file, that gives another answer to a question: the nearest to
    the one it has. Of questions for equality, which operators fail on, then of others, the last
    first.
    """
    sizes, labels = dimensions.sizes, dimensions.labels
    asked = [guard for guard in reversed(dimensions.guards) if guard.relation is not Relation.EQ]
    for guard in sorted(asked, key=lambda guard: guard.relation is not Relation.NE):
        for name in sorted(names(guard.left) | names(guard.right)):
            if labels[name] in given:
                continue
            own = sizes[name]
            nearest = sorted(range(1, _MOST + 1), key=lambda each: (abs(each - own), each))
            for size in nearest:
                if not guard.holds({**sizes, name: size}):
                    yield {labels[name]: size}
                    break

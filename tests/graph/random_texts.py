"""Random graphs for what text has to carry: any name, attribute, type, constant and history. What
their operators would compute is of no interest, and most do not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from whence.graph import Graph, Node, NodeFlag, Ref
from whence.provenance import Edge, EdgeKind, Ledger, Reason, SourceOp, Tombstone
from whence.types import DType, MapType, OptionalType, SequenceType, TensorType, ValueType

_TEXT = st.one_of(
    st.sampled_from(["Conv", "x", "nan", "True", "f32", "from", "by", "7", "a b", "#", "'", ""]),
    st.text(st.characters(codec=None), max_size=6),
)
_DTYPES = [dtype for dtype in DType if dtype is not DType.UNDEFINED]
_DIMS = st.one_of(st.integers(0, 5), st.none(), _TEXT)
_TENSORS = st.builds(
    TensorType,
    st.sampled_from(list(DType)),
    st.one_of(st.none(), st.lists(_DIMS, max_size=4).map(tuple)),
)
TYPES: st.SearchStrategy[ValueType] = st.recursive(
    _TENSORS,
    lambda inner: st.one_of(
        st.builds(SequenceType, inner),
        st.builds(OptionalType, inner),
        st.builds(MapType, st.sampled_from([DType.I64, DType.STRING]), inner),
    ),
    max_leaves=3,
)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Of any type; bytes as they come, so that there are all sorts of NaNs among them."""
    dtype = draw(st.sampled_from(_DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    count = int(np.prod(shape, dtype=np.int64))
    if dtype is DType.STRING:
        value = np.empty(count, object)
        value[:] = draw(st.lists(_TEXT, min_size=count, max_size=count))
        return value.reshape(shape)
    if draw(st.booleans()):
        return np.full(shape, draw(st.integers(0, 1))).astype(dtype.numpy)
    size = count * dtype.numpy.itemsize
    data = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8)
    if dtype is DType.BOOL or dtype.bits < 8:
        # One element to a byte, of which the upper bits are nobody's.
        data = data % (2 if dtype is DType.BOOL else 1 << dtype.bits)
        if dtype.is_integer and dtype.name.startswith("I"):
            return data.astype(np.int16).astype(dtype.numpy).reshape(shape)
        return np.frombuffer(data.astype(np.uint8).tobytes(), dtype.numpy).reshape(shape)
    return np.frombuffer(data.tobytes(), dtype.numpy).reshape(shape)


_SCALARS: list[st.SearchStrategy[Any]] = [
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False),
    _TEXT,
    st.binary(max_size=4),
]
ATTRS = st.one_of(
    *_SCALARS,
    *(st.lists(each, max_size=3).map(tuple) for each in _SCALARS),
    arrays(),
    st.booleans(),
)
_KEYS = st.one_of(st.sampled_from(["axis", "to", "dtype", "from", "by"]), _TEXT)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    ledger = Ledger()
    for number in range(1, draw(st.integers(0, 3)) + 1):
        more = {"scope": "if/then", "outputs": ("a", "b\n"), "positions": (1, 2), "table_id": 7}
        extra: dict[str, Any] = more if draw(st.booleans()) else {}
        ledger.add_source(SourceOp(number, draw(_TEXT), draw(_TEXT), **extra))
    graph = _graph(draw, ledger, depth=2)
    graph.metadata = draw(st.dictionaries(_TEXT, _TEXT, max_size=2))
    graph.listed_inputs = tuple(draw(st.lists(st.tuples(_TEXT, TYPES), max_size=2)))
    graph.claims = {3: tuple(draw(st.lists(st.one_of(st.none(), TYPES), min_size=1, max_size=2)))}
    _add_history(draw, ledger)
    return graph


def _graph(draw: st.DrawFn, ledger: Ledger, depth: int) -> Graph:
    graph = Graph(draw(_TEXT), ledger)
    made: list[Ref] = []
    for _ in range(draw(st.integers(0, 4))):
        node = _node(draw, graph, made, depth)
        if draw(st.booleans()):
            graph.append(node)
        elif all(ref is None for ref in node.inputs):
            # Not in the order of the signature.
            graph.prepend(node)
        else:
            graph.append(node)
        made += [node.ref(index) for index in range(len(node.outputs))]
    return graph


def _node(draw: st.DrawFn, graph: Graph, made: list[Ref], depth: int) -> Node:
    op = draw(st.one_of(st.sampled_from(["Input", "Const", "Output", "Variable", "Assign"]), _TEXT))
    bodies = {}
    if depth and draw(st.integers(0, 3)) == 0:
        names = draw(st.lists(_TEXT, min_size=1, max_size=2, unique=True))
        bodies = {name: _graph(draw, graph.ledger, depth - 1) for name in names}
    inputs: list[Ref | None] = []
    if made:
        inputs = draw(st.lists(st.one_of(st.none(), st.sampled_from(made)), max_size=3))
    value = draw(arrays()) if op == "Const" else None
    types: list[ValueType] = draw(st.lists(TYPES, min_size=op == "Input", max_size=2))
    if value is not None:
        types = [TensorType.of(value)]
    origin = st.sets(st.integers(1, graph.ledger.n_sources)) if graph.ledger.n_sources else None
    return Node(
        graph.new_id(),
        op,
        inputs,
        types,
        draw(st.dictionaries(_KEYS, ATTRS, max_size=3)),
        name=draw(_TEXT),
        origin=frozenset(draw(origin) if origin is not None else ()),
        value=value,
        bodies=bodies,
        flags=draw(st.sampled_from([NodeFlag.NONE, NodeFlag.RETAIN, NodeFlag.NO_LAYOUT_CHANGE])),
    )


def _add_history(draw: st.DrawFn, ledger: Ledger) -> None:
    ids = st.integers(1, 9)
    draws: Callable[[Any], Any] = lambda kind: draw(st.sampled_from(list(kind)))  # noqa: E731
    edges = []
    for step in range(1, draw(st.integers(0, 3)) + 1):
        for _ in range(draw(st.integers(1, 2))):
            rule = draw(_TEXT), draw(_TEXT)
            edges.append(Edge(draw(ids), draw(ids), draws(EdgeKind), *rule, step))
    stones = [
        Tombstone(draw(ids), origin, draws(Reason), draw(_TEXT), draw(_TEXT), into)
        for origin in draw(st.lists(st.frozensets(ids, max_size=2), max_size=2))
        for into in (draw(st.one_of(st.none(), ids)),)
    ]
    ledger.resume(edges, stones, ledger.next_id + draw(st.integers(0, 5)), 5)

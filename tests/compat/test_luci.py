"""luci-profile's algebra of origins."""

from __future__ import annotations

import pytest

from tests.frontends.tflite.making import Model, read
from tests.graph.making import chain
from whence.compat.luci import (
    Source,
    add_origin,
    composite_origin,
    get_origin,
    has_origin,
    single_origin,
)
from whence.errors import ProvenanceError
from whence.provenance.luci_tables import OP_TABLE, SOURCE_TABLE

ADD, SUB = Source(3, "add"), Source(7, "sub")


def test_origin_algebra() -> None:
    add, sub = single_origin(3, "add"), single_origin(7, "sub")
    assert add == frozenset({ADD})
    assert composite_origin([add, sub]) == frozenset({ADD, SUB})
    assert composite_origin([add, None, composite_origin([add, sub])]) == frozenset({ADD, SUB})
    assert composite_origin([None, None]) is None
    with pytest.raises(ProvenanceError):
        composite_origin([])
    assert add_origin(None, None) is None
    assert add_origin(None, add) == add
    assert add_origin(add, None) == add
    assert add_origin(add, sub) == frozenset({ADD, SUB})
    assert add == frozenset({ADD})


def test_origins_of_our_nodes_by_the_ids_of_the_tables() -> None:
    model = Model(circle=True)
    model.output(model.op("ABS", [model.input((3,))], (3,)))
    model.metadata[SOURCE_TABLE.name] = SOURCE_TABLE.encode({3: "add", 7: "sub"})
    model.metadata[OP_TABLE.name] = OP_TABLE.encode({0: frozenset({3, 7})})
    graph = read(model)
    (node,) = [each for each in graph if each.op == "Abs"]
    assert get_origin(graph, node) == frozenset({ADD, SUB})
    assert not has_origin(graph, graph.inputs[0])


def test_without_tables_an_id_is_a_position() -> None:
    graph = chain("Relu", "Neg")
    assert get_origin(graph, graph[2]) == frozenset({Source(1, "node2")})

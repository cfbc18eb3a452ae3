"""The seed's own picture of two tools, one after the other, on the real graph.

<Circle1>                  -- optimiser -->  <circle2>                -- quantiser -->  <circle3>
node1, node2                                 node5 (origin 1, 2)                        node6 (origin 1, 2)
node3                                        node3 (origin 3)                           node3 (origin 3, 4)
node4                                        node4 (origin 4)                           (absorbed into the existing node3)
"""

from __future__ import annotations

from tests.graph.making import assert_sound, chain, ops_of
from whence.graph import Graph, Ref, Rewriter
from whence.graph.outcomes import Coverage, coverage
from whence.provenance import EdgeKind, Origin
from whence.provenance.luci_tables import OP_TABLE, SOURCE_TABLE, origins, read_tables


def origin_of(graph: Graph) -> dict[int, list[int]]:
    return {node.id: sorted(node.origin) for node in graph if node.origin}


def op_table(graph: Graph) -> dict[int, Origin]:
    """Operators in execution order, as a Circle file would list them."""
    return dict(enumerate(node.origin for node in graph if node.origin))


def optimise(graph: Graph) -> int:
    """node1 and node2 are fused into a new node5."""
    edit = Rewriter(graph, "optimiser").edit(graph[1], graph[2], rule="fuse")
    node5 = edit.node("Exp", [graph.inputs[0].ref()])
    edit.replace(graph[2], node5)
    edit.apply()
    return node5.id


def quantise(graph: Graph, node5: int) -> int:
    """node5 is replaced by a new node6, and node4 is absorbed by the existing node3, which keeps
    its id.
    """
    rewriter = Rewriter(graph, "quantiser")
    edit = rewriter.edit(graph[node5], rule="replace")
    node6 = edit.node("Log", [graph.inputs[0].ref()])
    edit.replace(graph[node5], node6)
    edit.apply()
    edit = rewriter.edit(graph[3], graph[4], rule="absorb")
    edit.replace(graph[4], edit.node("Neg", [node6.ref()], inherit=graph[3]))
    edit.apply()
    return node6.id


def test_origins_at_each_stage() -> None:
    graph = chain("Relu", "Sigmoid", "Abs", "Neg")
    assert origin_of(graph) == {1: [1], 2: [2], 3: [3], 4: [4]}

    node5 = optimise(graph)
    assert origin_of(graph) == {node5: [1, 2], 3: [3], 4: [4]}
    assert graph[3].inputs == (Ref(node5),)
    assert_sound(graph)

    node6 = quantise(graph, node5)
    assert origin_of(graph) == {node6: [1, 2], 3: [3, 4]}
    assert ops_of(graph) == ["Log", "Neg"]
    assert graph.outputs[0].inputs == (Ref(3),)
    assert_sound(graph)

    told = [(edge.child, edge.parent, edge.kind, edge.pass_name) for edge in graph.ledger.edges]
    assert told == [
        (node5, 1, EdgeKind.FUSE, "optimiser"),
        (node5, 2, EdgeKind.FUSE, "optimiser"),
        (node6, node5, EdgeKind.COPY, "quantiser"),
        (3, 4, EdgeKind.FUSE, "quantiser"),
    ]
    assert coverage(graph) == Coverage(source_ops=4, live=4, folded=0, removed=0, dead=0, lost=0)


def test_the_tables_it_yields() -> None:
    graph = chain("Relu", "Sigmoid", "Abs", "Neg")
    quantise(graph, optimise(graph))
    sources = {source.id: source.name for source in graph.ledger.sources}
    encoded = OP_TABLE.encode(op_table(graph))
    assert encoded == bytes.fromhex(
        "02000000 00000000 02000000 01000000 02000000 01000000 02000000 03000000 04000000"
    )
    assert SOURCE_TABLE.encode(sources)[:18] == bytes.fromhex(
        "04000000 01000000 06000000 6e6f64653100"
    )
    tables = read_tables(
        [(SOURCE_TABLE.name, SOURCE_TABLE.encode(sources)), (OP_TABLE.name, encoded)]
    )
    assert tables.notes == ()
    assert origins(tables.sources, tables.ops) == {0: {1, 2}, 1: {3, 4}}
    assert tables.sources == {1: "node1", 2: "node2", 3: "node3", 4: "node4"}

"""Small graphs to test on, and a look at everything a rewrite could have touched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.graph import Check, Graph, Node, Ref, check_graph, print_graph
from whence.graph.builder import GraphBuilder
from whence.graph.node import Creation
from whence.ops.types.inference import Inference
from whence.provenance import NO_ORIGIN, EdgeKind, Ledger, SourceOp
from whence.types import DType, TensorType

F32X4 = TensorType(DType.F32, (4,))
F32X2 = TensorType(DType.F32, (2,))
X = np.array([-2.0, -0.5, 1.0, 3.0], np.float32)
SOUND = Check.HASH | Check.ORIGIN


def chain(*ops: str) -> Graph:
    """x -> op 1 -> op 2 -> ... -> y on f32[4]; operator i is source operator i and node i."""
    build = GraphBuilder("chain")
    value = build.input("x", DType.F32, [4])
    for number, op in enumerate(ops, 1):
        value = build.op(op, value, name=f"node{number}")
    build.output("y", value)
    return build.finish()


def split_graph(*readers: int, outputs: int = 2) -> Graph:
    """x -> Split (node 1) into equal parts; one Relu for each entry of `readers`, on that output of
    the split.
    """
    build = GraphBuilder("split")
    x = build.input("x", DType.F32, [2 * outputs])
    parts = build.op("Split", x, n_outputs=outputs, axis=0, num_outputs=outputs)
    for position, output in enumerate(readers):
        build.output(f"y{position}", build.op("Relu", parts[output]))
    return build.finish()


def diamond() -> Graph:
    """1: Relu(x); 2: Neg(1); 3: Abs(1); 4: Add(2, 3)."""
    build = GraphBuilder("diamond")
    top = build.op("Relu", build.input("x", DType.F32, [4]))
    build.output("y", build.op("Add", build.op("Neg", top), build.op("Abs", top)))
    return build.finish()


def with_branches(then_ops: Sequence[str] = ("Relu",), else_ops: Sequence[str] = ("Neg",)) -> Graph:
    """1: If(c) with `then_ops` and `else_ops` as chains on the captured x; then a last Abs on its
    result.
    """
    ledger, inference = Ledger(), Inference()
    names = ["If", *then_ops, *else_ops, "Abs"]
    for number, op in enumerate(names, 1):
        ledger.add_source(SourceOp(number, f"{op}_{number}", op))
    graph = Graph("main", ledger, inference)
    number = 2
    bodies = {}
    for name, ops in (("then_branch", then_ops), ("else_branch", else_ops)):
        body = Graph(name, ledger, inference)
        value = body.append(Node(body.new_id(), "Input", (), (F32X4,), name="captured"))
        for op in ops:
            value = body.append(
                Node(
                    number,
                    op,
                    (value.ref(),),
                    (F32X4,),
                    name=f"{op}_{number}",
                    origin=frozenset((number,)),
                )
            )
            number += 1
        body.append(Node(body.new_id(), "Output", (value.ref(),), (), name="result"))
        bodies[name] = body
    condition = graph.append(
        Node(graph.new_id(), "Input", (), (TensorType(DType.BOOL, ()),), name="c")
    )
    x = graph.append(Node(graph.new_id(), "Input", (), (F32X4,), name="x"))
    branch = Node(
        1,
        "If",
        (condition.ref(), x.ref()),
        (F32X4,),
        {"captures": 1},
        name="If_1",
        origin=frozenset((1,)),
        bodies=bodies,
    )
    graph.append(branch)
    last = graph.append(
        Node(
            number,
            "Abs",
            (branch.ref(),),
            (F32X4,),
            name=f"Abs_{number}",
            origin=frozenset((number,)),
        )
    )
    graph.append(Node(graph.new_id(), "Output", (last.ref(),), (), name="y"))
    return graph


def fresh(
    graph: Graph,
    op: str,
    *inputs: Node | Ref,
    node_id: int | None = None,
    cause: Node | None = None,
    outputs: int = 1,
) -> Node:
    """A node beside the graph. With `cause`, it is inserted because of that node."""
    refs = [source if isinstance(source, Ref) else source.ref() for source in inputs]
    creation = (
        None if cause is None else Creation(((cause.id, EdgeKind.INSERT),), "test", "inserted")
    )
    return Node(
        graph.new_id() if node_id is None else node_id,
        op,
        refs,
        (F32X4,) * outputs,
        name=f"new {op}",
        creation=creation,
    )


def snapshot(graph: Graph) -> tuple[object, ...]:
    """Everything a failed rewrite must leave as it was."""
    ledger = graph.ledger
    nodes = [node for nested in graph.nested() for node in nested]
    indexes = [
        (node.id, id(node), dict(node._uses), node._order, node.inputs, node.origin)
        for node in nodes
    ]
    counts = [ledger.node_count(source.id) for source in ledger.sources]
    return (
        print_graph(graph),
        indexes,
        len(ledger.edges),
        len(ledger.tombstones),
        counts,
        ledger.lost(),
    )


def ops_of(graph: Graph) -> list[str]:
    """The operators in list order, without inputs, constants and outputs."""
    return [node.op for node in graph if node.op not in {"Input", "Const", "Output"}]


def carried(graph: Graph) -> set[int]:
    return set(NO_ORIGIN.union(*(node.origin for nested in graph.nested() for node in nested)))


def assert_sound(graph: Graph) -> None:
    check_graph(graph, SOUND)
    graph.ledger.check_conserved("test")

"""Random graphs, and rewrites that keep what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st

from tests.graph.making import F32X2, F32X4, X, fresh
from whence.compat.hexagon import (
    change_multi_output_refs_table,
    change_output_refs,
    insert_nodes,
    replace_node_with,
    replace_nodes,
)
from whence.compat.hexagon_consts import ConstCache, get_zero_node, purge_const_cache
from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.search import unique_consumer
from whence.ops.types.inference import Inference
from whence.provenance import EdgeKind, Ledger, Reason, SourceOp
from whence.types import DType, TensorType

Entry = tuple[int, int, int]

# Exact in floating point whatever the values, as long as they are finite, which sums of a few dozen
# small numbers are.
UNARY = ("Relu", "Neg", "Abs", "Identity")
BINARY = ("Add", "Sub", "Max")
I64X3 = TensorType(DType.I64, (3,))
KINDS = (*UNARY, *BINARY, "Identity", "Split", "Concat", "Const", "Half")


def grow(graph: Graph, first: int, plan: Sequence[Entry], values: list[Ref]) -> None:
    """Append one operator per entry of `plan`, numbered from `first` on, and outputs for some of
    their results.
    """
    halves: list[Ref] = []
    for number, (kind, a, b) in enumerate(plan, first):
        op = KINDS[kind % len(KINDS)]
        left, right = values[a % len(values)], values[b % len(values)]
        origin = frozenset((number,))
        if op == "Split":
            node = Node(
                number,
                op,
                (left,),
                (F32X2, F32X2),
                {"axis": 0, "num_outputs": 2},
                name=f"n{number}",
                origin=origin,
            )
            halves += (Ref(number, 0), Ref(number, 1))
        elif op == "Concat" and halves:
            node = Node(
                number,
                op,
                (halves[a % len(halves)], halves[b % len(halves)]),
                (F32X4,),
                {"axis": 0},
                name=f"n{number}",
                origin=origin,
            )
        elif op == "Half" and halves:
            node = Node(
                number,
                "Neg",
                (halves[a % len(halves)],),
                (F32X2,),
                name=f"n{number}",
                origin=origin,
            )
            halves.append(node.ref())
        elif op == "Const":
            node = Node(
                number,
                op,
                (),
                (F32X4,),
                name=f"n{number}",
                origin=origin,
                value=np.array([a % 3, b % 5, 1, -2], np.float32),
            )
        elif op in BINARY:
            node = Node(number, op, (left, right), (F32X4,), name=f"n{number}", origin=origin)
        else:
            node = Node(
                number,
                op if op in UNARY else "Relu",
                (left,),
                (F32X4,),
                name=f"n{number}",
                origin=origin,
            )
        graph.append(node)
        if node.type == F32X4:
            values.append(node.ref())
    for position, ref in enumerate(dict.fromkeys(values[-1:] + values[::3] + halves[-1:])):
        graph.append(Node(graph.new_id(), "Output", (ref,), (), name=f"y{position}"))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Two inputs, diamonds, splits, constants, several outputs, and in every second graph a branch
    with bodies of the same kind.
    """
    entry = st.tuples(st.integers(0, 2**10), st.integers(0, 2**10), st.integers(0, 2**10))
    plan = draw(st.lists(entry, min_size=1, max_size=25))
    bodies = draw(
        st.one_of(
            st.none(), st.lists(st.lists(entry, min_size=1, max_size=6), min_size=2, max_size=2)
        )
    )
    ledger, inference = Ledger(), Inference()
    total = len(plan) + (0 if bodies is None else 1 + sum(map(len, bodies)))
    for number in range(1, total + 1):
        ledger.add_source(SourceOp(number, f"n{number}", "Op"))
    graph = Graph("main", ledger, inference)
    values = [
        graph.append(Node(graph.new_id(), "Input", (), (F32X4,), name=name)).ref()
        for name in ("x", "z")
    ]
    if bodies is not None:
        condition = graph.append(
            Node(graph.new_id(), "Input", (), (TensorType(DType.BOOL, ()),), name="c")
        )
        number = len(plan) + 2
        grown = {}
        for name, steps in zip(("then_branch", "else_branch"), bodies, strict=True):
            body = Graph(name, ledger, inference)
            inner = [
                body.append(Node(body.new_id(), "Input", (), (F32X4,), name=each)).ref()
                for each in ("x", "z")
            ]
            grow(body, number, steps, inner)
            # Branches give one result each.
            for extra in body.outputs[1:]:
                body.remove(extra)
            number += len(steps)
            grown[name] = body
        branch = Node(
            len(plan) + 1,
            "If",
            (condition.ref(), *values),
            (F32X4,),
            {"captures": 2},
            name="branch",
            origin=frozenset((len(plan) + 1,)),
            bodies=grown,
        )
        values.append(graph.append(branch).ref())
    grow(graph, 1, plan, values)
    return graph


def feeds(graph: Graph) -> list[np.ndarray]:
    return [
        np.array(True) if node.name == "c" else X if node.name == "x" else X[::-1] * 2
        for node in graph.inputs
    ]


def pick(nodes: Sequence[Node], choice: int) -> Node | None:
    return nodes[choice % len(nodes)] if nodes else None


def having(graph: Graph, *ops: str) -> list[Node]:
    return [node for node in graph if node.op in ops]


def rewriter(graph: Graph) -> Rewriter:
    return Rewriter(graph, "random")


# ---- rewrites that keep every output as it is; False when there was nothing to do ----


def bypass_identity(graph: Graph, a: int, b: int) -> bool:
    node = pick(having(graph, "Identity"), a)
    if node is None or node.inputs[0] is None:
        return False
    rewriter(graph).bypass(node, node.inputs[0], reason=Reason.IDENTITY, rule="identity(x) = x")
    return True


def one_to_two(graph: Graph, a: int, b: int) -> bool:
    # a - b = a + (-b)
    node = pick(having(graph, "Sub"), a)
    if node is None:
        return False
    edit = rewriter(graph).edit(node, rule="sub is add of neg")
    negated = edit.node("Neg", [node.inputs[1]])
    total = edit.node("Add", [node.inputs[0], negated.ref()], inherit=node if b % 2 else None)
    if b % 2 == 0:
        edit.replace(node, total)
    edit.apply()
    return True


def one_to_two_by_hand(graph: Graph, a: int, b: int) -> bool:
    # |x| = max(x, -x)
    node = pick(having(graph, "Abs"), a)
    if node is None or node.inputs[0] is None:
        return False
    negated = fresh(graph, "Neg", node.inputs[0])
    largest = fresh(graph, "Max", node.inputs[0], negated, node_id=node.id)
    anchor = node if b % 2 else None
    assert (
        replace_node_with(
            graph, anchor, node, None, negated, largest, pass_name="random", rule="abs is max"
        )
        == 2
    )
    return True


def two_to_one(graph: Graph, a: int, b: int) -> bool:
    # a + (-b) = a - b; -(-x) = x, the inner one may have other readers
    for node in having(graph, "Add", "Neg"):
        ref = node.inputs[-1]
        inner = graph[ref.node] if ref is not None else node
        if inner.op != "Neg" or inner is node:
            continue
        edit = rewriter(graph).edit(inner, node, rule="fuse")
        heir = (None, inner, node)[b % 3]
        if heir is inner and unique_consumer(graph, inner, check_inputs=False) is not node:
            heir = None
        if node.op == "Add":
            new = edit.node("Sub", [node.inputs[0], inner.inputs[0]], inherit=heir)
        else:
            new = edit.node("Identity", [inner.inputs[0]], inherit=heir)
        edit.replace(node, new)
        edit.apply()
        return True
    return False


def two_to_one_by_hand(graph: Graph, a: int, b: int) -> bool:
    # relu(|x|) = |x|
    for node in having(graph, "Relu"):
        ref = node.inputs[0]
        inner = graph[ref.node] if ref is not None else node
        if (
            inner.op == "Abs"
            and unique_consumer(graph, inner) is node
            and inner.inputs[0] is not None
        ):
            replace_nodes(
                graph,
                None,
                fresh(graph, "Abs", inner.inputs[0], node_id=node.id),
                inner,
                None,
                node,
                pass_name="random",
                rule="r",
            )
            return True
    return False


def insert_after(graph: Graph, a: int, b: int) -> bool:
    node = pick([node for node in graph if node.outputs and node.origin], a)
    if node is None:
        return False
    index = b % len(node.outputs)
    edit = rewriter(graph).edit(node, rule="insert", kind=EdgeKind.INSERT)
    edit.replace(node.ref(index), edit.node("Identity", [node.ref(index)]))
    edit.apply()
    return True


def insert_before_one_input(graph: Graph, a: int, b: int) -> bool:
    node = pick([node for node in graph if node.origin and node.inputs and not node.bodies], a)
    if node is None:
        return False
    index = b % len(node.inputs)
    ref = node.inputs[index]
    if ref is None:
        return False
    new = fresh(graph, "Identity", ref, cause=node)
    new.outputs = (graph.type_of(ref),)
    assert insert_nodes(graph, node, new, pass_name="random", rule="insert") == 1
    graph.set_input(node, index, new.ref())
    return True


def remove_dead(graph: Graph, a: int, b: int) -> bool:
    dead = [
        node
        for node in reversed(graph)
        if not graph.use_count(node) and not node.retained and node.op != "Input"
    ]
    node = pick(dead, a)
    if node is None:
        return False
    replace_nodes(graph, None, None, node, pass_name="random", rule="dead", reason=Reason.DEAD)
    return True


def fold(graph: Graph, a: int, b: int) -> bool:
    for node in having(graph, *UNARY, *BINARY):
        values = [graph.const_value(ref) for ref in node.inputs]
        if any(value is None for value in values):
            continue
        edit = rewriter(graph).edit(
            node, *(graph.producer(ref) for ref in node.inputs if ref is not None), rule="fold"
        )
        edit.replace(node, edit.const(EVALUATE[node.op](*values)))
        edit.apply()
        return True
    return False


EVALUATE: dict[str, Callable[..., np.ndarray]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Neg": np.negative,
    "Abs": np.abs,
    "Identity": lambda x: x,
    "Add": np.add,
    "Sub": np.subtract,
    "Max": np.maximum,
}


def merge_twins(graph: Graph, a: int, b: int) -> bool:
    seen: dict[tuple[object, ...], Node] = {}
    for node in having(graph, *UNARY, *BINARY, "Split"):
        twin = seen.setdefault((node.op, node.inputs), node)
        if twin is not node:
            edit = rewriter(graph).edit(node, rule="cse")
            edit.replace(node, twin)
            edit.tombstone(node, Reason.CSE, into=twin.id)
            edit.apply()
            return True
    return False


def rebuild_split(graph: Graph, a: int, b: int) -> bool:
    """A second split takes over one output, both, or the id."""
    node = pick(having(graph, "Split"), a)
    if node is None:
        return False
    edit = rewriter(graph).edit(node, rule="split again", kind=EdgeKind.REMAT)
    new = edit.node(
        "Split", node.inputs, node.attrs, inherit=node if b % 4 == 3 else None, n_outputs=2
    )
    for index in ((0,), (1,), (0, 1), ())[b % 4]:
        edit.replace(node.ref(index), new.ref(index))
    edit.apply()
    return True


def rewire_past_identity(graph: Graph, a: int, b: int) -> bool:
    node = pick(having(graph, "Identity"), a)
    if node is None or node.inputs[0] is None:
        return False
    old, new = node.id, node.inputs[0]
    begin = None if b % 2 else pick(graph.consumers(node), b)
    if b % 3:
        change_multi_output_refs_table(graph, begin, old, [new])
    elif new.index < 14:
        change_output_refs(graph, begin, old, new.node, new.index + 1)
    return True


def exchange_order(graph: Graph, a: int, b: int) -> bool:
    """-(identity(x)) = identity(-x), both new nodes under the ids of the old ones."""
    for node in having(graph, "Neg"):
        ref = node.inputs[0]
        inner = graph[ref.node] if ref is not None else node
        if inner.op == "Identity" and unique_consumer(graph, inner) is node:
            edit = rewriter(graph).edit(inner, node, rule="exchange")
            first = edit.node("Neg", inner.inputs, of=[node], inherit=node)
            edit.replace(node, edit.node("Identity", [first.ref()], of=[inner], inherit=inner))
            edit.apply()
            return True
    return False


def share_scalars(graph: Graph, a: int, b: int) -> bool:
    """x + 0 after some value, with a shared constant."""
    node = pick(
        [
            node
            for node in graph
            if node.outputs and node.origin and node.type == F32X4 and not node.is_const
        ],
        a,
    )
    if node is None:
        return False
    consts = ConstCache(graph)
    zero = get_zero_node(consts)
    if b % 5 == 0:
        purge_const_cache(consts, zero)
    edit = rewriter(graph).edit(node, rule="x = x + 0", kind=EdgeKind.INSERT)
    edit.replace(node, edit.node("Add", [node.ref(), Ref(zero)]))
    edit.apply()
    assert get_zero_node(consts) in {each.id for each in having(graph, "Const")}
    return True


def inline_branch(graph: Graph, a: int, b: int) -> bool:
    """The condition is always true here."""
    branch = pick(having(graph, "If"), a)
    if branch is None or b % 4:
        return False
    body = branch.bodies["then_branch"]
    edit = rewriter(graph).edit(branch, rule="inline")
    known: dict[Ref, Ref | None] = {
        node.ref(): ref for node, ref in zip(body.inputs, branch.inputs[1:], strict=True)
    }
    for node in body:
        if node.is_const:
            known[node.ref()] = edit.node(
                "Identity", [edit.const(node.value)], of=[node, branch]
            ).ref()
        elif node.op not in {"Input", "Output"}:
            inputs = [None if ref is None else known[ref] for ref in node.inputs]
            new = edit.node(node.op, inputs, node.attrs, of=[node], n_outputs=len(node.outputs))
            known.update({node.ref(index): new.ref(index) for index in range(len(node.outputs))})
    result = body.outputs[0].inputs[0]
    assert result is not None
    value = known[result]
    assert value is not None
    edit.replace(branch, value)
    edit.tombstone(branch, Reason.INLINED, into=value.node)
    edit.apply()
    return True


def move_branch(graph: Graph, a: int, b: int) -> bool:
    branch = pick(having(graph, "If"), a)
    if branch is None:
        return False
    edit = rewriter(graph).edit(branch, rule="rebuild")
    new = edit.node(
        "If",
        branch.inputs,
        branch.attrs,
        branch.outputs,
        bodies=branch.bodies,
        inherit=branch if b % 2 else None,
    )
    edit.replace(branch, new)
    edit.apply()
    return True


REWRITES: tuple[Callable[[Graph, int, int], bool], ...] = (
    bypass_identity,
    one_to_two,
    one_to_two_by_hand,
    two_to_one,
    two_to_one_by_hand,
    insert_after,
    insert_before_one_input,
    remove_dead,
    fold,
    merge_twins,
    rebuild_split,
    rewire_past_identity,
    exchange_order,
    share_scalars,
    inline_branch,
    move_branch,
)

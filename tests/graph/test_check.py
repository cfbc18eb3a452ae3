"""`check_graph`: every invariant can be broken, and is then found by name."""

from __future__ import annotations

import pytest

from tests.graph.making import X, assert_sound, chain, diamond, fresh, with_branches
from whence.compat.hexagon_consts import ConstCache, get_zero_node
from whence.errors import GraphError, ProvenanceError, WhenceError
from whence.graph import Check, Graph, Node, NodeFlag, Ref, Rewriter, check_graph
from whence.provenance import Ledger, Reason, Tombstone


def fails(graph: Graph, flags: Check, match: str, kind: type[WhenceError] = GraphError) -> None:
    with pytest.raises(kind, match=match) as caught:
        check_graph(graph, flags, after="bad pass")
    assert "bad pass" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sound_graphs_pass_all_checks() -> None:
    for graph in (chain("Relu", "Neg"), diamond(), with_branches(), Graph("empty")):
        check_graph(graph, Check.ALL)
        check_graph(graph)


class TestAlways:
    def test_a_loop_in_the_list(self) -> None:
        graph = chain("Relu", "Neg")
        graph[2]._next = graph[1]
        fails(graph, Check.NONE, "id 1 is met twice")

    def test_two_nodes_with_one_id(self) -> None:
        graph = chain("Relu", "Neg")
        graph[2].id = 1
        fails(graph, Check.NONE, "id 1 is met twice")

    def test_an_id_shared_with_a_nested_graph(self) -> None:
        graph = with_branches()
        inner = graph[1].bodies["then_branch"]
        inner.outputs[0].id = 1
        fails(graph, Check.NONE, "id 1 is met twice")

    def test_a_body_held_by_two_nodes(self) -> None:
        graph = with_branches()
        twin = Node(
            graph.new_id(),
            "If",
            graph[1].inputs,
            graph[1].outputs,
            graph[1].attrs,
            bodies=graph[1].bodies,
        )
        graph.insert_before(graph[4], twin)
        fails(graph, Check.NONE, "a body is held by two nodes")

    def test_too_many_operands(self) -> None:
        graph = chain("Relu", "Neg")
        graph.set_inputs(graph[2], (Ref(1), Ref(1)))
        fails(graph, Check.NONE, "'node2'> has 2 inputs; it takes 1")

    def test_an_attribute_that_the_operator_does_not_have(self) -> None:
        graph = chain("Relu", "Neg")
        graph[2].attrs = {"axis": 1}
        fails(graph, Check.NONE, "'node2'> has no attribute 'axis'; it has none")

    def test_id_0(self) -> None:
        graph = chain("Relu", "Neg")
        graph[1].id = 0
        fails(graph, Check.NONE, "has id 0")

    def test_a_wrong_link_back(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        graph[3]._prev = graph[1]
        fails(graph, Check.NONE, "wrong predecessor")

    def test_a_wrong_end(self) -> None:
        graph = chain("Relu", "Neg")
        graph._last = graph[2]
        fails(graph, Check.NONE, "the last node is not the end of the list")

    def test_order_numbers_against_the_list(self) -> None:
        graph = chain("Relu", "Neg")
        graph[1]._order = graph[2]._order
        fails(graph, Check.NONE, "order numbers")

    def test_a_node_of_another_graph_in_the_list(self) -> None:
        graph = chain("Relu", "Neg")
        graph[1].graph = chain("Relu")
        fails(graph, Check.NONE, "belongs elsewhere")

    def test_a_reference_to_nothing(self) -> None:
        graph = chain("Relu", "Neg")
        graph[2].inputs = (Ref(77),)
        fails(
            graph,
            Check.NONE,
            r"input 0 of <%2 Neg\(%77\) 'node2'> refers to %77, which does not exist",
        )

    def test_a_reference_forwards(self) -> None:
        graph = chain("Relu", "Neg")
        graph[1].inputs = (Ref(2),)
        fails(graph, Check.NONE, "refers to %2, which stands later")

    def test_a_reference_to_itself(self) -> None:
        graph = chain("Relu")
        graph[1].inputs = (Ref(1),)
        fails(graph, Check.NONE, "refers to %1, which stands later")

    @pytest.mark.parametrize("index", [1, -1])
    def test_a_reference_to_an_output_that_is_not_there(self, index: int) -> None:
        graph = chain("Relu", "Neg")
        graph[2].inputs = (Ref(1, index),)
        fails(graph, Check.NONE, f"refers to output {index} of a node with 1")

    def test_no_outputs_and_not_retained(self) -> None:
        graph = chain("Relu")
        graph.outputs[0].flags = NodeFlag.NONE
        fails(graph, Check.NONE, "has no outputs and is not retained")

    def test_a_body_with_a_ledger_of_its_own(self) -> None:
        graph = with_branches()
        graph[1].bodies["else_branch"].ledger = Ledger()
        fails(graph, Check.NONE, "body 'else_branch' .* has a ledger of its own")

    def test_nested_graphs_are_checked_too(self) -> None:
        graph = with_branches()
        body = graph[1].bodies["then_branch"]
        body[2].inputs = (Ref(1),)  # a node of the graph around it
        fails(
            graph,
            Check.NONE,
            "graph 'then_branch' after pass 'bad pass': input 0 of .* does not exist",
        )


class TestHash:
    def test_a_node_missing_from_the_index(self) -> None:
        graph = chain("Relu", "Neg")
        del graph._nodes[1]
        fails(graph, Check.HASH, "the list has 4 nodes, the index 3")
        check_graph(graph)

    def test_an_index_entry_not_in_the_list(self) -> None:
        graph = chain("Relu", "Neg")
        graph._nodes[77] = fresh(graph, "Neg", graph[1])
        fails(graph, Check.HASH, "the list has 4 nodes, the index 5")

    def test_an_index_entry_for_another_node(self) -> None:
        graph = chain("Relu", "Neg")
        graph._nodes[1] = graph[2]
        fails(graph, Check.HASH, "lookup of id 1 does not find")

    def test_a_consumer_too_many(self) -> None:
        graph = chain("Relu", "Neg")
        graph[1]._uses[77] = 1
        fails(graph, Check.HASH, r"consumers of <%1 .* are indexed as \[2, 77\], but are \[2\]")

    def test_a_consumer_too_few(self) -> None:
        graph = chain("Relu", "Neg")
        graph[1]._uses.clear()
        fails(graph, Check.HASH, r"consumers of <%1 .* are indexed as \[\], but are \[2\]")

    def test_a_wrong_count_of_uses(self) -> None:
        graph = chain("Relu", "Neg")
        graph[1]._uses[2] = 2
        fails(graph, Check.HASH, "consumers of <%1")

    def test_inputs_changed_behind_the_graphs_back(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        graph[3].inputs = (Ref(1),)
        fails(graph, Check.HASH, "consumers of <%1")
        check_graph(graph)

    def test_operator_counts(self) -> None:
        graph = chain("Relu", "Neg")
        graph.op_counts["Relu"] = 2
        fails(graph, Check.HASH, "operator counts are wrong")

    def test_lists_of_inputs_outputs_and_holders(self) -> None:
        graph = chain("Relu")
        graph._signature["Input"].clear()
        fails(graph, Check.HASH, "the list of Input nodes is wrong")
        graph = chain("Relu")
        graph._signature["Output"][1] = None
        fails(graph, Check.HASH, "the list of Output nodes is wrong")
        graph = chain("Relu")
        graph._holders[1] = None
        with pytest.raises(GraphError, match="the list of nodes with nested graphs is wrong"):
            check_graph(graph, Check.HASH)


class TestDeadNodes:
    def test_a_dead_operator(self) -> None:
        graph = chain("Relu")
        loose = graph.append(fresh(graph, "Neg", graph[1]))
        fails(graph, Check.DEADNODES, f"<%{loose.id} Neg.* is dead")
        check_graph(graph)

    def test_a_dead_constant(self) -> None:
        graph = chain("Relu")
        get_zero_node(ConstCache(graph))
        fails(graph, Check.DEADNODES, "Const.* is dead")

    def test_retained_nodes_are_not_dead(self) -> None:
        graph = chain("Relu")
        kept = graph.append(fresh(graph, "Neg", graph[1]))
        kept.flags |= NodeFlag.RETAIN
        check_graph(graph, Check.DEADNODES)

    def test_an_unused_input_belongs_to_the_signature(self) -> None:
        graph = chain("Relu")
        graph.prepend(Node(graph.new_id(), "Input", (), graph[1].outputs, name="unused"))
        check_graph(graph, Check.DEADNODES)

    def test_readers_of_any_output_keep_a_node_alive(self) -> None:
        from tests.graph.making import split_graph

        check_graph(split_graph(1), Check.DEADNODES)


class TestNonConst:
    def test_a_constant_among_operators(self) -> None:
        graph = chain("Relu")
        const = graph.insert_before(
            graph[1], Node(graph.new_id(), "Const", (), graph[1].outputs, value=X)
        )
        fails(graph, Check.NONCONST, f"constant <%{const.id} Const.* stands after <%.* Input")
        graph.move_to_front(const)
        check_graph(graph, Check.NONCONST)


class TestOrigin:
    def test_an_origin_the_ledger_does_not_derive(self) -> None:
        graph = chain("Relu", "Neg")
        graph[2].origin = frozenset((1, 2))
        fails(graph, Check.ORIGIN, r"carries origin \[1, 2\], the ledger derives \[2\]")
        check_graph(graph, Check.HASH)

    def test_an_origin_without_history(self) -> None:
        graph = chain("Relu")
        stray = fresh(graph, "Neg", graph[1])
        stray.origin = frozenset((1,))
        graph.append(stray)
        fails(graph, Check.ORIGIN, r"carries origin \[1\], the ledger derives \[\]")

    def test_a_lost_operator(self) -> None:
        graph = chain("Relu", "Neg")
        graph.set_input(graph.outputs[0], 0, Ref(1))
        graph.remove(graph[2])
        fails(
            graph,
            Check.ORIGIN,
            r"pass 'bad pass' lost source operator 2 'node2' \(Neg\)$",
            ProvenanceError,
        )
        with pytest.raises(ProvenanceError, match="pass 'other' lost 'node2'"):
            graph.ledger.check_conserved("other")
        graph.ledger.add_tombstone(Tombstone(2, frozenset((2,)), Reason.DEAD, "p", "r", None))
        assert_sound(graph)

    def test_an_operator_lost_with_a_nested_graph(self) -> None:
        graph = with_branches(("Relu", "Exp"))
        body = graph[1].bodies["then_branch"]
        body.set_input(body.outputs[0], 0, Ref(2))
        body.remove(body[3])
        fails(graph, Check.ORIGIN, "lost source operator 3 'Exp_3'", ProvenanceError)

    def test_wrong_counts_in_the_ledger(self) -> None:
        graph = chain("Relu", "Neg")
        graph.ledger.node_added(frozenset((2,)))
        fails(
            graph,
            Check.ORIGIN,
            "the ledger counts 2 nodes that carry source operator 'node2', there are 1",
        )

    def test_hostile_names_stay_on_one_line(self) -> None:
        graph = chain("Relu", "Neg")
        graph[2].name = "evil\nname\x1b[31m"
        graph.name = "a\nb"
        graph[2].inputs = (Ref(77),)
        fails(graph, Check.NONE, r"evil\\nname\\x1b")


def test_a_rewritten_graph_passes() -> None:
    graph = chain("Relu", "Identity", "Neg")
    Rewriter(graph, "p").bypass(graph[2], Ref(1), reason=Reason.IDENTITY, rule="identity(x) = x")
    check_graph(graph, Check.ALL)

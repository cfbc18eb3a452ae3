"""What is printed can be read: exactly, whatever a model holds; and what cannot be read is answered
with a line, a column and what was wanted.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.making import with_branches
from tests.graph.random_texts import ATTRS, TYPES, arrays, graphs
from tests.graph.structure import structure
from tests.replay.models_other import models
from whence.api import prepare
from whence.errors import TextError
from whence.graph import Check, Graph, Node, check_graph, print_graph
from whence.graph.literals import (
    array_text,
    digest,
    element_text,
    float_text,
    read_element,
    read_float,
    seeded,
)
from whence.graph.parse import arrays_of, parse_graph, parse_text
from whence.types import DType, TensorType


def same(one: Graph, other: Graph) -> bool:
    """Are all nodes, and everything about the graphs, equal to the last bit?"""
    orders = [[[*ids] for ids in graph._signature.values()] for graph in (one, other)]
    if orders[0] != orders[1]:
        return False
    about = ("name", "metadata", "listed_inputs", "claims", "op_counts")
    return (
        all(getattr(one, each) == getattr(other, each) for each in about)
        and len(one) == len(other)
        and all(map(_same_node, one, other))
    )


def _same_node(one: Node, other: Node) -> bool:
    plain = ("id", "op", "inputs", "outputs", "name", "origin", "flags", "_uses")
    return (
        all(getattr(one, each) == getattr(other, each) for each in plain)
        and _same_value(one.value, other.value)
        and one.attrs.keys() == other.attrs.keys()
        and all(_same_value(one.attrs[key], other.attrs[key]) for key in one.attrs)
        and list(one.bodies) == list(other.bodies)
        and all(same(one.bodies[name], other.bodies[name]) for name in one.bodies)
    )


def _same_value(one: object, other: object) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same_value, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return digest(one) == digest(other)
    return (type(one), repr(one)) == (type(other), repr(other))


def assert_same_history(one: Graph, other: Graph) -> None:
    mine, yours = one.ledger, other.ledger
    assert (mine.edges, mine.tombstones) == (yours.edges, yours.tombstones)
    assert (mine.next_id, mine.next_step) == (yours.next_id, yours.next_step)
    for left, right in zip(mine.sources, yours.sources, strict=True):
        # Equality of source operators leaves out where they stand in a file.
        assert (repr(left), left) == (repr(right), right)


@given(graphs())
@settings(max_examples=100)
def test_round_trip(graph: Graph) -> None:
    text = print_graph(graph, exact=True)
    assert all(line.isprintable() for line in text.split("\n"))
    again = parse_graph(text, arrays_of(graph))
    assert same(again, graph)
    assert_same_history(again, graph)
    assert print_graph(again, exact=True) == text


@pytest.mark.parametrize(
    "name", ["branches", "classifier", "encoder", "quantised", "scan", "state"]
)
def test_round_trip_of_models(name: str) -> None:
    for graph in (models()[name](), prepare(models()[name]())):
        again = parse_graph(print_graph(graph, exact=True), arrays_of(graph))
        assert same(again, graph)
        assert_same_history(again, graph)
        assert again.ledger.lost() == graph.ledger.lost()
        check_graph(again, Check.ALL)


def test_a_graph_that_was_read_goes_on_as_the_first_would() -> None:
    first = models()["classifier"]()
    second = parse_graph(print_graph(first, exact=True), arrays_of(first))
    prepare(first)
    prepare(second)
    assert print_graph(second, exact=True) == print_graph(first, exact=True)


@given(arrays())
@settings(max_examples=300)
def test_elements_to_the_last_bit(value: np.ndarray) -> None:
    dtype = DType.of(value)
    for item in value.reshape(-1)[:8] if dtype is not DType.STRING else ():
        assert (
            read_element(element_text(item, dtype), dtype).tobytes() == np.asarray(item).tobytes()
        )


@given(st.floats(allow_nan=False))
def test_floats(value: float) -> None:
    assert repr(read_float(float_text(value))) == repr(value)
    single = float(np.float32(value)) if abs(value) < 1e38 else value
    assert repr(read_float(float_text(single))) == repr(single)


@given(TYPES, ATTRS)
def test_a_node_alone(kind: object, attr: object) -> None:
    graph = Graph("one")
    graph.append(Node(graph.new_id(), "Op", (), (kind,), {"a": attr, "to": attr}))  # type: ignore[arg-type,dict-item]
    again = parse_graph(print_graph(graph, exact=True), arrays_of(graph))
    assert same(again, graph)


def test_golden_exact() -> None:
    """The whole notation at a glance."""
    graph = prepare(with_branches())
    rule = "'an If is both its branches and a choice between what they give'"
    assert print_graph(graph, exact=True) == (
        "graph main (%9, %10) -> (%11)\n"
        "%9 bool[] = Input()  # c\n"
        "%10 f32[4] = Input()  # x\n"
        "%12 f32[4] = Relu(%10) from[2] by flatten_branches  # Relu_2\n"
        "%13 f32[4] = Neg(%10) from[3] by flatten_branches  # Neg_3\n"
        "%14 f32[4] = Choose(%9, %12, %13) from[1] by flatten_branches  # If_1\n"
        "%4 f32[4] = Abs(%14) from[4]  # Abs_4\n"
        "%11 = Output(%4)  # y\n"
        "history next 15 step 2\n"
        "source 1 If If_1\n"
        "source 2 Relu Relu_2\n"
        "source 3 Neg Neg_3\n"
        f"edge 1 %12 <- %2 copy by flatten_branches {rule}\n"
        f"edge 1 %13 <- %3 copy by flatten_branches {rule}\n"
        f"edge 1 %14 <- %1 lower by flatten_branches {rule}\n"
        f"gone %1 from[1] inlined into %14 by flatten_branches {rule}\n"
        f"gone %2 from[2] inlined into %14 by flatten_branches {rule}\n"
        f"gone %3 from[3] inlined into %14 by flatten_branches {rule}\n"
    )


# ---- by hand ----

BY_HAND = """
# A convolution and what follows it.
%x f32[1,3,8,8] = Input()
%w f32[4,3,3,3] = Const() {seed 1}
%slope f32[4,1,1] = Const() {0.1, 0.2, 0.3, 0.4}
%conv = Conv(%x, %w) pads=[1,1,1,1]  # layer/conv
%act = PRelu(%conv, %slope)
%parts f32[1,2,8,8], f32[1,2,8,8] = Split(%act) axis=1 num_outputs=2
%left = Output(%parts)
%right = Output(%parts.1)
"""


def test_names_instead_of_numbers() -> None:
    graph = parse_graph(BY_HAND)
    assert print_graph(graph) == (
        "%4 f32[4,3,3,3] = Const() {...}  # w\n"
        "%5 f32[4,1,1] = Const() {0.1, 0.2, 0.3, 0.4}  # slope\n"
        "%6 f32[1,3,8,8] = Input()  # x\n"
        "%1 f32[1,4,8,8] = Conv(%6, %4) pads=[1,1,1,1] from[1]  # layer/conv\n"
        "%2 f32[1,4,8,8] = PRelu(%1, %5) from[2]  # act\n"
        "%3 f32[1,2,8,8], f32[1,2,8,8] = Split(%2) axis=1 num_outputs=2 from[3]  # parts\n"
        "%7 = Output(%3)  # left\n"
        "%8 = Output(%3.1)  # right\n"
    )
    assert [source.name for source in graph.ledger.sources] == ["layer/conv", "act", "parts"]
    check_graph(graph, Check.ALL)
    assert [value.shape for value in graph.run([np.ones((1, 3, 8, 8), np.float32)])] == [
        (1, 2, 8, 8)
    ] * 2


def test_arrays_are_written_again_as_they_were() -> None:
    parsed = parse_text(BY_HAND)
    text = print_graph(parsed.graph, exact=True, spelled=parsed.spelled)
    assert "Const() {seed 1}" in text
    assert structure(parse_graph(text)) == structure(parsed.graph)


def test_origins_without_a_history_are_one_rewrite() -> None:
    graph = parse_graph(
        "%3 f32[2] = Input()  # x\n"
        "%1 f32[2] = Relu(%3) from[1]  # a\n"
        "%4 f32[2] = FusedThing(%1) from[1,2]  # b\n"
        "%5 = Output(%4)  # y\n"
        "source 2 Neg b\n"
    )
    assert {edge.child: edge.pass_name for edge in graph.ledger.edges} == {4: "text"}
    check_graph(graph, Check.ORIGIN)


@pytest.mark.parametrize("dtype", [d for d in DType if d not in (DType.UNDEFINED, DType.STRING)])
def test_seeds_make_any_type(dtype: DType) -> None:
    value = seeded(3, dtype, (4, 5))
    assert TensorType.of(value) == TensorType(dtype, (4, 5))
    assert digest(seeded(3, dtype, (4, 5))) == digest(value)
    assert len(set(value.reshape(-1).tolist())) > 1


def test_seeded_numbers_are_the_same_everywhere() -> None:
    assert seeded(7, DType.F32, (4,)).tolist() == [-0.5, -0.35546875, 0.53515625, -0.96875]
    assert seeded(7, DType.F32, (500,), (0.5, 1.5)).min() >= 0.5
    assert sorted({*seeded(1, DType.I8, (9999,)).tolist()}) == list(range(-128, 128))


# ---- what cannot be read ----


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%1 f32[2] = Relu(%2)", "line 1, column 13: %2 is no node of this text"),
        ("%1 f99[2] = Input()", "line 1, column 4: no element type 'f99'; there are f32, u8,"),
        ("%1 f32[2 = Input()", "line 1, column 10: ',' is wanted here, not '='"),
        ("%1 f32[2] Input()", "line 1, column 11: ',' is wanted here, not 'Input'"),
        ("%1 f32[2] = Input(", "line 1, column 19: a node (%7) is wanted here, not the end"),
        ("%1 f32[2] = Input() ; x", "line 1, column 21: ';' means nothing here"),
        ("%1 f32[2] = Const() {1.0}", "line 1, column 22: 2 elements are wanted, not 1"),
        ("%1 i8[1] = Const() {300}", "line 1, column 21: '300' is no element of type i8"),
        ("%1 f32[?] = Const() {1.0}", "line 1, column 21: an array has known dimensions, not"),
        ("%1 f32[9] = Const() {sha256-abc}", "line 1, column 22: the array sha256-abc is not"),
        ("%1 f32[2] = Op() a=1 a=2", "line 1, column 22: attribute 'a' is given twice"),
        ("%1 f32[2] = Op() a", "line 1, column 19: '=' is wanted here, not the end of the line"),
        ("%1 f32[2] = Op() to=f99", "line 1, column 21: no element type 'f99'"),
        ("%1 f32[2] = Op() !big", "line 1, column 19: no flag 'big'; there are retain,"),
        ("%1 f32[2] = Op() from[2]", "line 1, column 13: source operators are numbered without"),
        ("%1 f32[2] = Op()\n%1 f32[2] = Op()", "line 2, column 1: %1 stands in line 1 already"),
        ("%1 f32[2] = Op()\n   %2 f32[2] = Op()", "line 2, column 4: 3 blanks at the beginning"),
        ("%1 f32[2] = Op()\n%x f32[2] = Op()", "line 1, column 13: nodes have names or numbers"),
        ("%x f32[2] = Input()\n%y = Conv(%x)", "line 2, column 6: "),
        ("%1 f32[2] = Input()\n%2 = Op(%1.1)", "line 2, column 6: <%2 Op(%1.1) ''> reads output"),
        ("graph a (%2) -> ()\n%1 f32[2] = Input()", "line 1, column 1: the graph is said to have"),
        ("%1 = Op()\ngraph a () -> ()", "line 2, column 1: a graph has one header, before"),
        ("history next 1 step 1\n%1 = Op()", "line 1, column 22: id 1 is taken; next is 2 or more"),
        ("edge 1 %1 <- %2 melt by p 'r'", "line 1, column 17: 'melt' is none of copy, fuse,"),
        ("source 1 Relu a color='red'", "line 1, column 17: no field 'color'; there are scope,"),
        ("%1 = Op() a=[1,", "line 1, column 16: a value of attribute '' is wanted here, not the"),
        ("%1 = Op() a='\\xZZ'", "line 1, column 13: '\\xZZ' is no text"),
    ],
)
def test_errors_say_where_and_what(text: str, message: str) -> None:
    with pytest.raises(TextError) as caught:
        parse_graph(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text("%1x f32[],=(){}#'\"!-<>.:\n ab0e", max_size=60))
@settings(max_examples=300)
def test_any_text_is_a_graph_or_an_error(text: str) -> None:
    with contextlib.suppress(TextError):
        parse_graph(text)


def test_arrays_in_the_short_form_are_left_out() -> None:
    value = np.arange(20, dtype=np.float32)
    assert array_text(value) == "{...}"
    assert array_text(np.ones(20, np.float32), exact=True) == "{all 1.0}"
    (node,) = parse_graph("%1 f32[20] = Const() {...}")
    assert node.value is None

"""Errors are one line, whatever a file calls its operators."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from whence.errors import ModelError, WhenceError
from whence.frontends.onnx.reader import read_onnx


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain", "plain"),
        ("größer ≥ 3", "größer ≥ 3"),
        ("two\nlines", "two\\nlines"),
        ("\x1b[31mred\x00", "\\x1b[31mred\\x00"),
        ("line\u2028separator \ud800", "line\\u2028separator \\ud800"),
    ],
)
def test_a_name_cannot_end_the_line(name, shown):
    assert str(ModelError(f"operator '{name}' fails")) == f"operator '{shown}' fails"


def test_an_attribute_with_a_strange_name():
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.append(helper.make_attribute("val\nue", 3))
    graph = helper.make_graph(
        [node], "g", [], [helper.make_tensor_value_info("y", TensorProto.INT64, [])]
    )
    with pytest.raises(WhenceError, match=r"val\\nue") as caught:
        read_onnx(helper.make_model(graph))
    assert len(str(caught.value).splitlines()) == 1

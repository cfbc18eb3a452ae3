"""`--dim NAME=SIZE`, in every command that takes sizes, and `dims=` in Python."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import whence as whence_package
from tests.cli.conftest import Whence
from whence.errors import InputError


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Two inputs that share a dimension."""
    path = tmp_path / "pair.onnx"
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 17]>\n'
            "pair (float[batch,n] a, float[batch,n] b) => (float[batch,n] y)"
            " { s = Add(a, b)\n y = Relu(s) }"
        ),
        path,
    )
    return path


def test_a_dimension_is_fixed_in_every_input(whence: Whence, pair: Path, tmp_path: Path) -> None:
    sizes = ("--dim", "batch=2", "--dim", "n=5")
    assert "f32[2,5]" in whence("why", pair, "2", *sizes).out
    done = whence("run", pair, *sizes)
    assert done.out.startswith("y  f32[2,5]")
    assert "sizes open" not in done.err
    assert whence("passes", pair, *sizes).code == 0
    assert whence("advise", pair, "--runs", 2, *sizes).code == 0
    assert whence("convert", pair, "-o", tmp_path / "fixed.onnx", *sizes).code == 0
    assert str(whence_package.load(tmp_path / "fixed.onnx").inputs[0].type) == "f32[2,5]"
    assert whence("compile", pair, "-o", tmp_path / "out", *sizes).code == 0
    assert "f32[2,5]" in (tmp_path / "out" / "pair.h").read_text(encoding="ascii")


def test_what_is_not_given_is_taken_and_recorded(
    whence: Whence, pair: Path, tmp_path: Path
) -> None:
    done = whence("profile", pair, "--runs", 2, "--dim", "n=5", "--json", tmp_path / "p.json")
    assert done.code == 0
    assert done.err.count("sizes open") == 1
    assert "these are taken: --dim batch=1" in done.err
    facts = json.loads((tmp_path / "p.json").read_text())["environment"]
    assert facts["dimension n"] == "5"
    assert facts["dimension batch"] == "1"
    assert facts["guessed sizes"] == "--dim batch=1"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dim", "m=2"], "the model has no dimension 'm'"),
        (["--dim", "n=2", "--dim", "n=3"], "two sizes are given for dimension 'n'"),
        (["--dim", "n=2", "--shape", "a=1x3"], "dimension 'n' is given as 2, and input 'a'"),
        (["--dim", "n"], "'n' is not NAME=SIZE"),
        (["--dim", "n=-1"], "'n=-1' is not NAME=SIZE"),
        (["--dim", "n=1,2"], "several are for"),
    ],
)
def test_wrong_sizes_are_refused_in_a_line(
    whence: Whence, pair: Path, options: list[str], said: str
) -> None:
    done = whence("run", pair, *options)
    assert done.code in (1, 2)
    assert said in " ".join(done.err.split())


def test_dims_in_python(pair: Path) -> None:
    model = whence_package.compile(pair, dims={"n": 4})
    assert [str(port.type) for port in model.inputs] == ["f32[batch,4]", "f32[batch,4]"]
    one = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(model(one, one), 2 * one)
    # What the file takes is in the cache by now.
    static = whence_package.compile(pair, dims={"n": 4, "batch": 3}, shapes={"a": (3, 4)})
    np.testing.assert_array_equal(static(one, one), 2 * one)
    with pytest.raises(InputError, match="the model takes f32"):
        static(one[:2], one[:2])
    graph = whence_package.load(pair)
    found = whence_package.profile(graph, dims={"n": 6, "batch": 2}, runs=2)
    assert found.dimensions == {"batch": 2, "n": 6}
    opened = whence_package.compile(graph)
    found = whence_package.profile(opened, dims={"n": 7}, runs=2)
    assert found.dimensions == {"batch": 1, "n": 7}
    np.testing.assert_array_equal(
        whence_package.compile(graph, shapes={"a": (3, 4), "b": (3, 4)})(one, one), 2 * one
    )


def test_several_sizes_of_a_dimension_are_a_sweep(
    whence: Whence, pair: Path, tmp_path: Path
) -> None:
    sizes = ("--runs", 2, "--dim", "n=0,8,64", "--dim", "batch=2")
    done = whence("profile", pair, *sizes, "-o", tmp_path / "out", "--json", tmp_path / "g.json")
    assert done.code == 0, done.err
    assert "pair.onnx by n" in done.out
    assert "the whole run" in done.out
    found = json.loads((tmp_path / "g.json").read_text())
    assert found["dimensions"] == [{"batch": 2, "n": size} for size in (0, 8, 64)]
    assert {row["growth"] for row in found["operators"]} <= {"constant", "linear", "quadratic"}
    for name in ("growth.json", "growth.html", "8/report.html", "64/profile.json"):
        assert (tmp_path / "out" / name).exists(), name


@pytest.mark.parametrize(
    "options",
    [
        ["--dim", "n=1,2", "--dim", "batch=1,2"],
        ["--dim", "n=1,2", "--exact"],
        ["--dim", "n=1,2", "--engine", "onnxruntime"],
        ["--dim", "n=1,2", "--by", "kernel"],
    ],
)
def test_what_is_not_for_several_sizes(whence: Whence, pair: Path, options: list[str]) -> None:
    assert whence("profile", pair, "--runs", 1, *options).code == 2


def test_a_name_with_two_sizes_is_a_warning_and_an_error_where_it_cannot_be(pair: Path) -> None:
    said = "dimension 'n' is given as 3 for input 'a' and as {} for input 'b'"
    with pytest.warns(UserWarning, match=said.format(1)):
        graph = whence_package.load(pair, shapes={"a": (2, 3), "b": (2, 1)})
    assert [str(node.type) for node in graph.inputs] == ["f32[2,3]", "f32[2,1]"]
    with (
        pytest.warns(UserWarning, match=said.format(4)),
        pytest.raises(InputError, match=f"{said.format(4)}, and the model cannot be run like that"),
    ):
        whence_package.load(pair, shapes={"a": (2, 3), "b": (2, 4)})

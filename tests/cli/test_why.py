"""`whence why`: the life of an operator."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import Whence, conv_bn_relu


def test_tells_the_life_of_a_folded_operator(whence: Whence, tiny: Path) -> None:
    done = whence("why", tiny, "bn1")
    assert done.code == 0
    assert "bn1 (BatchNormalization) folded" in done.out
    assert "read from the file as number 2" in done.out
    assert "by fold_batch_norm, with 'conv1'" in done.out
    assert "BN(conv(x, w, b)) = conv(x, w·s, (b-mean)·s+beta)" in done.out
    assert "now part of node" in done.out


def test_tells_why_an_operator_is_gone(whence: Whence, tiny: Path) -> None:
    done = whence("why", tiny, "same")
    assert done.code == 0
    assert "same (Identity) removed" in done.out
    assert "removed by remove_no_ops: identity" in done.out


def test_finds_operators_by_number_and_by_a_part_of_the_name(whence: Whence, tiny: Path) -> None:
    by_name = whence("why", tiny, "bn1").out
    assert whence("why", tiny, "2").out == by_name
    assert whence("why", tiny, "n1").out == by_name


def test_lists_every_operator(whence: Whence, tiny: Path) -> None:
    done = whence("why", tiny)
    assert done.code == 0
    for name in ("conv1", "bn1", "relu1", "same"):
        assert name in done.out
    assert "4 source operators: 2 live, 1 folded, 1 removed, 0 lost" in done.out
    assert "... and 2 more" in whence("why", tiny, "--limit", "2").out


@pytest.mark.parametrize(("wanted", "said"), [("nothing", "no operator 'nothing'"), ("n", "fits 2 operators"), ("relu2", "did you mean 'relu1'")])
def test_an_unknown_or_ambiguous_name_is_explained(whence: Whence, tiny: Path, wanted: str, said: str) -> None:
    done = whence("why", tiny, wanted)
    assert done.code == 1
    assert done.out == ""
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["", "a*/b", "]]>", "two\nlines", "bell\x07", "[bold red]markup[/]", "esc\x1b[31m", "中文"])
def test_hostile_names_are_only_text(whence: Whence, tmp_path: Path, name: str) -> None:
    path = tmp_path / "hostile.onnx"
    onnx.save(conv_bn_relu(name), path)
    done = whence("why", path, "2")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "\x07" not in done.out
    assert "(BatchNormalization) folded" in done.out.splitlines()[0]


def test_a_converted_model_still_speaks_of_the_first_file(whence: Whence, tiny: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.onnx"
    assert whence("convert", tiny, "-o", small).code == 0
    done = whence("why", small, "bn1")
    assert done.code == 0
    assert "bn1 (BatchNormalization) folded" in done.out
    assert "4 source operators" in whence("why", small).out
    assert "same (Identity) removed" in whence("why", small, "same").out

"""Engines side by side: times that add up, who is fastest, and what is fused by whom."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import whence.foreign
from tests.cli.conftest import Whence
from tests.cli.conftest import whence as whence_command
from tests.foreign.models import make
from tests.foreign.record import FOLDER
from whence.attribution.profile import Profile
from whence.attribution.read import read_profile
from whence.errors import InputError
from whence.foreign.compare_engines import data_edges
from whence.foreign.engine_comparison import REST, EngineComparison, compare_profiles
from whence.foreign.run import attribute, prepare, read_recording

__all__ = ["whence_command"]


def recorded(name: str, folder: Path) -> EngineComparison:
    subject = prepare(make(name, folder))
    profiles = {
        engine: attribute(subject, read_recording(subject.source, FOLDER / engine / name))[0]
        for engine in ("onnxruntime", "openvino")
    }
    return compare_profiles(profiles, data_edges(subject))


@pytest.mark.parametrize("by", ["op", "module", "type"])
def test_lines_add_up_to_a_run_of_each_engine(by: str, tmp_path: Path) -> None:
    found = recorded("silu", tmp_path)
    lines = found.lines(by)
    for position, total in enumerate(found.totals_ns):
        assert sum(line.times_ns[position] for line in lines) == total
    assert lines[-1].key == REST
    assert [max(line.times_ns) for line in lines[:-1]] == sorted(
        (max(line.times_ns) for line in lines[:-1]), reverse=True
    )


def test_what_one_engine_fuses_and_another_does_not(tmp_path: Path) -> None:
    """OpenVINO applies x · sigmoid(x) in the convolution, ONNX Runtime in a kernel of its own."""
    found = recorded("silu", tmp_path)
    names = found.names
    told = {(names[each.maker], names[each.reader]): each for each in found.fusions}
    assert set(told) == {
        ("conv1", "sig1"),
        ("conv1", "act1"),
        ("conv2", "sig2"),
        ("conv2", "act2"),
    }
    assert told["conv1", "act1"].fused_by == ("openvino",)
    assert told["conv1", "act1"].not_by == ("onnxruntime",)


def test_as_data(tmp_path: Path) -> None:
    told = json.loads(recorded("residual", tmp_path).to_json("module"))
    assert told["schema"] == "whence.engines/1"
    assert [each["name"] for each in told["engines"]] == ["onnxruntime", "openvino"]
    assert told["engines"][0]["engine"].startswith("onnxruntime 1.")
    assert sum(row["ns"]["openvino"] for row in told["rows"]) == told["engines"][1]["run_ns"]


def test_the_fastest_is_ahead_by_more_than_a_little(tmp_path: Path) -> None:
    found = recorded("residual", tmp_path)
    first, second = found.profiles
    same = compare_profiles({"a": first, "b": first}, [])
    assert {line.fastest for line in same.lines()} == {None}
    slow = dataclasses.replace(
        second,
        sources=tuple(
            dataclasses.replace(row, band=type(row.band)(1 << 40, 1 << 40, 1 << 40))
            for row in second.sources
        ),
    )
    ahead = compare_profiles({"a": first, "b": slow}, [])
    assert all(line.fastest == 0 for line in ahead.lines()[:-1])


def test_profiles_of_different_models_are_refused(tmp_path: Path) -> None:
    one, other = recorded("residual", tmp_path).profiles[0], recorded("silu", tmp_path).profiles[0]
    with pytest.raises(InputError, match="another model"):
        compare_profiles({"a": one, "b": other}, [])
    with pytest.raises(InputError, match="at least two"):
        compare_profiles({"a": one}, [])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["residual", "silu", "transformer", "gelu_between", "condition"])
def test_engines_run_in_turns(name: str, whence_command: Whence, tmp_path: Path) -> None:
    engines = [each for each in ("onnxruntime", "openvino") if each in whence.foreign.available()]
    page, told = tmp_path / "compare.html", tmp_path / "compare.json"
    options = ("--engines", ",".join(["whence", *engines]), "--threads", 1, "--runs", 2)
    done = whence_command(
        "compare", make(name, tmp_path), *options, "--warmup", 1, "-o", page, "--json", told
    )
    assert done.code == 0, done.err
    assert f"{name}.onnx · whence 0." in done.out
    assert "onnxruntime 1." in done.out.splitlines()[0]
    assert done.out.splitlines()[0].endswith(" · 1 thread")
    content = json.loads(told.read_text())
    for engine in content["engines"]:
        assert sum(row["ns"][engine["name"]] for row in content["rows"]) == engine["run_ns"]
        assert engine["runs"] == 2
    assert page.read_text().startswith("<!DOCTYPE html>")
    theirs = read_profile(tmp_path / "compare.onnxruntime.json")
    ours = read_profile(tmp_path / "compare.whence.json")
    assert [row.name for row in theirs.sources] == [row.name for row in ours.sources]


def test_bad_engines_are_refused(whence_command: Whence, tmp_path: Path) -> None:
    path = make("residual", tmp_path)
    for engines, reason in (("whence", "at least two"), ("whence,tvm", "no engine 'tvm'")):
        done = whence_command("compare", path, "--engines", engines)
        assert done.code == 1
        assert reason in done.err


def test_diff_says_which_engine_is_which(whence_command: Whence, tmp_path: Path) -> None:
    found = recorded("residual", tmp_path)
    files = []
    for name, profile in zip(found.engines, found.profiles, strict=True):
        assert isinstance(profile, Profile)
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(profile.to_json())
    done = whence_command("diff", *files)
    assert done.code == 0
    assert "onnxruntime 1." in done.out.splitlines()[0]
    assert "openvino 20" in done.out.splitlines()[0]
    assert "different engines" in done.err

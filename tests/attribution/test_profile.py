"""A profile adds up, has every operator once, and survives its file."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attribution.harness import RATES, conv_bn_relu, measured, profile_of, program_of
from whence.attribution.assemble import assemble
from whence.attribution.local_paths import shorten_location
from whence.attribution.profile import GROUPINGS, Profile, band_of
from whence.attribution.read import read_profile
from whence.attribution.rows import Band
from whence.building.machine_record import encode
from whence.errors import InputError, ModelError, UnsupportedError

GRAPH = conv_bn_relu()
PROGRAM = program_of(GRAPH)
RESIDUAL = {"dispatch": 70_000, "idle": 3, "profiler": 11}


@pytest.fixture
def profile() -> Profile:
    return profile_of(GRAPH, 1_000_003, runs=4, residual_ns=RESIDUAL)


@given(
    st.lists(st.integers(0, 10**12), min_size=len(PROGRAM.steps), max_size=len(PROGRAM.steps)),
    st.dictionaries(st.sampled_from(["dispatch", "idle", "profiler"]), st.integers(0, 10**12)),
    st.integers(1, 5),
)
def test_time_adds_up_exactly(times: list[int], residual: dict[str, int], runs: int) -> None:
    found = assemble(
        GRAPH,
        PROGRAM,
        measured(PROGRAM, times, runs, residual),
        model="m",
        engine="cpu",
        threads=1,
        rates=RATES,
    )
    assert (
        found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns == sum(found.runs_ns)
    )
    assert sum(kernel.time_ns for kernel in found.kernels) == found.attributed_ns
    for kernel in found.kernels:
        assert sum(part.time_ns for part in kernel.origin) == kernel.time_ns
        assert sum(part.weight for part in kernel.origin) == pytest.approx(1)
    for what in GROUPINGS:
        assert sum(group.time_ns for group in found.by(what)) == found.attributed_ns


def test_every_operator_of_the_file_is_there_once(profile: Profile) -> None:
    assert [row.id for row in profile.sources] == [1, 2, 3, 4]
    assert [row.fate for row in profile.sources] == ["live", "folded", "live", "removed"]
    assert profile.coverage.source_ops == 4
    assert profile.coverage.lost == 0
    assert not [name for name in profile.residual_ns if name.startswith("unattributed")]


def test_what_became_of_each_is_said(profile: Profile) -> None:
    conv, norm, relu, same = (row.became for row in profile.sources)
    assert "with bn, relu → kernel" in conv
    assert norm.startswith("folded into conv, relu → kernel")
    assert "conv" in relu
    assert same.startswith("did nothing (")


def test_groups(profile: Profile) -> None:
    assert {group.key: group.operators for group in profile.by("module")} == {
        "net.layer1": 3,
        "net": 1,
    }
    assert {group.key for group in profile.by("type")} == {
        "Conv",
        "BatchNormalization",
        "Relu",
        "Identity",
    }
    assert [group.key for group in profile.by("line")] == ["(no line in the file)"]
    assert len(profile.by("kernel")) == len(profile.kernels)
    times = [group.time_ns for group in profile.by("op")]
    assert times == sorted(times, reverse=True)
    with pytest.raises(InputError, match="cannot group a profile by 'colour'"):
        profile.by("colour")


def test_the_file_has_the_agreed_fields(profile: Profile) -> None:
    content = json.loads(profile.to_json())
    assert content["schema"] == "whence.profile/1"
    assert {
        "model",
        "engine",
        "threads",
        "runs",
        "wall_ns",
        "residual_ns",
        "overhead_ratio",
        "coverage",
        "sources",
        "kernels",
        "policy",
    } <= set(content)
    assert set(content["coverage"]) == {"source_ops", "live", "folded", "removed", "dead", "lost"}
    assert {"id", "name", "op", "fate", "time_ns", "share", "kernels", "module", "line"} <= set(
        content["sources"][0]
    )
    assert {"id", "name", "origin", "time_ns", "calls", "min_ns", "native"} <= set(
        content["kernels"][0]
    )
    assert {"id", "weight"} <= set(content["kernels"][0]["origin"][0])
    assert (
        sum(row["time_ns"] for row in content["sources"]) + sum(content["residual_ns"].values())
        == content["wall_ns"]
    )
    assert all(isinstance(row["time_ns"], int) for row in content["sources"])
    kernels = {row["id"] for row in content["kernels"]}
    assert all(set(row["kernels"]) <= kernels for row in content["sources"])


def test_it_reads_back_as_it_was_saved(profile: Profile, tmp_path: Path) -> None:
    (file,) = profile.save(tmp_path / "out", full_paths=True)
    assert read_profile(file) == read_profile(tmp_path / "out") == profile


def test_saving_shortens_local_paths(profile: Profile, tmp_path: Path) -> None:
    profile.save(tmp_path)
    assert read_profile(tmp_path).model == "up.onnx"


@pytest.mark.parametrize(
    ("location", "short"),
    [
        ("/home/me/work/net/model.py:12", "net/model.py:12"),
        ("/opt/env/lib/python3/site-packages/torch/nn/linear.py:3", "torch/nn/linear.py:3"),
        ("C:\\Users\\me\\net\\model.py:12", "net/model.py:12"),
        ("model.py:7", "model.py:7"),
        ("no line at all", "no line at all"),
        ("/", "/"),
    ],
)
def test_paths_are_shortened(location: str, short: str) -> None:
    assert shorten_location(location) == short


def test_a_data_frame_has_the_rows_of_the_file(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pandas:
        """As much of it as is used."""

        @staticmethod
        def DataFrame(rows: object) -> tuple[str, object]:
            return "frame", rows

    monkeypatch.setattr(importlib, "import_module", lambda name: {"pandas": Pandas}[name])
    assert profile.to_dataframe() == ("frame", profile.rows())
    assert profile.rows() == json.loads(profile.to_json())["sources"]


def test_without_pandas_there_are_still_rows(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(UnsupportedError, match="needs pandas"):
        profile.to_dataframe()
    assert [row["name"] for row in profile.rows()] == [row.name for row in profile.sources]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not a profile, which is JSON"),
        ("[]", "is not a profile"),
        ('{"schema": "whence.profile/9"}', "its schema is 'whence.profile/9'"),
        ('{"schema": "whence.profile/1"}', "damaged profile: KeyError 'model'"),
    ],
)
def test_a_bad_file_gets_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(ModelError, match=complaint):
        read_profile(file)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ({"threads": float("inf")}, "OverflowError"),
        ({"residual_ns": []}, "AttributeError"),
        ({"machine": {"threads": 1}}, "KeyError"),
        ({"machine": {**encode(RATES), "peak": {}}}, "there is no peak rate"),
        ({"sources": []}, "there is no operator 1"),
        ({"kernels": []}, "there is no kernel 0"),
        ({"timeline": [[99, 0, 1]]}, "there is no kernel 99"),
        ({"runs": 0}, "0 runs"),
    ],
)
def test_damage_inside_a_profile_gets_one_line(
    profile: Profile, tmp_path: Path, damage: dict[str, object], complaint: str
) -> None:
    file = tmp_path / "bad.json"
    file.write_text(json.dumps({**profile.to_dict(), **damage}))
    with pytest.raises(ModelError, match=f"is a damaged profile: .*{complaint}"):
        read_profile(file)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -1])
def test_a_part_of_a_kernel_that_is_none_gets_one_line(
    profile: Profile, tmp_path: Path, weight: float
) -> None:
    content = profile.to_dict()
    content["kernels"][0]["origin"][0]["weight"] = weight
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ModelError, match=r"is a damaged profile: ValueError .* as a weight"):
        read_profile(file)


def test_a_missing_file_gets_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        read_profile(tmp_path / "missing.json")
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="cannot be read: Not a directory"):
        read_profile(tmp_path / "file" / "profile.json")


def test_quartiles() -> None:
    assert band_of([]) == Band(0, 0, 0)
    assert band_of([5]) == Band(5, 5, 5)
    assert band_of([9, 1, 5, 3, 7]) == Band(3, 5, 7)


def test_a_run_that_is_not_profiled_is_shorter_by_what_noting_takes(profile: Profile) -> None:
    """As much as it took in undisturbed runs, however long others made the rest of them."""
    noted = dataclasses.replace(
        profile,
        runs=4,
        wall_ns=1_000_000,
        overhead_ratio=0.25,
        runs_ns=(10**5, 10**5, 10**5, 7 * 10**5),
    )
    assert noted.unprofiled_ns == pytest.approx(250_000 - 20_000)
    assert dataclasses.replace(noted, overhead_ratio=-0.1).unprofiled_ns == noted.run_ns

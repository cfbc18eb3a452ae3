"""`whence diff` for people, programs and GitHub."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from tests.attribution.harness import conv_bn_relu, profile_of
from tests.cli.conftest import Whence
from whence.attribution.profile import Profile
from whence.attribution.rows import Band


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """A profile, and one with its convolution slower by a fifth."""
    found = profile_of(conv_bn_relu("a|b%"), 1_000_000, runs=4)
    _write(found, tmp_path / "a.json", 100_000)
    _write(found, tmp_path / "b.json", 120_000)
    return tmp_path / "a.json", tmp_path / "b.json"


def test_json_has_every_operator(whence: Whence, two: tuple[Path, Path]) -> None:
    done = whence("diff", *two, "--json")
    assert done.code == 0
    content = json.loads(done.out)
    assert content["schema"] == "whence.diff/1"
    assert len(content["operators"]) == 4
    first = content["operators"][0]
    assert (first["name"], first["verdict"], first["change_ns"]) == (
        "/net/layer1/conv",
        "slower",
        20_000,
    )
    assert first["ratio"] == pytest.approx(0.2)


def test_names_in_profiles_are_no_markup(
    whence: Whence, two: tuple[Path, Path], tmp_path: Path
) -> None:
    other = json.loads(two[1].read_text()) | {"engine": "a[/b]"}
    (tmp_path / "c.json").write_text(json.dumps(other))
    done = whence("diff", two[0], tmp_path / "c.json")
    assert done.code == 0, done.err
    assert "a[/b]" in done.out


@pytest.mark.parametrize("limit", ["5", "5%", "5 %"])
def test_a_limit_needs_no_sign(whence: Whence, two: tuple[Path, Path], limit: str) -> None:
    done = whence("diff", *two, "--fail-over", limit)
    assert done.code == 1
    assert "over 5 % of" in done.err
    assert whence("diff", *two, "--fail-over", "50").code == 0


def test_github_gets_annotations_and_a_summary(
    whence: Whence, two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    done = whence("diff", *two, "--github", "--fail-over", 5)
    assert done.code == 1
    assert "::error title=whence::/net/layer1/conv: 100 µs → 120 µs per run (+20.0 %25" in done.out
    assert "::notice title=whence::the whole model" in done.out
    summary = (tmp_path / "summary.md").read_text()
    assert "| 100 µs | 120 µs | +20.0 % | slower | /net/layer1/conv |" in summary


def test_what_cannot_be_compared_is_said(whence: Whence, tmp_path: Path) -> None:
    found = profile_of(conv_bn_relu(), 1_000_000, runs=4)
    facts = {"input x": "1×3×8×8", "cpu": "Fast 9000"}
    _write(dataclasses.replace(found, environment=facts), tmp_path / "a.json", 1000)
    other = dataclasses.replace(
        found, threads=7, environment={"input x": "4×3×8×8", "cpu": "Slow 10"}
    )
    _write(other, tmp_path / "b.json", 1000)
    done = whence("diff", tmp_path / "a.json", tmp_path / "b.json")
    assert done.code == 0
    assert "different numbers of threads: 2 and 7" in done.err
    assert "different input shapes: x 1×3×8×8 and x 4×3×8×8" in done.err
    assert "different machines (cpu): Fast 9000 and Slow 10" in done.err
    assert not whence("diff", tmp_path / "a.json", tmp_path / "a.json").err


def _write(profile: Profile, file: Path, conv_ns: int) -> None:
    """With the convolution's middle runs at `conv_ns`."""
    first, *rest = profile.sources
    slow = dataclasses.replace(first, band=Band(conv_ns - 10, conv_ns, conv_ns + 10))
    runs = tuple(2 * conv_ns for _ in profile.runs_ns)
    profile = dataclasses.replace(profile, sources=(slow, *rest), runs_ns=runs)
    file.write_text(profile.to_json(), encoding="utf-8")


def test_a_page_has_both_profiles_and_what_changed(
    whence: Whence, two: tuple[Path, Path], tmp_path: Path
) -> None:
    file = tmp_path / "out" / "diff.html"
    done = whence("diff", *two, "--html", file)
    assert done.code == 0
    text = file.read_text()
    assert "default-src 'none'" in text
    (block,) = re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)
    content = json.loads(block)
    assert content["operators"][0]["ns"] == [100_000, 120_000]
    assert content["operators"][0]["verdict"] == "slower"
    assert len(content["profiles"]) == 2


def test_models_without_an_operator_in_common_are_refused(
    whence: Whence, two: tuple[Path, Path], tmp_path: Path
) -> None:
    content = json.loads(two[1].read_text())
    for row in content["sources"]:
        row["name"] = f"other/{row['name']}"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(content))
    refused = whence("diff", two[0], other)
    assert refused.code == 1
    assert "without an operator in common" in refused.err
    assert whence("diff", two[0], other, "--force").code == 0

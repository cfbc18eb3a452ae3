"""The report as a file: everything is in it, nothing breaks out of it, and the same profile gives
the same bytes.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.browser import ATTACKS, attacked_profile
from whence.attribution.profile import Profile
from whence.attribution.read import read_profile
from whence.graph.escaping import escape
from whence.report import diff_page
from whence.report.files import WRITERS
from whence.report.html import page as page_module
from whence.report.html import write_html
from whence.report.html.content import content
from whence.report.html.document import as_data_block
from whence.report.html.page import page
from whence.report.terminal import closure_line, fates_line

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


@pytest.fixture(scope="module")
def attacked() -> Profile:
    return attacked_profile()


def data_in(text: str) -> dict[str, Any]:
    (block,) = _DATA.findall(text)
    return dict(json.loads(block))


# ---- what is in it ----


def test_every_operator_is_in_it_with_its_time(attacked: Profile) -> None:
    told = data_in(page(attacked))
    assert told["operators"]["name"] == [escape(row.name) for row in attacked.sources]
    assert told["operators"]["time_ns"] == [row.time_ns for row in attacked.sources]
    assert (
        sum(told["operators"]["time_ns"]) + sum(attacked.residual_ns.values())
        == told["wall_ns"]
        == sum(time for _, time, _ in told["sum"])
    )
    assert told["policy"] == attacked.policy
    assert (
        told["source_ops"]
        == sum(count for _, count in told["fates"])
        == attacked.coverage.source_ops
    )


def test_the_heading_says_what_the_terminal_says(attacked: Profile) -> None:
    told = data_in(page(attacked))
    assert ", ".join(f"{count} {name}" for name, count in told["fates"]) in fates_line(attacked)
    assert sum(tenths for *_, tenths in told["sum"]) == 1000
    assert all(
        f"{name} {tenths / 10:.1f} %" in closure_line(attacked)
        for name, _, tenths in told["sum"]
        if tenths
    )


def test_relations_lead_to_rows_that_exist(attacked: Profile) -> None:
    told = content(attacked)
    operators, nodes, kernels = told["operators"], told["nodes"], told["kernels"]
    assert attacked.background is not None
    for table in (operators, nodes, kernels):
        assert len({len(column) for column in table.values()}) == 1
    n_operators, n_kernels = len(operators["name"]), len(kernels["id"])
    assert all(0 <= item < n_operators for origin in nodes["origin"] for item in origin)
    assert all(
        0 <= item < n_kernels
        for listed in (*nodes["kernels"], *operators["kernels"])
        for item in listed
    )
    assert all(
        0 <= kernel < n_kernels and 0 <= waited <= end - begin
        for kernel, begin, end, waited in told["timeline"]
    )
    for row, step in zip(attacked.kernels, attacked.background.program.steps, strict=True):
        number = kernels["id"].index(row.id)
        assert step.symbol in told["functions"][kernels["function"][number]]
        assert kernels["parts"][number] == [[part.id - 1, part.time_ns] for part in row.origin]


def test_a_normalisation_is_in_the_convolution_it_was_folded_into(attacked: Profile) -> None:
    told = content(attacked)
    conv = next(number for number, op in enumerate(told["nodes"]["op"]) if op.endswith("Conv"))
    types = {told["operators"]["type"][item] for item in told["nodes"]["origin"][conv]}
    assert {"Conv", "BatchNormalization"} <= types
    assert told["nodes"]["passes"][conv]
    assert told["nodes"]["kernels"][conv]


def test_a_profile_from_a_file_has_a_report_too(attacked: Profile, tmp_path: Path) -> None:
    attacked.save(tmp_path)
    told = data_in(page(read_profile(tmp_path)))
    assert not told["has_graph"]
    assert told["nodes"]["id"] == []
    assert told["functions"] == []
    assert set(told["kernels"]["function"]) == {-1}
    assert len(told["operators"]["name"]) == len(attacked.sources)


def test_a_profile_of_nothing_has_a_report(profile: Profile) -> None:
    empty = dataclasses.replace(
        profile,
        sources=(),
        kernels=(),
        timeline=(),
        runs=0,
        wall_ns=0,
        residual_ns={},
        background=None,
        runs_ns=(),
    )
    assert data_in(page(empty))["operators"]["name"] == []


def test_local_paths_are_shortened_unless_asked_for(attacked: Profile, tmp_path: Path) -> None:
    profile = dataclasses.replace(attacked, writers=WRITERS)
    for full in (False, True):
        files = profile.save(tmp_path / str(full), full_paths=full)
        (report,) = [file for file in files if file.name == "report.html"]
        assert ("/home/me" in report.read_text(encoding="utf-8")) is full


# ---- nothing breaks out of it ----


def test_the_page_has_two_scripts_and_loads_nothing(attacked: Profile) -> None:
    text = page(attacked)
    assert len(re.findall(r"<script", text, re.IGNORECASE)) == 2
    assert len(re.findall(r"</script", text, re.IGNORECASE)) == 2
    assert "<!--" not in text
    # The name of SVG's namespace is an address that nobody visits.
    assert set(re.findall(r"https?://[^\s'\"]*", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(?:img|link|iframe|object|embed|svg onload)", text, re.IGNORECASE)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new"
        r" Function|\bfetch\(|XMLHttpRequest|import\(",
        text,
    )


def test_the_page_admits_only_its_own_script_and_style(attacked: Profile) -> None:
    text = page(attacked)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none';")
    for element, directive in (("style", "style-src"), ("script", "script-src")):
        (inside,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy


def test_hostile_names_are_told_as_they_are(attacked: Profile) -> None:
    told = data_in(page(attacked))
    for attack in ATTACKS:
        assert any(escape(attack) in name for name in told["operators"]["name"])
    assert f"<title>{html.escape(escape(attacked.model))} · whence</title>" in page(attacked)


@given(st.text(st.characters(codec=None)) | st.sampled_from(ATTACKS))
def test_any_text_survives_the_data_block(text: str) -> None:
    block = as_data_block({"name": text})
    assert block.isascii()
    assert not set(block) & {"<", ">", "&", "\n", "\u2028"}
    assert json.loads(block) == {"name": text}


# ---- and it is always the same ----


def test_the_same_profile_gives_the_same_bytes(attacked: Profile, tmp_path: Path) -> None:
    (first,) = write_html(attacked, tmp_path)
    before = first.read_bytes()
    (again,) = write_html(attacked_profile(), tmp_path)
    assert again.read_bytes() == before


def test_every_part_of_the_page_is_used() -> None:
    names = {
        file.name
        for file in resources.files("whence.report.html").iterdir()
        if file.name.endswith((".js", ".css", ".html"))
    }
    engines = {"engines.css", "engines.html", "engines.js"}
    differences = {*diff_page.STYLES, *diff_page.SCRIPTS, "diff.html"}
    report = {*page_module._SCRIPTS, "report.css", "page.html"}
    growth = {"growth.css", "growth.html", "growth.js"}
    assert names == {"document.html"} | report | engines | differences | growth

"""Reports with very much or very little in them, in a real browser."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tests.report.large_profile import MANY, large_content
from tests.report.page_actions import (
    find,
    lit,
    open_lineage,
    point_at,
    rows,
    texts,
    type_into_search,
    wait_for,
)
from whence.attribution.profile import Profile
from whence.report.html import write_html
from whence.report.html.page import assembled


def test_five_thousand_operators_are_a_small_page(browser: Any, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text(assembled(large_content()), encoding="utf-8")
    browser.get(report.as_uri())
    open_lineage(browser)
    browser.execute_script("document.getElementById('pane-operators').scrollTop = 1e9")
    wait_for(lambda: f"/net/stage10/block1000/op{MANY}" in texts(browser, "#pane-operators", 1))
    point_at(browser, rows(browser, "#pane-operators")[-3])
    wait_for(lambda: lit(browser, "#pane-nodes", 0))
    assert lit(browser, "#pane-kernels", 1)
    find(browser, "#tab-time").click()
    type_into_search(browser, "stage3 type:type7")
    assert len(texts(browser, "#operator-rows", 3)) > 10
    assert browser.execute_script("return document.querySelectorAll('*').length") < 1200
    assert browser.get_log("browser") == []


def test_a_report_without_graph_or_without_anything(
    browser: Any, reported: Profile, tmp_path: Path
) -> None:
    bare = dataclasses.replace(reported, background=None)
    nothing = dataclasses.replace(
        bare, sources=(), kernels=(), timeline=(), runs=0, wall_ns=0, residual_ns={}, runs_ns=()
    )
    for each in (bare, nothing):
        (report,) = write_html(each, tmp_path)
        browser.get(report.as_uri())
        find(browser, "#tab-lineage").click()
        assert "not in this report" in find(browser, "#pane-nodes .empty").text
        find(browser, "#tab-time").click()
        assert browser.get_log("browser") == []

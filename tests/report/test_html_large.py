"""Reports with very much or very little in them, in a real browser."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Keys

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


_COUNTED = """
window.counted = {};
const count = (owner, name) => {
  const plain = owner[name];
  owner[name] = function (...given) {
    window.counted[name] = (window.counted[name] || 0) + 1;
    return plain.apply(this, given);
  };
};
for (const name of ['fillRect', 'fillText', 'measureText', 'rect', 'drawImage']) {
  count(CanvasRenderingContext2D.prototype, name);
}"""


@pytest.mark.parametrize("view", ["tab-time", "tab-graph"])
def test_a_search_draws_nothing_anew(browser: Any, tmp_path: Path, view: str) -> None:
    """It copies parts of what is drawn: what a letter costs does not grow with the drawings."""
    report = tmp_path / "report.html"
    report.write_text(assembled(large_content()), encoding="utf-8")
    browser.get(report.as_uri())
    find(browser, f"#{view}").click()
    if view == "tab-graph":
        find(browser, "#graph-open").click()
    frame = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
    browser.execute_async_script(frame)
    drawing = f"#{view.replace('tab-', 'view-')} canvas"
    picture = f"return document.querySelector('{drawing}').toDataURL()"
    before = browser.execute_script(picture)
    browser.execute_script(_COUNTED)
    for text in ("s", "type:type7", "op4999"):
        type_into_search(browser, text)
        browser.execute_async_script(frame)
        counted = browser.execute_script("return window.counted")
        assert set(counted) <= {"drawImage"}
        assert counted["drawImage"] < 2 * MANY
        browser.execute_script("window.counted = {}")
    assert browser.execute_script(picture) != before
    find(browser, "#search").send_keys(Keys.ESCAPE)
    browser.execute_async_script(frame)
    assert browser.execute_script(picture) == before


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

"""axe-core finds no serious fault in any view of the report, nor in the pages of `diff`, `compare`
and of growth, in light and dark, wide and narrow.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import attacked_profile
from tools.fetch_axe import FILE
from whence.attribution.compare import compare
from whence.attribution.dimension_sweep import DimensionSweep
from whence.attribution.rows import Band
from whence.foreign.engine_comparison import compare_profiles
from whence.foreign.engines_page import engines_page
from whence.report.diff_page import diff_page
from whence.report.growth import growth_page

REQUIRED = "WHENCE_REQUIRE_AXE"
VIEWS = ("time", "graph", "lineage", "advice")
_RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, { resultTypes: ['violations'] }).then(
  ({ violations, passes }) => done({
    checked: passes.length,
    faults: violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ target }) => target.join(' ')).join(', ')}`),
  }));"""


@pytest.fixture(scope="module")
def axe() -> str:
    if not FILE.is_file():
        missing = "axe-core is not there: `python -m tools.fetch_axe` fetches it"
        if os.environ.get(REQUIRED):
            pytest.fail(f"{missing}; {REQUIRED} is set")
        pytest.skip(missing)
    return FILE.read_text(encoding="utf-8")


@pytest.fixture
def screen(browser: Any) -> Iterator[Any]:
    """Takes a width and a colour scheme; what was before is there again afterwards."""

    def show(width: int, scheme: str) -> None:
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    yield show
    show(1280, "light")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_no_serious_fault(
    browser: Any, screen: Any, axe: str, file: Path, width: int, scheme: str
) -> None:
    screen(width, scheme)
    browser.get(file.as_uri())
    # By the browser's own protocol: the page's policy admits no other script.
    browser.execute_script(f"{axe}; window.axe = axe")
    for view in VIEWS:
        browser.execute_script(f"document.getElementById('tab-{view}').click()")
        found = browser.execute_async_script(_RUN)
        assert found["faults"] == [], f"in the view '{view}'"
        assert found["checked"] > 20


def _pages() -> dict[str, str]:
    before = dataclasses.replace(attacked_profile(), background=None)
    after = dataclasses.replace(
        before,
        wall_ns=3 * before.wall_ns,
        runs_ns=tuple(3 * each for each in before.runs_ns),
        sources=tuple(
            dataclasses.replace(
                row, time_ns=3 * row.time_ns, band=Band(*(3 * each for each in row.band))
            )
            for row in before.sources
        ),
    )
    pair = before, after
    edges = [(one.id, two.id) for one, two in itertools.pairwise(before.sources)]
    return {
        "diff": diff_page(*pair, compare(*pair), ["a warning"]),
        "compare": engines_page(compare_profiles({"one": before, "other": after}, edges)),
        "growth": growth_page(DimensionSweep("length", (16, 64, 256), (before, after, after))),
    }


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
@pytest.mark.parametrize("name", ["diff", "compare", "growth"])
def test_no_serious_fault_in_other_pages(
    browser: Any, screen: Any, axe: str, tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    screen(width, scheme)
    path = tmp_path / f"{name}.html"
    path.write_text(_pages()[name], encoding="utf-8")
    browser.get(path.as_uri())
    browser.execute_script(f"{axe}; window.axe = axe")
    found = browser.execute_async_script(_RUN)
    assert found["faults"] == []
    assert found["checked"] > 10


def test_a_fault_would_be_found(browser: Any, axe: str, file: Path) -> None:
    browser.get(file.as_uri())
    browser.execute_script(f"{axe}; window.axe = axe")
    browser.execute_script("document.querySelector('main').append(document.createElement('img'))")
    assert any(
        each.startswith("image-alt") for each in browser.execute_async_script(_RUN)["faults"]
    )

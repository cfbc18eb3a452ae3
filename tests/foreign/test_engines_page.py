"""The page that compares engines, in a real browser: it opens from disk, asks nobody for anything,
and shows an operator in all engines at once.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Keys

from tests.report.browser import attacked_profile, chromium, requested
from whence.foreign.engine_comparison import compare_profiles
from whence.foreign.engines_page import engines_page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ours = dataclasses.replace(attacked_profile(), background=None)
    # As if another engine took twice as long for everything.
    theirs = dataclasses.replace(
        ours,
        engine="<b>other</b> 1.0",
        wall_ns=2 * ours.wall_ns,
        runs_ns=tuple(2 * each for each in ours.runs_ns),
        sources=tuple(
            dataclasses.replace(
                row,
                time_ns=2 * row.time_ns,
                band=type(row.band)(*(2 * each for each in row.band)),
            )
            for row in ours.sources
        ),
    )
    edges = [(first.id, second.id) for first, second in itertools.pairwise(ours.sources)]
    found = compare_profiles({"whence": ours, "other": theirs}, edges)
    path = tmp_path_factory.mktemp("page") / "compare.html"
    path.write_text(engines_page(found), encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Any, file: Path) -> Iterator[Any]:
    requested(browser)
    browser.get(file.as_uri())
    yield browser
    assert browser.get_log("browser") == []
    assert requested(browser) == [file.as_uri()]
    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return [document.scripts.length, document.images.length]") == [
        2,
        0,
    ]


def texts(page: Any, selector: str) -> list[str]:
    return [each.text for each in page.find_elements("css selector", selector)]


def test_a_treemap_for_each_engine_on_one_scale(page: Any) -> None:
    assert texts(page, ".engine h2") == ["cpu", "<b>other</b> 1.0"]
    areas = page.execute_script(
        "return [...document.querySelectorAll('.map')].map((map) =>"
        " [...map.children].reduce((sum, cell) => sum + cell.offsetWidth * cell.offsetHeight, 0))"
    )
    assert areas[1] == pytest.approx(2 * areas[0], rel=0.05)
    assert texts(page, ".engine.best h2") == ["cpu"]


@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_fits_a_window_and_a_telephone(page: Any, file: Path, width: int) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 900},
    )
    try:
        page.get(file.as_uri())
        wide = page.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width
        tops = page.execute_script(
            "return [...document.querySelectorAll('.engine')].map((each) => each.offsetTop)"
        )
        # Beside each other where there is room, else the next begins right below the last cell.
        assert (tops[0] == tops[1]) == (width == 1400)
        blank = page.execute_script(
            "return [...document.querySelectorAll('.map')].map((map) => map.offsetHeight"
            " - Math.max(...[...map.children].map((cell) => cell.offsetTop + cell.offsetHeight)))"
        )
        assert max(map(abs, blank)) <= 1
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    requested(page)
    page.get(file.as_uri())


def test_an_operator_is_shown_in_all_engines(page: Any) -> None:
    cell = page.find_element("css selector", ".engine .cell:not(.residual)")
    cell.click()
    assert len(page.find_elements("css selector", ".cell.lit")) == 2
    (row,) = page.find_elements("css selector", "#operators tr.lit")
    detail = page.find_element("css selector", "#detail").text
    assert "whence: " in detail
    assert "other: " in detail
    assert row.find_elements("css selector", "td")[2].text in detail
    page.find_element("css selector", "body").send_keys(Keys.ESCAPE)
    assert page.find_elements("css selector", ".cell.lit") == []


def test_rows_and_cells_lead_to_each_other(page: Any) -> None:
    page.find_element("css selector", "#operators tbody tr").click()
    assert len(page.find_elements("css selector", ".cell.lit")) == 2


def test_search_narrows_the_table_and_dims_the_maps(page: Any) -> None:
    before = len(page.find_elements("css selector", "#operators tbody tr"))
    page.find_element("css selector", "#search").send_keys("Softmax")
    rows = page.find_elements("css selector", "#operators tbody tr")
    assert 0 < len(rows) < before
    assert page.find_elements("css selector", ".cell.dim")

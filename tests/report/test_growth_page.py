"""The page about growth with a dimension, in a real browser."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Keys

from tests.report.browser import attacked_profile, chromium, requested
from whence.attribution.dimension_sweep import DimensionSweep
from whence.attribution.rows import Band
from whence.report.growth import growth_page

SIZES = (16, 64, 256, 1024)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    first = dataclasses.replace(attacked_profile(), background=None)
    profiles = []
    for size in SIZES:
        rows = []
        for row in first.sources:
            time = 500 + (size * size if row.op == "Softmax" else 20 * size * (row.id % 3))
            rows.append(dataclasses.replace(row, time_ns=time, band=Band(time, time, time)))
        whole = sum(row.time_ns for row in rows)
        profiles.append(
            dataclasses.replace(first, sources=tuple(rows), wall_ns=whole, runs_ns=(whole,), runs=1)
        )
    path = tmp_path_factory.mktemp("page") / "growth.html"
    sweep = DimensionSweep("<b>sequence</b>", SIZES, tuple(profiles))
    path.write_text(growth_page(sweep), encoding="utf-8")
    return path


def test_a_plot_and_a_table(browser: Any, file: Path) -> None:
    requested(browser)
    browser.get(file.as_uri())
    find = browser.find_elements
    assert len(find("css selector", "#plot g")) == 8
    assert len(find("css selector", "#plot g circle")) == 8 * len(SIZES)
    first = find("css selector", "#operators tbody tr")[1]
    assert "quadratic" in first.text
    assert "Softmax" in first.text
    assert "by <b>sequence</b>" in browser.find_element("id", "title").text
    first.click()
    assert len(find("css selector", "#plot g.lit")) == 1
    assert len(find("css selector", "#plot g.faint")) == 7
    assert "quadratic" in browser.find_element("id", "detail").text
    browser.find_element("tag name", "body").send_keys(Keys.ESCAPE)
    assert not find("css selector", "#plot g.lit")
    # One that has no curve of its own gets one while it is looked at.
    find("css selector", "#operators tbody tr")[-1].click()
    assert len(find("css selector", "#plot g")) == 9
    search = browser.find_element("id", "search")
    search.send_keys("quadratic")
    assert len(find("css selector", "#operators tbody tr")) == 1
    assert browser.get_log("browser") == []
    assert requested(browser) == [file.as_uri()]
    assert browser.execute_script("return window.hacked") is None

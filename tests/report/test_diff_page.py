"""The page of two profiles, in a real browser: wide and narrow, light and dark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Keys

from tests.report.browser import attacked_profile, chromium, requested
from whence.attribution.compare import compare
from whence.attribution.profile import Profile
from whence.attribution.rows import Band
from whence.report.diff_page import diff_page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("browser")) as page:
        yield page


def _slower(profile: Profile, factor: int) -> Profile:
    """Every operator takes so many times as long, but the first."""
    rows = tuple(
        dataclasses.replace(
            row,
            time_ns=row.time_ns * (factor if number else 1),
            band=Band(*(each * (factor if number else 1) for each in row.band)),
        )
        for number, row in enumerate(profile.sources)
    )
    runs = tuple(each * factor for each in profile.runs_ns)
    return dataclasses.replace(profile, sources=rows, runs_ns=runs, wall_ns=sum(runs))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    before = dataclasses.replace(attacked_profile(), background=None)
    pair = before, _slower(before, 3)
    path = tmp_path_factory.mktemp("page") / "diff.html"
    path.write_text(diff_page(*pair, compare(*pair), ["a warning"]), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_lies_over_anything_else(browser: Any, file: Path, width: int, scheme: str) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(file.as_uri())
    script = """
    const box = (each) => {
      const { left, top, right, bottom } = each.getBoundingClientRect();
      return [left, top, right, bottom];
    };
    const maps = [...document.querySelectorAll('.map')];
    const cells = maps.map((map) => [...map.children].map(box));
    const table = document.getElementById('operators');
    return [maps.map(box), cells, box(table), document.documentElement.scrollWidth];
    """
    maps, cells, table, whole = browser.execute_script(script)
    assert len(maps) == 2
    assert all(cells)
    for (left, top, right, bottom), inside in zip(maps, cells, strict=True):
        assert bottom <= table[1]
        for a, b, c, d in inside:
            assert left - 1 <= a <= c <= right + 1
            assert top - 1 <= b <= d <= bottom + 1
    assert whole <= width
    # Areas are on one scale: what takes longer is larger.
    heights = [bottom - top for _, top, _, bottom in maps]
    assert heights[1] == pytest.approx(3 * heights[0], rel=0.05)


def test_an_operator_is_found_in_both(browser: Any, file: Path) -> None:
    requested(browser)
    browser.get(file.as_uri())
    first = browser.find_element("css selector", "#operators tbody tr")
    first.click()
    assert len(browser.find_elements("css selector", ".cell.lit")) == 2
    assert "slower" in browser.find_element("id", "detail").text
    browser.find_element("tag name", "body").send_keys(Keys.ESCAPE)
    assert not browser.find_elements("css selector", ".cell.lit")
    assert browser.get_log("browser") == []
    assert requested(browser) == [file.as_uri()]


def test_labels_leave_out_what_all_names_begin_with(browser: Any, tmp_path: Path) -> None:
    before = dataclasses.replace(attacked_profile(), background=None)
    rows = tuple(
        dataclasses.replace(row, name=f"/model.{number}/conv/Conv", time_ns=before.wall_ns // 8)
        for number, row in enumerate(before.sources[:5])
    )
    before = dataclasses.replace(before, sources=rows)
    path = tmp_path / "diff.html"
    path.write_text(diff_page(before, before, compare(before, before)), encoding="utf-8")
    browser.get(path.as_uri())
    labels = {each.text for each in browser.find_elements("css selector", ".cell")} - {""}
    assert labels
    assert labels <= {f"{number}/conv/Conv" for number in range(5)}

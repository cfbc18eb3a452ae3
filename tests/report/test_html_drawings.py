"""Treemap and timeline in a real browser."""

from __future__ import annotations

import dataclasses
import itertools
import math
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

from tests.report.page_actions import find, point_at, type_into_search, wait_for
from whence.attribution.profile import Profile
from whence.rates import Rate
from whence.report.html import write_html


def test_a_click_goes_into_the_treemap_and_the_path_leads_out(page: Any) -> None:
    treemap = find(page, "#treemap")
    before = page.execute_script("return document.querySelector('#treemap canvas').toDataURL()")
    ActionChains(page, duration=0).move_to_element_with_offset(treemap, -300, 0).click().perform()
    assert [button.text for button in page.find_elements("css selector", "#crumbs button")] == [
        "all",
        "net",
    ]
    ActionChains(page, duration=0).move_to_element_with_offset(treemap, -300, 1).click().perform()
    names = [button.text for button in page.find_elements("css selector", "#crumbs button")]
    assert len(names) == 3
    assert names[2].startswith("block")
    assert (
        page.execute_script("return document.querySelector('#treemap canvas').toDataURL()")
        != before
    )
    find(page, "#crumbs button").click()
    point_at(page, find(page, "#model"))
    assert (
        page.execute_script("return document.querySelector('#treemap canvas').toDataURL()")
        == before
    )


def test_the_treemap_names_what_is_under_the_pointer(page: Any, reported: Profile) -> None:
    ActionChains(page, duration=0).move_to_element_with_offset(
        find(page, "#treemap"), -300, 20
    ).perform()
    wait_for(lambda: find(page, "#tip").is_displayed())
    assert find(page, "#tip b").text
    assert "per run" in find(page, "#tip").text
    assert find(page, "#detail").text.startswith(find(page, "#tip b").text)


def test_the_timeline_zooms_and_pans(page: Any) -> None:
    line = find(page, "#timeline")
    whole = find(page, "#range").text
    origin = ScrollOrigin.from_element(line, 200, 0)
    ActionChains(page, duration=0).scroll_from_origin(origin, 0, -400).perform()
    wait_for(lambda: find(page, "#range").text != whole)
    zoomed = find(page, "#range").text
    ActionChains(page, duration=0).click_and_hold(line).move_by_offset(-80, 0).release().perform()
    wait_for(lambda: find(page, "#range").text != zoomed)
    assert not find(page, "#pinned").is_displayed(), "a drag is not a click"
    ActionChains(page, duration=0).double_click(line).perform()
    wait_for(lambda: find(page, "#range").text == whole)


def test_the_treemap_divides_its_area_by_weight(page: Any) -> None:
    script = (
        resources.files("whence.report.html").joinpath("squarify.js").read_text(encoding="utf-8")
    )
    weights = sorted((1 + number * number % 97 for number in range(60)), reverse=True)
    cells = page.execute_script(f"{script}; return squarify(arguments[0], 3, 5, 400, 210)", weights)
    assert len(cells) == len(weights)
    for weight, (x, y, w, h) in zip(weights, cells, strict=True):
        assert w * h == pytest.approx(400 * 210 * weight / sum(weights))
        assert x >= 3 - 1e-6
        assert y >= 5 - 1e-6
        assert x + w <= 403 + 1e-6
        assert y + h <= 215 + 1e-6
        assert max(w / h, h / w) < 4
    for number, (x, y, w, h) in enumerate(cells):
        for a, b, c, d in cells[:number]:
            assert min(x + w, a + c) - max(x, a) < 1e-6 or min(y + h, b + d) - max(y, b) < 1e-6, (
                "two overlap"
            )


def test_a_search_dims_the_areas_that_it_leaves_out(page: Any) -> None:
    """The others stay as they are, to the pixel."""
    colours = """
const canvas = document.querySelector('#treemap canvas');
const copy = Object.assign(document.createElement('canvas'), { width: canvas.width, height:
canvas.height }); const pen = copy.getContext('2d', { willReadFrequently: true });
pen.drawImage(canvas, 0, 0); const { data } = pen.getImageData(0, 0, copy.width, copy.height); const
found = new Map(); for (let at = 0; at < data.length; at += 4) {
  const colour = data.slice(at, at + 3).join(',');
  found.set(colour, (found.get(colour) || 0) + 1);
}
return Object.fromEntries(found)"""
    whole = page.execute_script(colours)
    type_into_search(page, "type:softmax")
    dimmed = page.execute_script(colours)
    swatches = page.execute_script(
        "return [...document.querySelectorAll('#legend button')].map((each) =>"
        " [each.textContent, getComputedStyle(each.firstChild).backgroundColor])"
    )
    plain = {name: colour.removeprefix("rgb(").removesuffix(")") for name, colour in swatches}
    by_name = {name: colour.replace(" ", "") for name, colour in plain.items()}
    assert dimmed[by_name["Softmax"]] >= 0.98 * whole[by_name["Softmax"]] > 0
    assert dimmed.get(by_name["Conv"], 0) < 0.02 * whole[by_name["Conv"]]
    find(page, "#search").send_keys(Keys.ESCAPE)
    assert page.execute_script(colours) == whole


def _apart(some: Any, other: Any) -> float:
    """The least distance of two labels' middle lines."""
    return min(math.dist(first, second) for first in some["parts"] for second in other["parts"])


_LINES: list[dict[str, Any]] = [
    # Two roofs ten pixels apart, and slopes that run side by side.
    {"text": "int8 209", "width": 44, "from": [560, 50], "to": [200, 50]},
    {"text": "f32 173", "width": 40, "from": [560, 60], "to": [190, 60]},
    {"text": "L1", "width": 12, "from": [46, 200], "to": [190, 60]},
    {"text": "L2", "width": 12, "from": [46, 214], "to": [205, 60]},
    {"text": "L3", "width": 12, "from": [46, 222], "to": [213, 60]},
    {"text": "memory", "width": 42, "from": [46, 240], "to": [240, 60]},
]


def test_the_names_of_lines_stand_on_them_clear_of_each_other_and_of_dots(page: Any) -> None:
    script = (
        resources.files("whence.report.html").joinpath("line_labels.js").read_text(encoding="utf-8")
    )
    dots = [[545, 55, 8], [500, 55, 4], [70, 200, 6]]
    found = page.execute_script(
        f"{{ {script}; return placeLabels(arguments[0], arguments[1]) }}", _LINES, dots
    )
    assert [each["text"] for each in found] == [each["text"] for each in _LINES]
    for number, label in enumerate(found):
        assert all(_apart(label, other) > 11 for other in found[:number])
        assert all(math.dist(part, dot[:2]) > dot[2] + 5 for part in label["parts"] for dot in dots)
        assert abs(label["angle"]) <= math.pi / 2, "it can be read"
        (ax, ay), (bx, by), (x, y) = _LINES[number]["from"], _LINES[number]["to"], label["at"]
        assert abs((bx - ax) * (y - ay) - (by - ay) * (x - ax)) < 1, "it is on its line"


@pytest.mark.parametrize("width", [1280, 390])
def test_no_two_names_in_the_roofline_overlap(page: Any, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        find(page, "#tab-advice").click()
        wait_for(
            lambda: page.execute_script("return document.getElementById('roofline').labels.length")
        )
        labels = page.execute_script("return document.getElementById('roofline').labels")
    finally:
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "width": 1280})
    assert {"f32", "int8", "memory"} <= {each["text"].split()[0] for each in labels}
    for number, label in enumerate(labels):
        assert all(_apart(label, other) > 11 for other in labels[:number])


_NOTE_TEXTS = """
window.texts = {};
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const wide = this.measureText(text).width;
  const left = x - wide * { left: 0, start: 0, center: 0.5, right: 1 }[this.textAlign];
  // What is drawn beside the page, to be copied onto it, is in no element.
  const drawing = this.canvas.parentElement?.id ?? '';
  // The names of lines are at the origin of a drawing that is moved and turned.
  if (x || y) window.texts[drawing] = { ...window.texts[drawing], [text]: [left, y, wide] };
  write.call(this, text, x, y);
};"""


@pytest.mark.parametrize("peak", [498.0, 503.0, 1000.0, 5100.0])
def test_no_two_texts_of_the_axes_overlap(
    browser: Any, reported: Profile, tmp_path: Path, peak: float
) -> None:
    """Numbers may be anywhere on an axis, also at its ends, where the units are."""
    rates = reported.rates
    assert rates is not None
    peaks = dict.fromkeys(rates.peak, Rate(peak, peak))
    profile = dataclasses.replace(reported, rates=dataclasses.replace(rates, peak=peaks))
    (file,) = write_html(profile, tmp_path)
    added = browser.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": _NOTE_TEXTS}
    )
    try:
        browser.get(file.as_uri())
        find(browser, "#tab-advice").click()
        wait_for(lambda: browser.execute_script("return 'roofline' in window.texts"))
        texts = browser.execute_script("return window.texts.roofline")
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    assert browser.get_log("browser") == []
    assert {"GFLOP/s", "operations for a byte"} < texts.keys()
    for one, two in itertools.combinations(texts, 2):
        (left, y, wide), (start, line, width) = texts[one], texts[two]
        is_beside = left + wide <= start or start + width <= left
        assert is_beside or abs(y - line) >= 11, (one, two)

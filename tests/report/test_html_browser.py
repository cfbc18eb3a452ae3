"""The report in a real browser: it opens from disk, asks nobody for anything, and answers to
pointer and keyboard.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

from tests.report.browser import ATTACKS, attacked_profile, chromium, requested
from whence.attribution.profile import Profile
from whence.attribution.rows import Event, KernelRow, Part, SourceRow
from whence.graph.outcomes import Coverage
from whence.graph.printer import escape
from whence.report.html import write_html
from whence.report.html.content import content
from whence.report.html.page import assembled

MANY = 5000


@pytest.fixture(scope="module")
def profile() -> Profile:
    return dataclasses.replace(attacked_profile(), notes=(ATTACKS[0],))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def file(profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (found,) = write_html(profile, tmp_path_factory.mktemp("report"))
    return found


@pytest.fixture
def page(browser: Any, file: Path) -> Iterator[Any]:
    """The report, freshly opened. Whatever a test does with it must leave the console empty and the
    network alone.
    """
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


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def find(page: Any, selector: str) -> Any:
    return page.find_element("css selector", selector)


def rows(page: Any, selector: str) -> list[Any]:
    """The rows in sight, from the top."""
    found = [
        row
        for row in page.find_elements("css selector", f"{selector} .row:not([hidden])")
        if row.is_displayed()
    ]
    return sorted(found, key=lambda row: row.location["y"])


def texts(page: Any, selector: str, column: int) -> list[str]:
    """One column of the rows, whole, also where it is cut on the screen."""
    script = """return [...document.querySelectorAll(arguments[0] + ' .row:not([hidden])')].sort((a, b) => a.place - b.place)
                .map(row => row.children[arguments[1]].textContent)"""
    return list(page.execute_script(script, selector, column))


def lit(page: Any, selector: str, column: int) -> set[str]:
    script = (
        "return [...document.querySelectorAll(arguments[0] + ' .row.lit:not([hidden])')].map(row =>"
        " row.children[arguments[1]].textContent)"
    )
    return set(page.execute_script(script, selector, column))


def point_at(page: Any, element: Any) -> None:
    ActionChains(page, duration=0).move_to_element(element).perform()


def type_into_search(page: Any, text: str) -> None:
    field = find(page, "#search")
    field.clear()
    field.send_keys(text)


def open_lineage(page: Any) -> None:
    find(page, "#tab-lineage").click()
    wait_for(lambda: rows(page, "#pane-kernels"))


# ---- the page ----


def test_the_heading(page: Any, profile: Profile) -> None:
    assert find(page, "#model").text == escape(profile.model)
    assert find(page, "#facts").text.startswith("cpu · 2 threads · 4 runs · profiling cost ")
    assert find(page, "#per-run").text.endswith(" ms per run")
    assert find(page, "#sum").text.startswith("kernels ")
    assert find(page, "#sum").text.endswith("= 100 %")
    assert find(page, "#fates").text.startswith(f"{len(profile.sources)} operators: ")
    assert find(page, "#fates").text.endswith(", 0 lost")
    find(page, "#policy summary").click()
    assert find(page, "#policy-text").text == profile.policy
    assert [note.text for note in page.find_elements("css selector", "#policy-notes li")] == [
        escape(ATTACKS[0])
    ]


def test_it_fits_the_window(page: Any) -> None:
    for view in ("#tab-time", "#tab-lineage"):
        find(page, view).click()
        size = page.execute_script(
            "const e = document.documentElement; return [e.scrollWidth, e.scrollHeight, innerWidth,"
            " innerHeight]"
        )
        assert size[:2] == size[2:] == [1280, 800]


def test_hostile_names_are_shown_and_do_nothing(page: Any) -> None:
    for attack in ATTACKS:
        # The part of a name after its last slash is one that the table shows.
        shown = escape(attack)
        type_into_search(
            page, f'"{shown}"' if '"' not in shown else shown.split('"', maxsplit=1)[0].split()[0]
        )
        assert any(shown in name for name in texts(page, "#operator-rows", 3))
    open_lineage(page)
    for row in rows(page, "#pane-operators"):
        point_at(page, row)


def test_light_and_dark(page: Any) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        page.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        grounds.add(page.execute_script("return getComputedStyle(document.body).backgroundColor"))
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(grounds) == 2


# ---- the table ----


def test_the_table_is_sorted_by_time_and_then_as_asked(page: Any, profile: Profile) -> None:
    by_time = sorted(profile.sources, key=lambda row: (-row.time_ns, row.id))
    count = len(texts(page, "#operator-rows", 3))
    assert texts(page, "#operator-rows", 3) == [escape(row.name) for row in by_time][:count]
    heading = find(page, "#operators .headings > :nth-child(5)")
    heading.find_element("css selector", "button").click()
    types = texts(page, "#operator-rows", 4)
    assert heading.get_attribute("aria-sort") == "ascending"
    assert types == sorted(types)
    assert types[0] == "Add"
    heading.find_element("css selector", "button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert texts(page, "#operator-rows", 4)[0] == "Softmax"


def test_what_next_has_findings_a_roofline_and_memory(page: Any, profile: Profile) -> None:
    best = find(page, "#best")
    first = profile.findings[0]
    assert best.text.endswith(escape(first.title))
    best.click()
    assert find(page, "#tab-advice").get_attribute("aria-selected") == "true"
    items = page.find_elements("css selector", "#findings li")
    assert [escape(each.title) for each in profile.findings] == [
        item.find_element("css selector", "b").text for item in items
    ]
    assert "GFLOP/s" in find(page, "#roofline-facts").text
    assert "alive at kernel" in find(page, "#memory-facts").text
    find(page, "#roofline").send_keys(Keys.ARROW_RIGHT, Keys.ENTER)
    heaviest = max(
        (row for row in profile.kernels if row.flops and row.bytes), key=lambda row: row.time_ns
    )
    assert f"kernel {heaviest.id} " in find(page, "#pinned").text
    find(page, "#memory").send_keys(Keys.ARROW_RIGHT)
    assert f"kernel {profile.kernels[0].id} " in find(page, "#detail").text


def test_a_search_filters_everything(page: Any, profile: Profile) -> None:
    relus = [row for row in profile.sources if row.op == "Relu"]
    type_into_search(page, "type:relu block2")
    assert texts(page, "#operator-rows", 4) == ["Relu"]
    assert find(page, "#found").text.startswith(f"1 of {len(profile.sources)} operators")
    type_into_search(page, 'type:"relu"')
    assert set(texts(page, "#operator-rows", 4)) == {"Relu"}
    assert find(page, "#found").text.startswith(f"{len(relus)} of ")
    open_lineage(page)
    assert find(page, "#count-operators").text == f"{len(relus)} of {len(profile.sources)}"
    kernels = {kernel for row in relus for kernel in row.kernels}
    assert find(page, "#count-kernels").text.split(" of ")[0] == str(len(kernels))
    type_into_search(page, "no such thing")
    assert rows(page, "#pane-operators") == []
    assert find(page, "#pane-operators .empty").is_displayed()
    find(page, "#search").send_keys(Keys.ESCAPE)
    assert find(page, "#count-operators").text == str(len(profile.sources))


def test_a_pass_finds_the_operators_it_worked_on(page: Any) -> None:
    type_into_search(page, "fold_batch_norm")
    found = set(texts(page, "#operator-rows", 4))
    assert "BatchNormalization" in found
    assert "Softmax" not in found


# ---- the three panes ----


def test_pointing_at_an_operator_lights_up_its_relatives(page: Any, profile: Profile) -> None:
    told = content(profile)
    open_lineage(page)
    item = told["operators"]["type"].index("BatchNormalization")
    name = told["operators"]["name"][item]
    nodes = {
        f"%{told['nodes']['id'][number]}"
        for number, origin in enumerate(told["nodes"]["origin"])
        if item in origin
    }
    kernels = {str(told["kernels"]["id"][number]) for number in told["operators"]["kernels"][item]}
    assert nodes
    assert kernels
    (row,) = [
        row
        for row in rows(page, "#pane-operators")
        if row.find_element("css selector", ".middle").get_attribute("title") == name
    ]
    assert lit(page, "#pane-nodes", 0) == set()
    point_at(page, row)
    wait_for(lambda: lit(page, "#pane-nodes", 0))
    assert lit(page, "#pane-operators", 1) == {name}
    assert lit(page, "#pane-nodes", 0) == nodes
    assert lit(page, "#pane-kernels", 1) == kernels
    assert "lit" in find(page, "#code").get_attribute("class").split()
    assert find(page, "#detail").text.startswith(name)
    assert len(page.find_elements("css selector", "#gutter-left path")) == len(nodes)
    # And it goes out again.
    point_at(page, find(page, "#model"))
    wait_for(lambda: not lit(page, "#pane-nodes", 0))


def test_pointing_at_a_kernel_and_at_a_node_lights_up_theirs(page: Any, profile: Profile) -> None:
    told = content(profile)
    open_lineage(page)
    point_at(page, rows(page, "#pane-kernels")[1])
    wait_for(lambda: lit(page, "#pane-operators", 1))
    number = int(next(iter(lit(page, "#pane-kernels", 1))))
    kernel = told["kernels"]["id"].index(number)
    expected = {
        told["operators"]["name"][item]
        for item, kernels in enumerate(told["operators"]["kernels"])
        if kernel in kernels
    }
    assert lit(page, "#pane-operators", 1) == expected
    assert find(page, "#code-title").text.startswith(f"Code of kernel {number}")
    symbol = (
        told["functions"][told["kernels"]["function"][kernel]]
        .partition("void ")[2]
        .partition("(")[0]
    )
    assert symbol in find(page, "#code").get_attribute("textContent")
    point_at(page, rows(page, "#pane-nodes")[2])
    wait_for(lambda: lit(page, "#pane-nodes", 0) == {f"%{told['nodes']['id'][2]}"})
    assert lit(page, "#pane-operators", 1) == {
        told["operators"]["name"][item] for item in told["nodes"]["origin"][2]
    }


def test_a_click_pins_until_it_is_released(page: Any) -> None:
    open_lineage(page)
    first, *_, last = rows(page, "#pane-operators")
    first.click()
    pinned = lit(page, "#pane-operators", 1)
    title = find(page, "#code-title").text
    point_at(page, last)
    wait_for(lambda: lit(page, "#pane-operators", 1) != pinned)
    assert find(page, "#code-title").text == title, "what is pinned keeps its code in sight"
    point_at(page, find(page, "#model"))
    wait_for(lambda: lit(page, "#pane-operators", 1) == pinned)
    assert find(page, "#pinned").is_displayed()
    find(page, "body").send_keys(Keys.ESCAPE)
    assert not find(page, "#pinned").is_displayed()
    wait_for(lambda: not lit(page, "#pane-operators", 1))


def test_everything_can_be_done_without_a_pointer(page: Any) -> None:
    point_at(page, find(page, "#model"))
    body = find(page, "body")
    body.send_keys("2")
    assert find(page, "#view-lineage").is_displayed()
    pane = find(page, "#pane-operators")
    page.execute_script("arguments[0].focus()", pane)
    pane.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    second = texts(page, "#pane-operators", 1)[1]
    assert lit(page, "#pane-operators", 1) == {second}
    assert (
        find(page, f"#{pane.get_attribute('aria-activedescendant')}")
        .get_attribute("class")
        .split()
        .count("here")
        == 1
    )
    pane.send_keys(Keys.ENTER)
    assert find(page, "#pinned").text.startswith(second)
    body.send_keys("1")
    assert find(page, "#view-time").is_displayed()
    body.send_keys("/")
    assert page.switch_to.active_element.get_attribute("id") == "search"
    treemap = find(page, "#treemap")
    page.execute_script("arguments[0].focus()", treemap)
    treemap.send_keys(Keys.ARROW_RIGHT, Keys.ENTER)
    assert find(page, "#crumbs button[aria-current]").text == "net"
    treemap.send_keys(Keys.BACKSPACE)
    assert find(page, "#crumbs button[aria-current]").text == "all"
    line = find(page, "#timeline")
    page.execute_script("arguments[0].focus()", line)
    whole = find(page, "#range").text
    line.send_keys("+")
    assert find(page, "#range").text != whole
    line.send_keys("0")
    assert find(page, "#range").text == whole


# ---- the drawings ----


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


def test_the_treemap_names_what_is_under_the_pointer(page: Any, profile: Profile) -> None:
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


# ---- large and small ----


def large_profile() -> Profile:
    """Operators, kernels and events by the thousand. Each kernel has two operators."""
    wall = MANY * 2000
    sources = tuple(
        SourceRow(
            number,
            f"/net/stage{number // 500}/block{number // 5}/op{number}",
            f"Type{number % 12}",
            "live",
            2000,
            2000 / wall,
            ((number - 1) // 2,),
        )
        for number in range(1, MANY + 1)
    )
    kernels = tuple(
        KernelRow(
            number,
            f"fuse_{number}",
            (Part(2 * number + 1, 0.5, 2000), Part(2 * number + 2, 0.5, 2000)),
            4000,
            10,
            300,
            True,
        )
        for number in range(MANY // 2)
    )
    timeline = tuple(Event(number, number * 400, number * 400 + 390) for number in range(MANY // 2))
    return Profile(
        "large.onnx",
        "cpu",
        2,
        10,
        wall,
        {},
        0.0,
        Coverage(MANY, MANY, 0, 0, 0, 0),
        sources,
        kernels,
        timeline=timeline,
        timeline_ns=MANY * 200,
    )


def test_five_thousand_operators_are_a_small_page(browser: Any, tmp_path: Path) -> None:
    told = content(large_profile())
    columns = {
        "id": range(MANY), "op": ["Node"] * MANY, "type": ["f32[1]"] * MANY, "attributes": [""] * MANY,
        "passes": [["fuse"]] * MANY, "origin": [[number] for number in range(MANY)], "kernels": [[number // 2] for number in range(MANY)],
        "depth": [0] * MANY,
    }  # fmt: skip
    assert set(columns) == set(told["nodes"])
    report = tmp_path / "report.html"
    report.write_text(
        assembled(
            {
                **told,
                "has_graph": True,
                "nodes": {name: list(column) for name, column in columns.items()},
            }
        ),
        encoding="utf-8",
    )
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
    browser: Any, profile: Profile, tmp_path: Path
) -> None:
    bare = dataclasses.replace(profile, background=None)
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

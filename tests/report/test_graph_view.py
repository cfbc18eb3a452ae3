"""The graph of the file in the report: its edges, and the view in a real browser."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

from tests.graph.making import with_branches
from tests.report.large_profile import MANY, large_content
from tests.report.page_actions import find, point_at, texts, type_into_search, wait_for
from whence.attribution.profile import Profile
from whence.report.html import write_html
from whence.report.html.content import content
from whence.report.html.page import assembled
from whence.report.html.source_edges import edges

PIXELS = "return document.querySelector('#graph canvas').toDataURL()"


def shown(page: Any) -> int:
    """How many boxes are drawn."""
    return int(find(page, "#graph-facts").text.split(", ")[-2].split()[0].replace(",", ""))


def open_graph(page: Any) -> Any:
    find(page, "#tab-graph").click()
    wait_for(lambda: find(page, "#graph-facts").text)
    return find(page, "#graph")


# ---- edges ----


def test_operands_are_the_edges_of_the_file(reported: Profile) -> None:
    told = content(reported)["operators"]
    add = told["type"].index("Add")
    assert {told["type"][item] for item in told["operands"][add]} == {"Relu"}
    second = told["type"].index("Conv", 1)
    assert {told["type"][item] for item in told["operands"][second]} == {"Add"}
    assert len(told["operands"]) == len(reported.sources)
    bare = dataclasses.replace(reported, background=None)
    assert not any(content(bare)["operators"]["operands"])


def test_what_a_branch_makes_is_read_by_the_condition() -> None:
    graph = with_branches(("Relu", "Exp"), ("Tanh",))
    names = {node.id: node.op for each in (graph, *graph[1].bodies.values()) for node in each}
    assert {(names[source], names[reader]) for source, reader in edges(graph)} == {
        ("Relu", "Exp"),
        ("Exp", "If"),
        ("Tanh", "If"),
        ("If", "Abs"),
    }


# ---- the view ----


def test_modules_close_and_open(page: Any, reported: Profile) -> None:
    graph = open_graph(page)
    assert shown(page) == len(reported.sources)
    assert "fused kernels outlined" in find(page, "#graph-facts").text
    find(page, "#graph-close").click()
    assert shown(page) == 1
    before = page.execute_script(PIXELS)
    ActionChains(page, duration=0).move_to_element(graph).click().perform()
    wait_for(lambda: shown(page) > 1)
    wait_for(lambda: page.execute_script(PIXELS) != before)
    find(page, "#graph-open").click()
    assert shown(page) == len(reported.sources)


def settled(page: Any) -> str:
    """The picture once it no longer changes: a layout or a resize may still be under way."""
    pictures: list[str] = [""]

    def still() -> bool:
        pictures.append(page.execute_script(PIXELS) or "")
        return bool(pictures[-1]) and len(set(pictures[-3:])) == 1

    wait_for(still)
    return pictures[-1]


def test_it_pans_and_zooms(page: Any) -> None:
    graph = open_graph(page)
    find(page, "#graph-fit").click()
    fitted = settled(page)
    ActionChains(page, duration=0).scroll_from_origin(
        ScrollOrigin.from_element(graph, 0, 0), 0, -300
    ).perform()
    wait_for(lambda: page.execute_script(PIXELS) != fitted)
    zoomed = settled(page)
    assert zoomed != fitted
    ActionChains(page, duration=0).move_to_element_with_offset(
        graph, -600, 200
    ).click_and_hold().move_by_offset(90, -40).release().perform()
    wait_for(lambda: page.execute_script(PIXELS) not in {fitted, zoomed})
    assert not find(page, "#pinned").is_displayed(), "a drag is not a click"
    find(page, "#graph-fit").click()
    wait_for(lambda: page.execute_script(PIXELS) == fitted)


def test_it_is_linked_with_the_other_views(page: Any, reported: Profile) -> None:
    heaviest = texts(page, "#operator-rows", 3)[0]
    find(page, "#operator-rows .row").click()
    graph = open_graph(page)
    marks = "return document.querySelectorAll('#graph canvas')[1].marked"
    wait_for(lambda: page.execute_script(marks))
    # What is pinned was brought to the middle; a click there releases it.
    point_at(page, graph)
    wait_for(lambda: find(page, "#tip").is_displayed())
    assert find(page, "#tip b").text == find(page, "#pinned span").text
    assert heaviest.endswith(find(page, "#tip b").text[-10:])
    ActionChains(page, duration=0).click(graph).perform()
    assert not find(page, "#pinned").is_displayed()
    # And the other way round: what is pinned here is lit in the lineage.
    ActionChains(page, duration=0).click(graph).perform()
    find(page, "#tab-lineage").click()
    wait_for(lambda: page.find_elements("css selector", "#pane-operators .row.pinned"))
    assert find(page, "#pane-kernels .row.lit").is_displayed()


def test_without_a_pointer(page: Any, reported: Profile) -> None:
    point_at(page, find(page, "#model"))
    find(page, "body").send_keys("2")
    graph = find(page, "#graph")
    page.execute_script("arguments[0].focus()", graph)
    graph.send_keys(Keys.ARROW_RIGHT)
    first = find(page, "#detail b").text
    assert first == content(reported)["operators"]["name"][0]
    graph.send_keys(Keys.ARROW_DOWN)
    assert find(page, "#detail b").text == content(reported)["operators"]["name"][1]
    graph.send_keys(Keys.ARROW_UP, Keys.ENTER)
    assert find(page, "#pinned span").text == first
    graph.send_keys(Keys.BACKSPACE)
    assert shown(page) < len(reported.sources)
    graph.send_keys("-", "0", "+")


def test_a_search_dims_the_rest(page: Any) -> None:
    open_graph(page)
    before = page.execute_script(PIXELS)
    type_into_search(page, "type:softmax")
    wait_for(lambda: page.execute_script(PIXELS) != before)


@pytest.fixture
def large(browser: Any, tmp_path: Path) -> Iterator[Any]:
    report = tmp_path / "report.html"
    report.write_text(assembled(large_content()), encoding="utf-8")
    browser.get(report.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def test_five_thousand_operators_are_one_picture(large: Any) -> None:
    open_graph(large)
    assert 100 < shown(large) <= 240, "what has most time is open at first, and no more"
    find(large, "#graph-open").click()
    assert shown(large) == MANY
    assert f"{MANY // 2:,} fused kernels" in find(large, "#graph-facts").text
    find(large, "#graph-close").click()
    assert shown(large) == 1
    # What is pinned elsewhere is opened up.
    find(large, "#tab-time").click()
    find(large, "#operator-rows .row").click()
    open_graph(large)
    assert 1 < shown(large) < MANY


def test_without_a_graph_it_says_so(browser: Any, reported: Profile, tmp_path: Path) -> None:
    (report,) = write_html(dataclasses.replace(reported, background=None), tmp_path)
    browser.get(report.as_uri())
    find(browser, "#tab-graph").click()
    assert "not in this report" in find(browser, "#graph .empty").text
    assert browser.get_log("browser") == []

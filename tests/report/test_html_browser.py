"""The report in a real browser: it opens from disk, asks nobody for anything, and answers to
pointer and keyboard.
"""

from __future__ import annotations

from typing import Any

from selenium.webdriver import Keys

from tests.report.browser import ATTACKS
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
from whence.graph.escaping import escape
from whence.report.html.content import content

# ---- the page ----


def test_the_heading(page: Any, reported: Profile) -> None:
    assert find(page, "#model").text == escape(reported.model)
    assert find(page, "#facts").text.startswith("cpu · 2 threads · 4 runs · profiling cost ")
    assert find(page, "#per-run").text.endswith(" ms per run")
    assert find(page, "#sum").text.startswith("kernels ")
    assert find(page, "#sum").text.endswith("= 100 %")
    assert find(page, "#fates").text.startswith(f"{len(reported.sources)} operators: ")
    assert find(page, "#fates").text.endswith(", 0 lost")
    find(page, "#policy summary").click()
    assert find(page, "#policy-text").text == reported.policy
    assert [note.text for note in page.find_elements("css selector", "#policy-notes li")] == [
        escape(ATTACKS[0])
    ]


def test_it_fits_the_window(page: Any) -> None:
    for view in ("#tab-time", "#tab-graph", "#tab-lineage", "#tab-advice"):
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


def test_the_heading_is_whole_in_a_notebook(page: Any) -> None:
    """Beside its cells there are some 950 pixels."""
    size = {"width": 950, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    name, per_run = find(page, "#model"), find(page, "#per-run")
    try:
        assert page.execute_script("return arguments[0].clientWidth", name) > 300
        assert name.rect["x"] + name.rect["width"] <= per_run.rect["x"]
    finally:
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "width": 1280})


# ---- the table ----


def test_the_table_is_sorted_by_time_and_then_as_asked(page: Any, reported: Profile) -> None:
    by_time = sorted(reported.sources, key=lambda row: (-row.time_ns, row.id))
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


def test_what_next_has_findings_a_roofline_and_memory(page: Any, reported: Profile) -> None:
    best = find(page, "#best")
    first = reported.findings[0]
    assert best.text.endswith(escape(first.title))
    best.click()
    assert find(page, "#tab-advice").get_attribute("aria-selected") == "true"
    items = page.find_elements("css selector", "#findings li")
    assert [escape(each.title) for each in reported.findings] == [
        item.find_element("css selector", "b").text for item in items
    ]
    assert "GFLOP/s" in find(page, "#roofline-facts").text
    assert "alive at kernel" in find(page, "#memory-facts").text
    find(page, "#roofline").send_keys(Keys.ARROW_RIGHT, Keys.ENTER)
    heaviest = max(
        (row for row in reported.kernels if row.flops and row.bytes), key=lambda row: row.time_ns
    )
    assert f"kernel {heaviest.id} " in find(page, "#pinned").text
    find(page, "#memory").send_keys(Keys.ARROW_RIGHT)
    assert f"kernel {reported.kernels[0].id} " in find(page, "#detail").text


def test_a_search_filters_everything(page: Any, reported: Profile) -> None:
    relus = [row for row in reported.sources if row.op == "Relu"]
    type_into_search(page, "type:relu block2")
    assert texts(page, "#operator-rows", 4) == ["Relu"]
    assert find(page, "#found").text.startswith(f"1 of {len(reported.sources)} operators")
    type_into_search(page, 'type:"relu"')
    assert set(texts(page, "#operator-rows", 4)) == {"Relu"}
    assert find(page, "#found").text.startswith(f"{len(relus)} of ")
    open_lineage(page)
    assert find(page, "#count-operators").text == f"{len(relus)} of {len(reported.sources)}"
    kernels = {kernel for row in relus for kernel in row.kernels}
    assert find(page, "#count-kernels").text.split(" of ")[0] == str(len(kernels))
    type_into_search(page, "no such thing")
    assert rows(page, "#pane-operators") == []
    assert find(page, "#pane-operators .empty").is_displayed()
    find(page, "#search").send_keys(Keys.ESCAPE)
    assert find(page, "#count-operators").text == str(len(reported.sources))


def test_a_pass_finds_the_operators_it_worked_on(page: Any) -> None:
    type_into_search(page, "fold_batch_norm")
    found = set(texts(page, "#operator-rows", 4))
    assert "BatchNormalization" in found
    assert "Softmax" not in found


# ---- the three panes ----


def test_pointing_at_an_operator_lights_up_its_relatives(page: Any, reported: Profile) -> None:
    told = content(reported)
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


def test_pointing_at_a_kernel_and_at_a_node_lights_up_theirs(page: Any, reported: Profile) -> None:
    told = content(reported)
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
    body.send_keys("3")
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

"""A real browser for the report, and a profile whose names try to break out of it."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.attribution.harness import profile_of
from whence.attribution.profile import Profile
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.types import DType

REQUIRED = "WHENCE_REQUIRE_BROWSER"
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
)
ATTACKS = (
    "</script><script>window.hacked=1</script>",
    '<img src=x onerror="window.hacked=2">',
    "'\"><svg onload=window.hacked=3>",
    "<!--<script>",
    "${window.hacked=4}\u2028\u2029;window.hacked=5//",
    "@@script@@\x00\x1b[31m\udc80\u202egnp.exe",
)


@contextmanager
def chromium(folder: Path) -> Iterator[Any]:
    """Chromium with an empty profile of its own, 1280 by 800. Without one the test is skipped, or
    fails where a browser is required.
    """
    browser, driver = (
        shutil.which("chromium") or shutil.which("google-chrome"),
        shutil.which("chromedriver"),
    )
    if browser is None or driver is None:
        missing = "chromium and chromedriver are needed to test the report in a browser"
        if os.environ.get(REQUIRED):
            pytest.fail(f"{missing}; {REQUIRED} is set")
        pytest.skip(missing)
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*_FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    page = webdriver.Chrome(options=options, service=Service(driver))
    try:
        size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        yield page
    finally:
        page.quit()


def requested(page: Any) -> list[str]:
    """Every address that was asked for since the last call, except by the page that the browser
    itself opens with.
    """
    messages = (json.loads(entry["message"])["message"] for entry in page.get_log("performance"))
    asked = (
        message["params"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    )
    return [
        each["request"]["url"] for each in asked if not each["documentURL"].startswith("chrome://")
    ]


def residual_net(names: tuple[str, ...] = ATTACKS) -> Graph:
    """A block per name: convolution, normalisation, activation, a sum; and a softmax at the end.
    The name is in names and modules.
    """
    rng = np.random.default_rng(0)
    build = GraphBuilder("net")
    x = build.input("x", DType.F32, [1, 16, 8, 8])
    for number, name in enumerate(names):
        block = f"/net/block{number}"
        weight = build.const(rng.standard_normal((16, 16, 3, 3)).astype(np.float32))
        y = build.op("Conv", x, weight, name=f"{block}/conv/Conv", pads=(1, 1, 1, 1))
        stats = [build.const(rng.uniform(0.5, 1, 16).astype(np.float32)) for _ in range(4)]
        y = build.op("BatchNormalization", y, *stats, name=f"{block}/bn/{name}")
        y = build.op("Relu", y, name=f"{block}/{name}/Relu")
        x = build.op("Add", x, y, name=f"{block}/Add")
    x = build.op("Identity", x, name="/net/same")
    build.output("y", build.op("Softmax", x, name="/net/head/Softmax"))
    return build.finish()


def attacked_profile() -> Profile:
    """With times that differ from kernel to kernel, and hostile text in every place where a file
    can put some.
    """
    graph = residual_net()
    steps = len(profile_of(graph).kernels)
    found = profile_of(
        graph,
        [1_000_000 * (position % 5 + 1) for position in range(steps)],
        runs=4,
        residual_ns={"dispatch": 70_000, "idle": 3},
    )
    sources = tuple(
        dataclasses.replace(
            row, line=f"/home/me/work/net/{ATTACKS[row.id % len(ATTACKS)]}.py:{row.id}"
        )
        if row.id % 2
        else row
        for row in found.sources
    )
    return dataclasses.replace(found, model=f"/home/me/{ATTACKS[1]}.onnx", sources=sources)

"""Every family of kernels and ten whole models, made for each lesser machine that this one can
stand for: x86-64 with SSE, with AVX2, with AVX-512; aarch64 with and without dot products.
"""

from __future__ import annotations

import functools

import pytest

from tests.cpu_backend import cpu_backend
from tests.kernels import harness
from tests.kernels.families import every_family
from tests.kernels.harness import Cases
from tests.kernels.whole_models import WHOLE_MODELS
from whence.api import compile_model
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.runtime.engine import Engine

_HOST = Target.host()
# Matrix units round earlier, which tests of their own allow for.
_LEVELS = [
    name
    for name in Target.names()
    if name not in ("host", "x86_64-amx")
    and (Target.named(name).arch, Target.named(name).system) == (_HOST.arch, _HOST.system)
]


@functools.cache
def engine_for(level: str) -> Engine:
    return Engine(threads=2, toolchain=Toolchain(Target.named(level)))


@pytest.fixture(params=_LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = str(request.param)
    if not _HOST.runs(Target.named(name)):
        pytest.skip(f"this machine does not run code for {name}")
    monkeypatch.setattr(harness, "engine", lambda: engine_for(name))
    return name


def test_kernels(level: str) -> None:
    assert cpu_backend(harness.engine()).toolchain.target == Target.named(level)
    every_family().check(peer=False)


def test_whole_models(level: str) -> None:
    """Side by side in one graph, which is compiled once."""
    cases = Cases(8)
    for add in WHOLE_MODELS.values():
        add(cases)
    graph = cases.build.finish()
    expected = graph.run(cases.feeds)
    results = compile_model(graph.copy(), engine=engine_for(level))(**cases.feeds)
    assert isinstance(results, tuple)
    cases.compare("the reference", expected, list(results))

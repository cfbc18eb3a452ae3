"""The ONNX project's own backend tests, all that are for a CPU, against `whence.onnx_backend`.

Those that fail are named, each with its reason, in `onnx_backend_failures.txt`, and the list is
exact: a test fails that is on it and passes, or is not on it and fails.

A C compiler takes longer to start than to compile one of these models. So the tests run in groups
of neighbours: each of a group first runs until it asks for a library, which only notes the kernels
it needs; then the kernels of the group are compiled together, by the same compiler with the same
flags; then its tests run. A process that shares the tests with others prepares only the groups it
runs.
"""

from __future__ import annotations

import importlib.util
import unittest
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, parser
from onnx.backend.test import BackendTest

from whence import onnx_backend
from whence.codegen.emit import KernelUnit, pack
from whence.codegen.functions import KernelFunction
from whence.codegen.target import usable_cores
from whence.codegen.toolchain import SourceUnit, Toolchain
from whence.errors import CompileError, UnsupportedError
from whence.onnx_backend import WhenceBackend
from whence.ops.tensor import random as random_ops
from whence.runtime.engine import Engine

pytestmark = pytest.mark.slow

_LINES_PER_LIBRARY = 1200
_TESTS_PER_GROUP = 200
FAILURES = Path(__file__).with_name("onnx_backend_failures.txt")


def expected_failures() -> dict[str, str]:
    """The reason why each test fails that does. A line is `name: reason`; a line that starts with #
    is for the reader.
    """
    lines = [
        line
        for line in FAILURES.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    found = dict(line.split(": ", 1) for line in lines)
    assert len(found) == len(lines), "a test is listed twice"
    has_pillow = importlib.util.find_spec("PIL") is not None
    return {
        name: reason
        for name, reason in found.items()
        if not (has_pillow and reason == "needs Pillow")
    }


class Collected(BaseException):
    """Ends a test that got as far as asking for a library. Not an `Exception`, so that nothing on
    the way takes it for a failure of its own.
    """


class SharedToolchain(Toolchain):
    """Compiles the kernels of many models into a few libraries before they are asked for."""

    def __init__(self) -> None:
        super().__init__(jobs=1)
        self._collecting = False
        self._wanted: list[tuple[KernelFunction, ...]] = []
        self._shared: list[tuple[frozenset[str], Path]] = []

    def build_library(self, units: Sequence[SourceUnit], **options: Any) -> Path:
        functions = tuple(
            function
            for unit in units
            if isinstance(unit, KernelUnit)
            for function in unit.functions
        )
        if functions and self._collecting:
            self._wanted.append(functions)
            raise Collected
        symbols = {function.symbol for function in functions}
        for held, path in self._shared:
            # A symbol ends in the digest of its function, so having the symbol is having the code.
            if functions and symbols <= held:
                return path
        return super().build_library(units, **options)

    def collect(self, tests: Sequence[Callable[[], object]]) -> None:
        """Run the tests up to where they need a library, then make what they need."""
        self._collecting = True
        for test in tests:
            try:
                test()
            except (Exception, Collected, unittest.SkipTest):
                continue
        self._collecting = False
        with ThreadPoolExecutor(usable_cores()) as pool:
            made = list(pool.map(self._make, self._batches()))
        self._wanted = []
        self._shared += [each for each in made if each is not None]

    def _batches(self) -> Iterator[dict[str, KernelFunction]]:
        batch: dict[str, KernelFunction] = {}
        for functions in self._wanted:
            batch |= {function.symbol: function for function in functions}
            if sum(function.text.count("\n") for function in batch.values()) > _LINES_PER_LIBRARY:
                yield batch
                batch = {}
        if batch:
            yield batch

    def _make(self, batch: dict[str, KernelFunction]) -> tuple[frozenset[str], Path] | None:
        try:
            return frozenset(batch), super().build_library(pack(batch.values()))
        except CompileError:
            # One of them is bad. Each test then compiles its own, and the right one fails.
            return None


class SharedBackend(WhenceBackend):
    """The backend under test; only that all models share an engine with a toolchain as above."""

    shared: Engine

    @classmethod
    def engine(cls) -> Engine:
        return cls.shared


def _cases() -> dict[str, type[unittest.TestCase]]:
    failing = expected_failures()
    cases: dict[str, type[unittest.TestCase]] = BackendTest(SharedBackend, __name__).test_cases
    for case in cases.values():
        for name in [name for name in vars(case) if name.startswith("test_")]:
            if name.endswith("_cuda"):
                delattr(case, name)
            elif name in failing:
                setattr(
                    case,
                    name,
                    pytest.mark.xfail(reason=failing[name], strict=True)(getattr(case, name)),
                )
    return cases


CASES = _cases()
globals().update(CASES)


class Groups:
    """The tests of the suite in groups of neighbours, whose kernels are compiled together."""

    def __init__(self, items: Sequence[pytest.Item], toolchain: SharedToolchain) -> None:
        self.toolchain = toolchain
        self.items = [
            item
            for item in items
            if isinstance(item, pytest.Function) and item.cls in CASES.values()
        ]
        self.places = {item.nodeid: place for place, item in enumerate(self.items)}
        self.prepared: set[int] = set()

    def prepare(self, test: str) -> None:
        """The group of a test, unless that was done."""
        place = self.places.get(test)
        if place is None or place // _TESTS_PER_GROUP in self.prepared:
            return
        first = place - place % _TESTS_PER_GROUP
        self.prepared.add(place // _TESTS_PER_GROUP)
        group = self.items[first : first + _TESTS_PER_GROUP]
        self.toolchain.collect([getattr(item.cls(item.name), item.name) for item in group])


@pytest.fixture(scope="module")
def groups(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Groups]:
    with pytest.MonkeyPatch.context() as patch:
        # Some tests keep data in the user's home folder unless told otherwise.
        patch.setenv("ONNX_MODELS", str(tmp_path_factory.mktemp("onnx-models")))
        # Without a seed, whether such a test passes would be left to chance.
        draw = random_ops._generator
        patch.setattr(
            random_ops,
            "_generator",
            lambda call: draw(call) if "seed" in call.attrs else np.random.RandomState(1),
        )
        toolchain = SharedToolchain()
        SharedBackend.shared = Engine(toolchain=toolchain)
        yield Groups(request.session.items, toolchain)
        del SharedBackend.shared


@pytest.fixture(autouse=True)
def _compile_together(groups: Groups, request: pytest.FixtureRequest) -> None:
    groups.prepare(request.node.nodeid)


def test_every_listed_failure_is_a_test_of_the_suite() -> None:
    known = {name for case in CASES.values() for name in vars(case)}
    assert not sorted(set(expected_failures()) - known)


def test_the_suite_is_complete() -> None:
    count = sum(name.startswith("test_") for case in CASES.values() for name in vars(case))
    assert count >= 2033


# ---- the rest of the interface ----


def test_devices() -> None:
    assert onnx_backend.supports_device("CPU")
    assert onnx_backend.supports_device("CPU:0")
    assert not onnx_backend.supports_device("CUDA")


def test_another_device_is_refused() -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> m (float[2] a) => (float[2] b) { b = Neg(a) }'
    )
    with pytest.raises(UnsupportedError, match="not on 'CUDA'"):
        onnx_backend.prepare(model, "CUDA")


def test_a_model_is_prepared_and_run() -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> m (float[2] a, float[n] b) => (float[2] c,'
        " float[2] d) { c = Sub(a, b) d = Neg(a) }"
    )
    a, b = np.array([1, 2], np.float32), np.array([3, 5], np.float32)
    assert onnx_backend.is_compatible(model)
    for result in (
        onnx_backend.prepare(model).run([a, b]),
        onnx_backend.prepare(model, "CPU").run({"b": b, "a": a}),
        onnx_backend.run(model, (a, b)),
    ):
        assert isinstance(result, tuple)
        assert [each.tolist() for each in result] == [[-2, -3], [-1, -2]]


def test_one_operator_is_run() -> None:
    x = np.array([[3, 1, 2]], np.float32)
    values, indices = onnx_backend.run_node(
        helper.make_node("TopK", ["x", "k"], ["v", "i"]), [x, np.array([2])]
    )
    assert (values.tolist(), indices.tolist()) == ([[3, 2]], [[0, 2]])
    named = onnx_backend.run_node(
        helper.make_node("Clip", ["x", "", "high"], ["y"]), [x, np.float32(2)]
    )
    assert named.y.tolist() == [[2, 1, 2]]
    assert onnx_backend.run_node(helper.make_node("Neg", ["x"], ["y"]), x).y.tolist() == [
        [-3, -1, -2]
    ]
    binary = onnx_backend.run_node(
        helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=1.5), [x]
    )
    assert binary.y.tolist() == [[1, 0, 1]]
    upper = onnx_backend.run_node(
        helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER"),
        [np.array(["a", "b"], object)],
    )
    assert upper.y.tolist() == ["A", "B"]

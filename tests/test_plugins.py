"""Backends, frontends and passes of other distributions, installed for real: packages on the path,
with the metadata that pip writes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import whence
from tests.cli.conftest import whence as whence_command
from whence.foreign.run import load_source
from whence.frontends.registry import find_reader
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.passes.pipeline import PREPARE
from whence.passes.plugins import portable_passes, prepare_passes
from whence.plugins import find_plugins, plugins_digest
from whence.runtime.registry import backend_names
from whence.types import DType

EXAMPLE = Path(__file__).parent.parent / "examples" / "python_backend"
X = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)

FRONTEND = '''
"""A format of one line: `CHAIN 2x3 Neg Abs` is a chain of operators on an input x."""
from whence.frontends.registry import Frontend
from whence.graph.builder import GraphBuilder
from whence.types import DType

def read(path, *, shapes=None):
    _, shape, *ops = path.read_text().split()
    build = GraphBuilder(path.stem)
    dims = (shapes or {}).get("x") or [int(dim) for dim in shape.split("x")]
    value = build.input("x", DType.F32, list(dims))
    for op in ops:
        value = build.op(op, value)
    build.output("y", value)
    return build.finish()

FRONTEND = Frontend("chain", (".chain",), read, magic=b"CHAIN ")
'''
PASS = """
from dataclasses import dataclass
from whence.passes.base import RulePass
from whence.passes.plugins import PlacedPass

@dataclass(frozen=True, slots=True)
class AbsOfNeg(RulePass):
    name = "abs_of_neg"
    summary = "|-x| = |x|"
    anchors = frozenset({"Abs"})

    def visit(self, node, rewriter):
        before = rewriter.graph[node.inputs[0].node]
        if before.op == "Neg":
            edit = rewriter.edit(before, node, rule="|-x| = |x|")
            edit.replace(node, edit.node("Abs", before.inputs, {}, node.outputs))
            edit.apply()

PLACED = PlacedPass(AbsOfNeg(), after="remove_no_ops", portable=True)
NOWHERE = PlacedPass(AbsOfNeg(), before="no_such_pass")
"""


def install(site: Path, name: str, entry_points: str, version: str = "1.0", **modules: str) -> None:
    """What pip does with a wheel: its modules, and its metadata beside them."""
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text, encoding="utf-8")
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
    )
    (folder / "entry_points.txt").write_text(entry_points, encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages that this process imports from, for as long as a test lasts."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith((str(tmp_path), str(EXAMPLE))):
            del sys.modules[name]


@pytest.fixture
def example(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of a backend, as its own pyproject.toml says."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    install(site, project["name"].replace("-", "_"), "\n".join(lines), project["version"])
    monkeypatch.syspath_prepend(EXAMPLE)


def network() -> Graph:
    build = GraphBuilder("net")
    x = build.input("x", DType.F32, [2, 3, 6, 6])
    weights = np.random.default_rng(1).standard_normal((16, 3, 3, 3)).astype(np.float32)
    hidden = build.op("Relu", build.op("Conv", x, build.const(weights)))
    pooled = build.op("Flatten", build.op("GlobalAveragePool", hidden))
    build.output("scores", build.op("Softmax", build.op("Exp", pooled)))
    build.output("hidden", build.op("Concat", hidden, hidden, axis=1))
    return build.finish()


# ---- backends ----


@pytest.mark.usefixtures("example")
def test_a_backend_runs_models_and_profiles_them() -> None:
    graph = network()
    model = whence.compile(graph, engine=whence.Engine("python"))
    for made, expected in zip(model(X), graph.run([X]), strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
    (program,) = model.programs
    assert sum(bool(step.symbol) for step in program.steps) >= 2
    assert all(
        "has no form in Python" in step.why_reference for step in program.steps if not step.symbol
    )
    profile = whence.profile(model, {"x": X}, runs=2, warmup=0)
    assert profile.engine == "python"
    assert sum(row.time_ns for row in profile.sources) > 0


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize("op", ["CumSum", "ReduceSum", "MaxPool"])
def test_sums_side_by_side_are_read_without_knowing_a_language(op: str) -> None:
    """Accumulators with lanes: a kernel says which lane it reads, no text does."""
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3, 6, 6])
    operands = [] if op == "MaxPool" else [build.const(np.array([1]))]
    attrs = {"kernel_shape": (2, 2)} if op == "MaxPool" else {}
    build.output("y", build.op(op, x, *operands, attrs=attrs))
    graph = build.finish()
    model = whence.compile(graph, engine=whence.Engine("python"))
    np.testing.assert_allclose(model(X), graph.run([X])[0], rtol=1e-5, atol=1e-6)
    (program,) = model.programs
    assert [step.why_reference for step in program.steps] == [""]


@pytest.mark.usefixtures("example")
def test_a_backend_is_asked_before_the_passes_run() -> None:
    """No blocks of channels, no attention, as it prefers; the processor's blocks hold 16."""
    engine = whence.Engine("python")
    for prepared, expected in (
        (whence.prepare(network(), engine=engine), set()),
        (whence.prepare(network()), {16}),
        (whence.prepare(network(), engine=whence.Engine(threads=1)), {16}),
    ):
        assert {node.attrs.get("block") for node in prepared} - {None} == expected
    (program,) = whence.compile(network(), engine=engine).programs
    assert not any(node.op == "ToBlocked" for node in program.graph)


@pytest.mark.usefixtures("example")
def test_a_backend_of_a_file_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = whence_command.__wrapped__(capsys, monkeypatch)  # type: ignore[attr-defined]
    path = tmp_path / "net.onnx"
    whence.save(network(), path)
    assert "python" in backend_names()
    assert command("run", path, "--engine", "python").code == 0
    assert "python:0" in command("devices").out
    assert (
        "--threads is for the cpu" in command("run", path, "--engine", "python", "--threads", 2).err
    )
    shown = command("doctor").out
    assert "whence.backends: python" in shown
    assert "cpu, opencl, python" in shown


def test_an_engine_that_is_not_there() -> None:
    with pytest.raises(whence.UnsupportedError, match="no engine 'npu'; there are cpu and opencl"):
        whence.Engine("npu")


def test_a_backend_that_is_none(site: Path) -> None:
    install(
        site, "odd", "[whence.backends]\nodd = odd:NOTHING\nmissing = gone:X", odd="NOTHING = 3"
    )
    with pytest.raises(whence.UnsupportedError, match=r"'odd' .* of odd 1.0 is no backend"):
        whence.Engine("odd")
    with pytest.raises(whence.UnsupportedError, match=r"'missing' .*No module named 'gone'"):
        whence.Engine("missing")


@pytest.mark.usefixtures("example")
def test_options_that_a_backend_does_not_take() -> None:
    with pytest.raises(whence.InputError, match="the python engine takes no threads"):
        whence.Engine("python", threads=2)


_UNFINISHED = """
from whence.building.backend import Backend

class Unfinished(Backend):
    def generator(self): ...
    def instance(self, program): ...
    def run(self, instance, inputs, **others): ...
"""
_SHORT = """
from python_backend.backend import PythonBackend

class Short(PythonBackend):
    def run(self, instance, inputs, profiler=None): ...
"""
_STATIC = """
from python_backend.backend import PythonBackend
from whence.runtime.profiler import Profiler

class Static(PythonBackend):
    @staticmethod
    def adopt(port, value):
        return value

    @classmethod
    def profiler(cls):
        return Profiler()
"""
_FAILING = """
from python_backend.backend import PythonBackend, PythonGenerator

class Generator(PythonGenerator):
    def render(self, kernels, origins):
        return FAULT(super().render(kernels, origins))

class Failing(PythonBackend):
    def generator(self):
        return Generator()
"""


def test_a_backend_that_lacks_something(site: Path) -> None:
    install(site, "half", "[whence.backends]\nhalf = half:Unfinished\n", half=_UNFINISHED)
    with pytest.raises(
        whence.UnsupportedError,
        match=r"plugin 'half' .* lacks what every backend has: devices, kind",
    ):
        whence.Engine("half")


@pytest.mark.usefixtures("example")
def test_a_backend_with_a_method_that_takes_something_else(site: Path) -> None:
    install(site, "short", "[whence.backends]\nshort = short:Short\n", short=_SHORT)
    with pytest.raises(
        whence.UnsupportedError,
        match=r"plugin 'short' .* has a method run\(self, instance, inputs, profiler=None\) that"
        r" cannot be called like run\(.*, out: .*\) .* unexpected keyword argument 'queue'",
    ):
        whence.Engine("short")


@pytest.mark.usefixtures("example")
def test_a_backend_with_methods_of_the_class(site: Path) -> None:
    install(site, "static", "[whence.backends]\nstatic = static:Static\n", static=_STATIC)
    assert whence.Engine("static").kind == "python"


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("lambda found: 1 / 0", r"^whence: plugin 'failing' .* failed \(ZeroDivisionError: div"),
        ("lambda found: found._replace(code=[])", r"Generator\.render was given 1 kernels, .* 0"),
        (
            "lambda found: found._replace(code=[None], refused={})",
            r"Generator\.render: kernel 0 has neither code nor a reason in `refused`",
        ),
        (
            "lambda found: found._replace(refused={0: 'too odd'})",
            r"Generator\.render: kernel 0 has both code and a reason in `refused`",
        ),
    ],
)
def test_a_backend_that_fails_is_named(
    fault: str,
    told: str,
    site: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever reads it can tell whose fault it is."""
    command = whence_command.__wrapped__(capsys, monkeypatch)  # type: ignore[attr-defined]
    path = tmp_path / "net.onnx"
    whence.save(abs_neg(), path)
    text = _FAILING.replace("FAULT", f"({fault})")
    install(site, "failing", "[whence.backends]\nfailing = failing:Failing\n", failing=text)
    done = command("run", path, "--engine", "failing")
    assert done.code == 1
    assert re.search(told, done.err)
    assert len(done.err.strip().splitlines()) == 1
    assert "report it" not in done.err


def test_an_engine_is_not_its_name() -> None:
    with pytest.raises(whence.InputError, match=r"takes a whence.Engine\('npu'\), not str 'npu'"):
        whence.compile(abs_neg(), engine="npu")  # type: ignore[arg-type]


# ---- frontends ----


@pytest.fixture
def chain(site: Path) -> None:
    install(site, "chain_format", "[whence.frontends]\nchain = chain:FRONTEND\n", chain=FRONTEND)


@pytest.mark.usefixtures("chain")
@pytest.mark.parametrize("name", ["a.chain", "A.CHAIN", "by_its_content.txt"])
def test_a_frontend_reads_its_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("CHAIN 2x3 Neg Exp", encoding="utf-8")
    x = X[:, :, 0, 0]
    np.testing.assert_allclose(whence.compile(path)(x), np.exp(-x), rtol=1e-6)
    wider = whence.load(path, shapes={"x": [4, 5]})
    assert str(wider.inputs[0].type) == "f32[4,5]"


@pytest.mark.usefixtures("chain")
def test_files_that_no_frontend_knows_are_read_as_onnx(tmp_path: Path) -> None:
    path = tmp_path / "model.other"
    path.write_bytes(b"neither one nor the other")
    with pytest.raises(whence.ModelError):
        whence.load(path)
    assert find_reader(tmp_path / "m.onnx").__name__ == "read_onnx"  # type: ignore[attr-defined]


@pytest.mark.usefixtures("chain")
def test_a_frontend_that_fails_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.chain"
    path.write_text("CHAIN", encoding="utf-8")
    found = r"a\.chain' cannot be read: plugin 'chain' .* fails with ValueError: not enough values"
    with pytest.raises(whence.ModelError, match=found):
        whence.load(path)
    path.write_text("CHAIN 2x3 Add", encoding="utf-8")
    with pytest.raises(whence.ModelError, match=r"^operator 'Add_1' \(Add\) has 1 input"):
        whence.load(path)


@pytest.mark.usefixtures("chain")
def test_files_of_a_frontend_can_be_converted_but_not_run_by_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = whence_command.__wrapped__(capsys, monkeypatch)  # type: ignore[attr-defined]
    path = tmp_path / "a.chain"
    path.write_text("CHAIN 2x3 Neg Abs Exp", encoding="utf-8")
    done = command("convert", path, "-o", tmp_path / "a.onnx")
    assert done.code == 0, done.err
    assert "3 operators → 3" in done.out
    with pytest.raises(whence.UnsupportedError, match=r"plugin 'chain'.*`whence convert a\.chain"):
        load_source(path)
    assert len(load_source(tmp_path / "a.onnx").ledger.sources) == 3


# ---- passes ----


@pytest.fixture
def abs_of_neg(site: Path) -> None:
    install(site, "my_passes", "[whence.passes]\nabs_of_neg = my_passes:PLACED\n", my_passes=PASS)


def abs_neg() -> Graph:
    build = GraphBuilder("net")
    x = build.input("x", DType.F32, [2, 3, 6, 6])
    build.output("y", build.op("Abs", build.op("Neg", x)))
    return build.finish()


@pytest.mark.usefixtures("abs_of_neg")
def test_a_pass_has_its_place() -> None:
    names = [each.name for each in prepare_passes()]
    assert names[names.index("abs_of_neg") - 1] == "remove_no_ops"
    assert [name for name in names if name != "abs_of_neg"] == [each.name for each in PREPARE]
    assert "abs_of_neg" in [each.name for each in portable_passes()]
    graph = abs_neg()
    reports = {each.name: each for each in whence.prepare_with_report(graph)}
    assert reports["abs_of_neg"].rules == {"|-x| = |x|": 1}
    assert "Neg" not in graph.op_counts


def test_the_cache_of_models_knows_the_passes(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHENCE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "net.onnx"
    whence.save(abs_neg(), path)

    def operators() -> set[str]:
        (program,) = whence.compile(path, threads=1).programs
        return {node.op for node in program.graph} - {"Input", "Output"}

    assert not plugins_digest()
    assert operators() == {"Neg", "Abs"}
    install(site, "my_passes", "[whence.passes]\nabs_of_neg = my_passes:PLACED\n", my_passes=PASS)
    installed = plugins_digest()
    assert installed
    assert operators() == {"Abs"}
    (site / "my_passes.py").write_text(PASS + "\n", encoding="utf-8")
    assert plugins_digest() not in ("", installed)


def test_a_pass_that_stands_nowhere_is_left_out(site: Path) -> None:
    install(
        site,
        "my_passes",
        "[whence.passes]\nnowhere = my_passes:NOWHERE\nno_pass = my_passes:PASS_IS_NONE",
        my_passes=PASS + "PASS_IS_NONE = 4\n",
    )
    with pytest.warns(RuntimeWarning) as caught:
        assert [each.name for each in prepare_passes()] == [each.name for each in PREPARE]
    said = sorted(str(each.message) for each in caught)
    assert len(said) == 2
    assert "'no_pass'" in said[0]
    assert "a int, not a whence.passes.plugins.PlacedPass" in said[0]
    assert "'nowhere'" in said[1]
    assert "no pass 'no_such_pass' to stand next to" in said[1]


# ---- broken ones, and those that are not used ----


def test_a_broken_plugin_is_named_and_left_out(site: Path, tmp_path: Path) -> None:
    entries = "".join(
        f"[whence.{group}]\nbroken = broken:X\n" for group in ("backends", "frontends", "passes")
    )
    install(
        site, "broken_plugin", entries, "0.3", broken="raise ValueError('not today\\nnor ever')"
    )
    with pytest.warns(RuntimeWarning) as caught:
        graph = whence.prepare(network())
    assert graph.op_counts
    (said,) = (str(each.message) for each in caught)
    assert said == (
        "plugin 'broken' (whence.passes, broken:X) of broken_plugin 0.3 cannot be loaded: ValueError:"
        " not today; it is left out"
    )
    path = tmp_path / "a.unknown"
    path.write_bytes(b"")
    with pytest.warns(RuntimeWarning, match=r"whence.frontends.*left out"):
        find_reader(path)
    with pytest.raises(whence.UnsupportedError, match=r"broken_plugin 0\.3 cannot be loaded"):
        whence.Engine("broken")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # What whence has itself is not touched by it.
        whence.Engine(threads=1)
        find_reader(tmp_path / "a.onnx")


_START = """
import json, sys, warnings
warnings.simplefilter("error")
import whence
whence.load(sys.argv[1])
whence.Engine(threads=1)
print(json.dumps([name for name in ("chain", "broken") if name in sys.modules]))
"""


@pytest.mark.usefixtures("chain")
def test_nothing_is_loaded_before_it_is_used(site: Path, tmp_path: Path) -> None:
    install(site, "broken_plugin", "[whence.passes]\nbroken = broken:X\n", broken="1 / 0")
    path = tmp_path / "net.onnx"
    whence.save(network(), path)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{_START}", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_of_two_distributions_of_one_name_the_first_counts(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "twice", "[whence.passes]\na = twice:OLD\n", "1.0")
    first = tmp_path / "first"
    first.mkdir()
    monkeypatch.syspath_prepend(first)
    install(
        first,
        "twice",
        "[other]\nz = x:y\n[whence.passes]\na = twice:NEW [extra]\n# b = c:d\n",
        "2.0",
    )
    assert [(each.value, each.distribution) for each in find_plugins("whence.passes")] == [
        ("twice:NEW [extra]", "twice 2.0")
    ]

"""Models that were compiled before: the same in everything, however the cache was treated
meanwhile.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.cpu_backend import cpu_backend
from tests.runtime.models import assert_same, mixed, outputs
from whence import api
from whence.attribution.assemble import Measurement, assemble
from whence.attribution.measure import profile_executable
from whence.building.export import export
from whence.building.model_cache import CachedModel
from whence.building.packed_weights import PackedWeights
from whence.building.program import Program
from whence.codegen.cache import Cache
from whence.codegen.digest import _OpenFile
from whence.codegen.toolchain import Toolchain
from whence.errors import CacheError, ModelError
from whence.graph import Graph, print_graph
from whence.graph.builder import GraphBuilder
from whence.graph.outcomes import history_of
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.types import Dim, DType

Start = Callable[[Path], Executable]
X = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "kernels"


@pytest.fixture
def engine(folder: Path) -> Engine:
    """A new one each time, as in a new process, on one cache."""
    return Engine(threads=2, toolchain=Toolchain(cache=Cache(folder)))


@pytest.fixture
def warm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start a model as a new process would, with nothing to read or prepare it with."""

    def start(path: Path, **options: Any) -> Executable:
        def refuse(*_: Any, **__: Any) -> Any:
            raise AssertionError("the model was compiled again")

        with monkeypatch.context() as patch:
            patch.setattr("whence.api.compile_file.load", refuse)
            patch.setattr("whence.building.prepare.prepare_and_build", refuse)
            return api.compile_model(
                path,
                engine=Engine(threads=2, toolchain=Toolchain(cache=Cache(folder))),
                **options,
            )

    return start


def _net(name: str = "net", *, batch: Dim = 1, seed: int = 0) -> Graph:
    """A convolution, a normalisation that is folded, a product, and an output that is a
    constant.
    """
    rng = np.random.default_rng(seed)
    build = GraphBuilder(name)
    x = build.input("x", DType.F32, [batch, 3, 8, 8])
    weights = build.const(rng.standard_normal((16, 3, 3, 3)).astype(np.float32))
    y = build.op("Conv", x, weights, pads=(1, 1, 1, 1), kernel_shape=(3, 3), name="conv")
    y = build.op(
        "Relu",
        build.op(
            "Add", y, build.const(rng.standard_normal((1, 16, 1, 1)).astype(np.float32)), name="add"
        ),
        name="relu",
    )
    y = build.op("Flatten", y, axis=1, name="flat")
    build.output(
        "y",
        build.op(
            "MatMul",
            y,
            build.const(rng.standard_normal((1024, 10)).astype(np.float32)),
            name="product",
        ),
    )
    build.output("fixed", build.const(np.arange(3, dtype=np.int64)))
    return build.finish()


def _saved(graph: Graph, path: Path) -> Path:
    api.save(graph, path)
    return path


def _with_external_data(graph: Graph, folder: Path) -> tuple[Path, Path]:
    """The model's file, and that of its weights."""
    proto = onnx.load(_saved(graph, folder / "whole.onnx"))
    (folder / "sub").mkdir()
    path = folder / "sub/e.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="data.bin", size_threshold=0)
    return path, path.with_name("data.bin")


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and len(path.name) == 129)


# ---- the same ----


def test_a_warm_start_gives_what_a_fresh_one_gives(
    engine: Engine, warm: Start, tmp_path: Path
) -> None:
    path = _saved(_net("same"), tmp_path / "m.onnx")
    fresh, again = api.compile_model(path, engine=engine), warm(path)
    for _ in range(2):
        assert_same(outputs(again(X)), outputs(fresh(X)))
    assert [port.name for port in again.inputs] == ["x"]
    assert print_graph(again.graph) == print_graph(fresh.graph)
    (one,), (two,) = fresh.programs, again.programs
    assert one.steps == two.steps
    assert one.copies == two.copies
    assert one.layout == two.layout
    assert one.units == two.units
    assert one.memory == two.memory
    assert print_graph(one.graph) == print_graph(two.graph)
    assert all(member is two.graph[member.id] for entry in two.fused for member in entry.members)
    assert one.fused.groups == two.fused.groups


def test_a_warm_model_is_profiled_as_a_fresh_one(
    engine: Engine, warm: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _saved(_net("profiled"), tmp_path / "m.onnx")
    measurements: list[Measurement] = []

    def with_the_same_times(
        graph: Graph, program: Program, own: Measurement, **options: Any
    ) -> Any:
        # How long a kernel took decides how it is split.
        measurements.append(own)
        return assemble(graph, program, measurements[0], **options)

    monkeypatch.setattr("whence.attribution.measure.assemble", with_the_same_times)
    found = [
        profile_executable(model, [X], runs=2, warmup=1, model="m")
        for model in (api.compile_model(path, engine=engine), warm(path))
    ]
    rows = [
        [
            (row.id, row.name, row.op, row.fate, row.kernels, row.module, row.line, row.became)
            for row in each.sources
        ]
        for each in found
    ]
    assert rows[0] == rows[1]
    kernels = [
        [
            (row.id, row.name, row.native, [(part.id, part.weight) for part in row.origin])
            for row in each.kernels
        ]
        for each in found
    ]
    assert kernels[0] == kernels[1]
    for each in found:
        assert each.attributed_ns + sum(each.residual_ns.values()) == each.wall_ns


def test_a_warm_model_tells_the_same_story_and_exports_the_same_files(
    engine: Engine, warm: Start, tmp_path: Path
) -> None:
    path = _saved(_net("told"), tmp_path / "m.onnx")
    fresh, again = api.compile_model(path, engine=engine), warm(path)
    stories = []
    for model in (fresh, again):
        graph = model.programs[0].graph
        stories.append(
            [
                (history.outcome, history.steps, history.tombstones)
                for history in (history_of(graph, source) for source in graph.ledger.sources)
            ]
        )
    assert stories[0] == stories[1]
    graph = _net("exported")
    graph_path = _saved(graph, tmp_path / "e.onnx")
    folders = []
    for name, model in (
        ("one", api.compile_model(graph_path, engine=engine)),
        ("two", warm(graph_path)),
    ):
        export(model.programs[0], cpu_backend(engine).toolchain, tmp_path / name, "net")
        folders.append(
            {
                file.relative_to(tmp_path / name): file.read_bytes()
                for file in (tmp_path / name).rglob("*")
                if file.is_file()
            }
        )
    assert folders[0] == folders[1]


def test_reference_steps_run_from_a_warm_start(engine: Engine, warm: Start, tmp_path: Path) -> None:
    path = _saved(mixed(), tmp_path / "m.onnx")
    x = np.array([1.0, -1.0, 2.0, 0.0], np.float32)
    assert_same(outputs(api.compile_model(path, engine=engine)(x)), outputs(warm(path)(x)))


def test_a_model_with_open_shapes_keeps_every_program(
    engine: Engine, warm: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _saved(_net("open", batch="n"), tmp_path / "m.onnx")
    fresh = api.compile_model(path, engine=engine)
    batches = [np.repeat(X, count, 0) for count in (1, 3)]
    expected = [outputs(fresh(x)) for x in batches]
    again = warm(path)
    monkeypatch.setattr("whence.api.compile_file.load", None)
    for x, wanted in zip(batches, expected, strict=True):
        assert_same(outputs(again(x)), wanted)
    monkeypatch.undo()
    assert outputs(again(np.repeat(X, 2, 0)))[0].shape == (2, 10)


def test_what_a_start_depends_on(
    engine: Engine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _saved(_net("keys", batch="n"), tmp_path / "m.onnx")
    calls: list[Path] = []
    load = api.load

    def counted(path: Path, **options: Any) -> Graph:
        calls.append(path)
        return load(path, **options)

    monkeypatch.setattr("whence.api.compile_file.load", counted)

    def loads(**options: Any) -> int:
        calls.clear()
        api.compile_model(path, engine=engine, **options)
        return len(calls)

    assert loads() == 1
    assert loads() == 0
    assert loads(shapes={"x": (1, 3, 8, 8)}) == 1
    assert loads(shapes={"x": (1, 3, 8, 8)}) == 0
    assert loads(shapes={"x": (1, 3, 8, 8)}, fusion="nnvm") == 1
    assert loads(shapes={"x": (1, 3, 8, 8)}, fusion="nnvm") == 0
    monkeypatch.setenv("WHENCE_CHECK", "1")
    assert loads() == 1
    monkeypatch.setenv("WHENCE_CHECK", "0")
    assert loads() == 0
    monkeypatch.setattr(
        "whence.building.model_cache.source_digest", lambda: "another version of whence"
    )
    assert loads() == 1


def test_what_is_kept_is_private(engine: Engine, folder: Path, tmp_path: Path) -> None:
    api.compile_model(_saved(_net("private"), tmp_path / "m.onnx"), engine=engine)
    assert {stat.S_IMODE(path.stat().st_mode) for path in _entries(folder)} == {0o600}


# ---- files that change ----


def test_a_changed_file_is_compiled_anew(engine: Engine, tmp_path: Path) -> None:
    path = _saved(_net("one", seed=1), tmp_path / "m.onnx")
    before, first = path.stat(), outputs(api.compile_model(path, engine=engine)(X))
    _saved(_net("one", seed=2), path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    second = outputs(api.compile_model(path, engine=engine)(X))
    assert_same(second, _net("one", seed=2).run([X]))
    assert not np.allclose(first[0], second[0])


def test_changed_external_data_is_compiled_anew(
    engine: Engine, warm: Start, tmp_path: Path
) -> None:
    path, weights = _with_external_data(_net("outside", seed=3), tmp_path)
    first = outputs(api.compile_model(path, engine=engine)(X))
    assert_same(outputs(warm(path)(X)), first)
    before = weights.read_bytes()
    weights.write_bytes(bytes(16 * 27 * 4) + before[16 * 27 * 4 :])
    second = outputs(api.compile_model(path, engine=engine)(X))
    assert_same(second, api.load(path).run([X]))
    assert not np.allclose(first[0], second[0])
    assert_same(outputs(warm(path)(X)), second)
    weights.write_bytes(before)
    assert_same(outputs(warm(path)(X)), first)
    weights.unlink()
    with pytest.raises(ModelError, match="is missing"):
        api.compile_model(path, engine=engine)


def test_external_data_is_hashed_while_a_new_model_is_compiled(
    engine: Engine, warm: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, weights = _with_external_data(_net("beside", seed=6), tmp_path)
    compiled, read, link = threading.Event(), _OpenFile.digest, Toolchain.build_library
    hashed: list[bool] = []

    def read_later(content: _OpenFile) -> str:
        if content._path == weights:
            hashed.append(compiled.wait(60))
        return read(content)

    def linked(toolchain: Toolchain, *units: Any, **options: Any) -> Path:
        made = link(toolchain, *units, **options)
        compiled.set()
        return made

    with monkeypatch.context() as patch:
        patch.setattr(_OpenFile, "digest", read_later)
        patch.setattr(Toolchain, "build_library", linked)
        patch.setattr("whence.codegen.digest._SETTLED_NS", 0)
        fresh = api.compile_model(path, engine=engine)
    assert hashed == [True]
    assert_same(outputs(warm(path)(X)), outputs(fresh(X)))


def test_a_link_that_leads_to_other_weights(engine: Engine, warm: Start, tmp_path: Path) -> None:
    path, weights = _with_external_data(_net("linked", seed=8), tmp_path)
    first, second = weights.with_name("first"), weights.with_name("second")
    second.write_bytes(bytes(16 * 27 * 4) + weights.read_bytes()[16 * 27 * 4 :])
    weights.rename(first)
    weights.symlink_to(first.name)
    before = outputs(api.compile_model(path, engine=engine)(X))
    assert_same(outputs(warm(path)(X)), before)
    weights.unlink()
    weights.symlink_to(second.name)
    after = outputs(api.compile_model(path, engine=engine)(X))
    assert_same(after, api.load(path).run([X]))
    assert not np.allclose(before[0], after[0])


def test_weights_that_are_replaced_while_the_model_is_read(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was compiled is not found by the digest of what is there now."""
    path, weights = _with_external_data(_net("replaced", seed=9), tmp_path)
    before = weights.read_bytes()

    def load(*given: Any, **options: Any) -> Graph:
        graph = api.load(*given, **options)
        weights.with_name("other").write_bytes(bytes(16 * 27 * 4) + before[16 * 27 * 4 :])
        weights.with_name("other").replace(weights)
        return graph

    with monkeypatch.context() as patch:
        patch.setattr("whence.api.compile_file.load", load)
        read = outputs(api.compile_model(path, engine=engine)(X))
    found = outputs(api.compile_model(path, engine=engine)(X))
    assert_same(found, api.load(path).run([X]))
    assert not np.allclose(read[0], found[0])


def test_a_file_that_changes_under_a_model_with_open_shapes(engine: Engine, tmp_path: Path) -> None:
    path = _saved(_net("open", batch="m", seed=4), tmp_path / "m.onnx")
    model = api.compile_model(path, engine=engine)
    expected = outputs(model(X))
    _saved(_net("open", batch="m", seed=5), path)
    assert_same(outputs(model(X)), expected)
    with pytest.raises(ModelError, match=r"m\.onnx' has changed since it was compiled"):
        model(np.repeat(X, 2, 0))


# ---- a cache that suffers ----


@pytest.mark.parametrize("harm", ["remove", "cut", "flip", "empty"])
def test_every_part_may_be_lost(harm: str, tmp_path: Path, folder: Path) -> None:
    path = _saved(_net(f"harmed {harm}", seed=sum(harm.encode())), tmp_path / "m.onnx")
    mine = tmp_path / "kernels"
    shutil.copytree(folder, mine)
    kept = {file.name for file in _entries(mine)}

    def start() -> list[Any]:
        return outputs(
            api.compile_model(
                path, engine=Engine(threads=1, toolchain=Toolchain(cache=Cache(mine)))
            )(X)
        )

    expected = start()
    parts = [file.name for file in _entries(mine) if file.name not in kept]
    assert len(parts) >= 5
    for name in parts:
        (file,) = [file for file in _entries(mine) if file.name == name]
        content = bytearray(file.read_bytes())
        if harm == "remove":
            file.unlink()
        elif harm == "cut":
            file.write_bytes(content[: len(content) // 2])
        elif harm == "empty":
            file.write_bytes(b"")
        else:
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
        assert_same(start(), expected)


def test_a_full_disk_is_a_warning(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _saved(_net("full"), tmp_path / "m.onnx")
    keep = Cache.keep_content

    def no_space(self: Cache, data: bytes | memoryview) -> str:
        keep(self, b"some of it")
        raise self.full()

    with monkeypatch.context() as patch:
        patch.setattr(Cache, "keep_content", no_space)
        with pytest.warns(RuntimeWarning, match="not cached for the next start: no space left"):
            model = api.compile_model(path, engine=engine)
    assert_same(outputs(model(X)), outputs(api.compile_model(path, engine=engine)(X)))


def test_weights_are_stored_while_the_compiler_runs(
    engine: Engine, warm: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _saved(_net(seed=41), tmp_path / "net.onnx")
    stored, link = threading.Event(), Toolchain.build_library
    waited: list[bool] = []
    store = CachedModel._stored_weights

    def noted(cached: CachedModel, packed: PackedWeights) -> Any:
        record = store(cached, packed)
        stored.set()
        return record

    def linked_later(toolchain: Toolchain, *units: Any, **options: Any) -> Path:
        waited.append(stored.wait(60))
        return link(toolchain, *units, **options)

    monkeypatch.setattr(CachedModel, "_stored_weights", noted)
    monkeypatch.setattr(Toolchain, "build_library", linked_later)
    fresh = api.compile_model(path, engine=engine)
    assert waited == [True]
    monkeypatch.undo()
    assert_same(outputs(warm(path)(X)), outputs(fresh(X)))


def test_reference_steps_whose_operators_are_damaged(
    folder: Path, engine: Engine, tmp_path: Path
) -> None:
    x = np.array([1.0, -1.0, 2.0, 0.0], np.float32)
    before = set(_entries(folder))
    build = GraphBuilder("late")
    value = build.input("x", DType.F32, [4])
    build.output("y", build.op("NonZero", value))
    path = _saved(build.finish(), tmp_path / "m.onnx")
    expected = outputs(api.compile_model(path, engine=engine)(x))
    for file in set(_entries(folder)) - before:
        file.write_bytes(b"damaged")
    assert_same(outputs(api.compile_model(path, engine=engine)(x)), expected)


def test_a_part_that_was_pruned_meanwhile(
    engine: Engine, folder: Path, warm: Start, tmp_path: Path
) -> None:
    path = _saved(_net("pruned"), tmp_path / "m.onnx")
    api.compile_model(path, engine=engine)
    model = warm(path)
    expected = outputs(model(X))
    Cache(folder).prune(0, spare_seconds=-1)
    with pytest.raises(CacheError, match=r"'m\.onnx' is not in the cache .* any more"):
        _ = model.graph
    assert len(expected) == 2


def test_a_process_that_was_killed_and_two_at_once(tmp_path: Path) -> None:
    """Processes that start one model at the same time, some of them killed on the way, leave a
    cache from which it starts.
    """
    path = _saved(_net("raced"), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", X)
    script = (
        f"import whence, numpy; print(whence.compile({str(path)!r},"
        f" threads=1)(numpy.load({str(tmp_path / 'x.npy')!r}))[0].tobytes().hex())"
    )
    environment = {**os.environ, "WHENCE_CACHE": str(tmp_path)}

    def begin() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True
        )

    for seconds in (0.3, 0.8, 1.2):
        process = begin()
        try:
            process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    answers = {process.communicate()[0].strip() for process in [begin(), begin()]}
    answers.add(begin().communicate()[0].strip())
    (answer,) = answers
    np.testing.assert_allclose(
        np.frombuffer(bytes.fromhex(answer), np.float32),
        _net("raced").run([X])[0].reshape(-1),
        rtol=1e-3,
        atol=1e-3,
    )


# ---- weights that are not stored twice ----


def _large(path: Path, seed: int) -> Path:
    """Two products with their matrices in an external file."""
    build, random = GraphBuilder("large"), np.random.default_rng(seed)
    value = build.input("x", DType.F32, [4, 300])
    for shape in ((300, 300), (300, 300), (300,)):
        given = build.const(random.standard_normal(shape, dtype=np.float32))
        value = build.op("MatMul" if len(shape) == 2 else "Add", value, given)
    build.output("y", value)
    api.save(build.finish(), path)
    onnx.save(
        onnx.load(path), path, save_as_external_data=True, location="data.bin", size_threshold=1000
    )
    return path


def test_large_weights_start_from_the_files_of_the_model(
    engine: Engine, warm: Start, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whence.building.model_cache._LARGEST", 500_000)
    monkeypatch.setattr("whence.building.weights._LARGE", 1000)
    x = np.random.default_rng(1).standard_normal((4, 300), dtype=np.float32)
    path = _large(tmp_path / "l.onnx", 3)
    before = set(_entries(folder))
    first = outputs(api.compile_model(path, engine=engine)(x))
    assert max(file.stat().st_size for file in set(_entries(folder)) - before) < 200_000
    assert_same(outputs(warm(path)(x)), first)
    # The same graph with other weights: nothing of the old ones is used.
    (tmp_path / "data.bin").unlink()
    _large(path, 4)
    second = outputs(api.compile_model(path, engine=engine)(x))
    assert_same(outputs(warm(path)(x)), second)
    assert not np.allclose(first[0], second[0])
    np.testing.assert_allclose(second[0], api.load(path).run([x])[0], rtol=1e-4, atol=1e-4)


def test_large_weights_that_are_no_files_bytes_are_not_stored(
    engine: Engine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whence.building.model_cache._LARGEST", 1000)
    path = _saved(_net("not stored", seed=11), tmp_path / "m.onnx")
    first = outputs(api.compile_model(path, engine=engine)(X))
    before = set(_entries(folder))
    assert_same(outputs(api.compile_model(path, engine=engine)(X)), first)
    assert set(_entries(folder)) == before

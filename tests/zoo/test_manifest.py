"""The zoo's own files say what the fetcher needs, and say it once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zoo.inputs import load_hints
from zoo.manifest import Model, Package, Registry, cache_folder, load_manifest

# Exported from PyTorch by hand rather than fetched; their inputs are listed all the same.
EXPORTED = re.compile(r"t_[a-z0-9_]+")


def test_every_row_is_complete() -> None:
    models = load_manifest()
    assert len(models) > 90
    for model in models.values():
        assert re.fullmatch(r"[a-z0-9_]+", model.name)
        assert re.fullmatch(r"[0-9a-f]{64}", model.sha256), model.name
        assert model.licence, model.name
        assert model.kind, model.name
        assert model.suffix in {".onnx", ".tflite", ".circle"}
        pinned = {
            Registry.PYPI: r"[\w.-]+==[\w.]+",
            Registry.NPM: r"(@[\w-]+/)?[\w-]+@[\w.]+",
            Registry.ONNX: "onnx",
        }[model.package.registry]
        assert re.fullmatch(pinned, model.package.spec), model.name


def test_digests_are_distinct() -> None:
    digests = [model.sha256 for model in load_manifest().values()]
    assert len(set(digests)) == len(digests)


def test_the_small_part_is_varied() -> None:
    small = [model for model in load_manifest().values() if model.small]
    assert {model.suffix for model in small} == {".onnx", ".tflite"}
    assert any(model.rejected for model in small)
    assert any("If" in model.kind for model in small)
    assert any("int8" in model.kind for model in small)


def test_hints_belong_to_models() -> None:
    models = load_manifest()
    assert [
        name for name in load_hints() if name not in models and not EXPORTED.fullmatch(name)
    ] == []


def test_package_names() -> None:
    assert Package.parse("pypi:silero-vad==6.2.3") == Package(Registry.PYPI, "silero-vad==6.2.3")
    assert Package.parse("npm:@scope/name@1.0.0") == Package(Registry.NPM, "@scope/name@1.0.0")
    assert Package.parse("onnx") == Package(Registry.ONNX, "onnx")
    with pytest.raises(ValueError, match="gopher"):
        Package.parse("gopher:x==1")


def test_a_model_listed_twice_is_an_error(tmp_path: Path) -> None:
    row = '{ file = "a.onnx", kind = "k", licence = "l", sha256 = "0" }'
    path = tmp_path / "twice.toml"
    path.write_text(f'["pypi:a==1"]\nm = {row}\n["pypi:b==1"]\nm = {row}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="m is listed twice"):
        load_manifest(path)


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model("m", Package(Registry.PYPI, "a==1"), "a/b.LITE", "0", "MIT", "tiny")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert model.path() == tmp_path / "whence" / "zoo" / "m.tflite"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "whence" / "zoo"

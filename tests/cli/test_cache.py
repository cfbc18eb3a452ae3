"""`cache` and `doctor`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Whence
from whence.cli import doctor
from whence.codegen.cache import Cache, cache_key
from whence.errors import CompileError


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("WHENCE_CACHE", str(tmp_path))
    cache = Cache()
    for number in range(3):
        cache.put(cache_key(str(number)), bytes([number]) * 1024)
    (cache.subfolder("zig") / "object").write_bytes(b"x" * 2048)
    (cache.subfolder("tuned") / "host.json").write_text("{}")
    return cache


def test_its_size_and_what_is_in_it(whence: Whence, filled: Cache) -> None:
    done = whence("cache")
    assert done.code == 0
    assert f"{filled.folder}: 3 entries, 3.0 KiB" in done.out
    done = whence("cache", "list", "--limit", 2)
    assert done.out.count("1.0 KiB") == 2
    assert "... and 1 more" in done.out


def test_pruning_leaves_what_fits(whence: Whence, filled: Cache) -> None:
    assert "0 B freed" in whence("cache", "prune", "--to", "500M").out
    assert len(filled.entries()) == 3
    assert whence("cache", "prune", "--to", "much").code == 2


def test_clearing_leaves_what_tuning_found(whence: Whence, filled: Cache) -> None:
    done = whence("cache", "clear")
    assert done.code == 0
    assert "5.0 KiB freed" in done.out
    assert not filled.entries()
    assert not (filled.folder / "zig").exists()
    assert (filled.folder / "tuned" / "host.json").exists()


def test_an_unknown_action_is_bad_usage(whence: Whence, filled: Cache) -> None:
    assert whence("cache", "burn").code == 2


def test_doctor_says_what_to_paste_into_an_issue(whence: Whence) -> None:
    done = whence("doctor")
    assert done.code == 0
    for fact in ("whence ", "python", "cpu features", "compiler", "works", "cache", "onnxruntime"):
        assert fact in done.out
    assert "(pruned to 4.0 GiB), " in done.out
    assert str(Path.home()) not in done.out


def test_doctor_fails_when_something_does(whence: Whence, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise CompileError("the C compiler is missing")

    monkeypatch.setitem(doctor._CHECKS, "compiler", broken)
    done = whence("doctor")
    assert done.code == 1
    assert "fails: the C compiler is missing" in done.out
    assert "OpenCL" in done.out

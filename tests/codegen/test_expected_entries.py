"""Entries that the next start asks for are checked early, and no less than before."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

import pytest

from whence.codegen.cache import Cache
from whence.codegen.digest import digest_of_file
from whence.codegen.expected_entries import FOLDER, ExpectedEntries, WrittenEntry, entry_status

KEY = "ab" * 32
LARGE = b"packed weights" * 20_000


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "kernels")


def _start(cache: Cache, model: Path = Path("model.onnx")) -> Path | None:
    again = Cache(cache.folder)
    with again.expecting(ExpectedEntries(model, again.folder)):
        return again.get(KEY)


def _digests_counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many threads were allowed for each digest: 1 in the background."""
    counted: list[int] = []

    def digest(path: Path, threads: int = 8) -> str:
        counted.append(threads)
        return digest_of_file(path, threads)

    monkeypatch.setattr("whence.codegen.expected_entries.digest_of_file", digest)
    return counted


def _boot(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The machine starts (again)."""
    monkeypatch.setattr("whence.codegen.expected_entries._boot_id", lambda: name)


def test_what_one_start_used_is_checked_before_the_next_asks(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cache.put(KEY, LARGE)
    counted = _digests_counted(monkeypatch)
    assert _start(cache) == path
    assert counted == [8]
    _boot(monkeypatch, "another")
    expected = ExpectedEntries(Path("model.onnx"), cache.folder)
    assert expected._done[path].wait(60)
    with cache.expecting(expected):
        assert cache.get(KEY) == path
    assert counted == [8, 1]


def test_what_was_checked_is_checked_again_when_the_machine_has_started_again(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cache.put(KEY, LARGE)
    counted = _digests_counted(monkeypatch)
    for boot, digests in (("one", 1), ("one", 1), ("one", 1), ("two", 2), ("two", 2)):
        _boot(monkeypatch, boot)
        assert _start(cache) == path
        assert len(counted) == digests


def test_where_the_system_does_not_say_when_it_started_all_is_checked(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cache.put(KEY, LARGE)
    counted = _digests_counted(monkeypatch)
    _boot(monkeypatch, "")
    assert [_start(cache) for _ in range(3)] == [path] * 3
    assert len(counted) == 3


def test_an_entry_that_was_replaced_or_whose_times_were_set_is_checked(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cache.put(KEY, LARGE)
    _boot(monkeypatch, "one")
    assert _start(cache) == path
    counted = _digests_counted(monkeypatch)
    before = path.stat()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert _start(cache) == path
    assert len(counted) == 1
    before = path.stat()
    damaged = path.with_name("damaged")
    damaged.write_bytes(b"!" + LARGE[1:])
    os.utime(damaged, ns=(before.st_atime_ns, before.st_mtime_ns))
    damaged.replace(path)
    assert _start(cache) is None


def test_an_entry_that_one_start_asks_for_again_is_not_read_again(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cache.put(KEY, LARGE)
    _boot(monkeypatch, "one")
    counted = _digests_counted(monkeypatch)
    with cache.expecting(ExpectedEntries(Path("model.onnx"), cache.folder)):
        assert [cache.get(KEY) for _ in range(3)] == [path] * 3
    assert len(counted) == 1


def test_what_nobody_got_to_is_computed_by_whoever_asks(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cache.put(KEY, LARGE)
    assert _start(cache) == path
    _boot(monkeypatch, "another")
    counted = _digests_counted(monkeypatch)
    monkeypatch.setattr(ExpectedEntries, "_check", lambda self: None)
    expected = ExpectedEntries(Path("model.onnx"), cache.folder)
    assert [expected.digest_of(path) for _ in range(3)] == [path.name.split(".")[1]] * 3
    assert counted == [8]


@pytest.mark.parametrize("boot", ["", "another"])
def test_a_damaged_entry_is_found_damaged_early_or_late(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, boot: str
) -> None:
    path = cache.put(KEY, LARGE)
    assert _start(cache) == path
    if boot:
        _boot(monkeypatch, boot)
    damaged = bytearray(LARGE)
    damaged[5] ^= 1
    path.write_bytes(damaged)
    assert _start(cache) is None
    assert not path.exists()


def test_an_entry_that_changes_after_it_was_checked_is_checked_again(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cache.put(KEY, LARGE)
    assert _start(cache) == path
    _boot(monkeypatch, "another")
    expected = ExpectedEntries(Path("model.onnx"), cache.folder)
    assert expected._done[path].wait(60)
    path.write_bytes(LARGE[1:] + b"!")
    os.utime(path, ns=(1, 1))
    with cache.expecting(expected):
        assert cache.get(KEY) is None


@pytest.mark.parametrize("text", ["", "../../etc/passwd", "x\ny", "ab" * 65, "\udcff"])
def test_a_list_that_is_none_is_done_without(cache: Cache, text: str) -> None:
    path = cache.put(KEY, LARGE)
    assert _start(cache) == path
    (listed,) = (cache.folder / FOLDER).iterdir()
    listed.write_bytes(text.encode(errors="surrogateescape"))
    assert _start(cache) == path


def test_expected_entries_that_are_gone_are_no_error(cache: Cache) -> None:
    path = cache.put(KEY, LARGE)
    assert _start(cache) == path
    path.unlink()
    assert _start(cache) is None


def test_small_entries_and_other_models_are_not_listed(cache: Cache) -> None:
    path = cache.put(KEY, b"small")
    assert _start(cache) == path
    assert not (cache.folder / FOLDER).exists()
    large = cache.put("cd" * 32, LARGE)
    with cache.expecting(ExpectedEntries(Path("one.onnx"), cache.folder)):
        assert cache.get("cd" * 32) == large
    assert list(ExpectedEntries(Path("one.onnx"), cache.folder)._found) == [large]
    assert not ExpectedEntries(Path("other.onnx"), cache.folder)._found


def test_a_folder_that_cannot_be_written_has_no_lists(cache: Cache) -> None:
    path = cache.put(KEY, LARGE)
    (cache.folder / FOLDER).write_text("in the way")
    assert _start(cache) == path


def test_a_cache_that_expects_entries_is_handed_to_another_process(cache: Cache) -> None:
    path = cache.put(KEY, LARGE)
    with cache.expecting(ExpectedEntries(Path("model.onnx"), cache.folder)):
        assert pickle.loads(pickle.dumps(cache)).get(KEY) == path


def test_what_another_process_wrote_just_now_is_not_read_once_more(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cache.put(KEY, LARGE)
    here = pickle.loads(pickle.dumps(cache))
    assert [entry.path for entry in cache.written] == [path]
    assert not here.written
    counted = _digests_counted(monkeypatch)
    with here.expecting(ExpectedEntries(Path("model.onnx"), here.folder)):
        here.note_written(cache.written)
        assert here.get(KEY) == path
    assert not counted
    # The next start expects it all the same.
    assert list(ExpectedEntries(Path("model.onnx"), cache.folder)._found) == [path]


def test_entries_may_be_written_while_others_are_checked(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [cache.put(key, LARGE + key.encode()) for key in ("cd" * 32, "ef" * 32)]
    with cache.expecting(ExpectedEntries(Path("model.onnx"), cache.folder)):
        assert [cache.get(path.name[:64]) for path in paths] == paths
    expected, other = ExpectedEntries(Path("model.onnx"), cache.folder), cache.put(KEY, LARGE)
    expected._done.update({path: threading.Event() for path in paths})
    checked: list[Path] = []

    def compute(path: Path, threads: int) -> None:
        checked.append(path)
        expected.add_written([WrittenEntry(other, entry_status(other))])

    monkeypatch.setattr(expected, "_compute", compute)
    expected._check()
    assert checked == paths


@pytest.mark.parametrize("size", [len(LARGE), 10])
def test_what_was_written_and_changed_since_is_checked(cache: Cache, size: int) -> None:
    path = cache.put(KEY, LARGE)
    written = cache.written
    path.write_bytes(b"x" * size)
    os.utime(path, (0, path.stat().st_mtime + 1))  # some clocks of files are coarse
    with cache.expecting(ExpectedEntries(Path("model.onnx"), cache.folder)):
        cache.note_written(written)
        assert cache.get(KEY) is None


def test_what_was_written_and_removed_since_is_not_there(cache: Cache) -> None:
    path = cache.put(KEY, LARGE)
    written = cache.written
    path.unlink()
    assert not cache.written
    with cache.expecting(ExpectedEntries(Path("model.onnx"), cache.folder)):
        cache.note_written(written)
        assert cache.get(KEY) is None

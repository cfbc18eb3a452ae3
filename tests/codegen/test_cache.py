from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import random
import signal
import stat
import time
from pathlib import Path

import pytest

from whence.codegen import cache as module
from whence.codegen.cache import Cache, cache_key, default_folder
from whence.errors import CacheError

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "kernels")


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---- keeping and finding ----


def test_what_was_put_is_found(cache: Cache) -> None:
    key = cache_key("a")
    assert cache.get(key) is None
    path = cache.put(key, b"code")
    assert path.read_bytes() == b"code"
    assert cache.get(key) == path
    assert Cache(cache.folder).get(key) == path
    assert cache.get(cache_key("b")) is None


def test_keys_depend_on_every_part_and_on_where_parts_end() -> None:
    assert (
        len(
            {
                cache_key(),
                cache_key(""),
                cache_key("ab"),
                cache_key("a", "b"),
                cache_key("", "ab"),
                cache_key("b", "a"),
            }
        )
        == 6
    )


def test_folders_and_files_are_private(cache: Cache) -> None:
    previous = os.umask(0)
    try:
        path = cache.put(cache_key("a"), b"code")
        Cache(cache.folder.parent / "other")
    finally:
        os.umask(previous)
    assert mode(path) == 0o600
    assert mode(path.parent) == mode(cache.folder) == mode(cache.folder.parent / "other") == 0o700


def test_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WHENCE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache/whence/kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_folder() == tmp_path / ".cache/whence/kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder() == tmp_path / "xdg/whence/kernels"
    monkeypatch.setenv("WHENCE_CACHE", str(tmp_path / "mine"))
    assert default_folder() == tmp_path / "mine/kernels"
    assert Cache().folder == tmp_path / "mine/kernels"


# ---- damage ----


@pytest.mark.parametrize("damage", [b"", b"cod", b"codE", b"code and more"])
def test_a_damaged_entry_is_discarded_and_can_be_put_again(cache: Cache, damage: bytes) -> None:
    key = cache_key("a")
    path = cache.put(key, b"code")
    path.write_bytes(damage)
    assert cache.get(key) is None
    assert not path.exists()
    cache.put(key, b"code")
    assert cache.get(key) == path


def test_a_good_entry_is_found_beside_a_damaged_one(cache: Cache) -> None:
    key = cache_key("a")
    first, second = cache.put(key, b"one compiler's code"), cache.put(key, b"another's")
    assert first != second
    first.write_bytes(b"?")
    assert cache.get(key) == second


def test_strange_files_are_left_alone(cache: Cache) -> None:
    key = cache_key("a")
    path = cache.put(key, b"code")
    (path.parent / f"{key}.notes").write_text("mine")
    (path.parent / f"{key}.{'0' * 64}").mkdir()
    (cache.folder / "zz").write_text("mine")
    assert cache.get(key) == path
    assert path in [entry.path for entry in cache.entries()]


# ---- several processes, and the end of one ----


def _write_many(folder: Path, seed: int, keys: list[str]) -> None:
    cache = Cache(folder)
    order = keys * 3
    random.Random(seed).shuffle(order)
    for key in order:
        found = cache.get(key)
        data = (key * 500).encode()
        assert found is None or found.read_bytes() == data
        assert cache.put(key, data).read_bytes() == data


def test_many_processes_write_the_same_entries(cache: Cache) -> None:
    keys = [cache_key(str(number)) for number in range(20)]
    writers = [
        FORK.Process(target=_write_many, args=(cache.folder, seed, keys)) for seed in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert sorted(entry.key for entry in cache.entries()) == sorted(keys)
    assert len(files(cache.folder)) == len(keys)


def _write_forever(folder: Path) -> None:
    cache = Cache(folder)
    number = 0
    while True:
        cache.put(cache_key(str(number)), str(number).encode() * 200_000)
        number += 1


def test_a_kill_at_any_moment_leaves_whole_entries_only(cache: Cache) -> None:
    pause = random.Random(0)
    for _ in range(10):
        writer = FORK.Process(target=_write_forever, args=(cache.folder,))
        writer.start()
        time.sleep(pause.uniform(0.01, 0.08))
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join(60)
    entries = cache.entries()
    assert entries
    for entry in entries:
        assert hashlib.sha256(entry.path.read_bytes()).hexdigest() == entry.path.name.split(".")[1]
        assert cache.get(entry.key) == entry.path
    # Anything else is a temporary file, and goes once it is old.
    left = set(files(cache.folder)) - {entry.path for entry in entries}
    assert all(path.name.startswith(".writing-") for path in left)
    for path in left:
        os.utime(path, (0, 0))
    cache.prune()
    assert set(files(cache.folder)) == {entry.path for entry in entries}


# ---- no space, no permission ----


@pytest.mark.parametrize("where", ["write", "close"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_so_and_leaves_nothing(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, where: str, code: int
) -> None:
    real_write, real_close = os.write, os.close
    written = 0

    def full(handle: int, *data: bytes) -> int:
        nonlocal written
        if not data:
            real_close(handle)
        elif written < 100:
            written += 100
            return real_write(handle, data[0][:100])
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, where, full)
    with pytest.raises(
        CacheError,
        match=r"no space left for compiled code in '.*kernels'; free some .* WHENCE_CACHE",
    ) as caught:
        cache.put(cache_key("a"), b"x" * 10_000)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert files(cache.folder) == []
    assert cache.get(cache_key("a")) is None
    assert cache.put(cache_key("a"), b"y").read_bytes() == b"y"


def test_a_short_write_is_continued(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real_write(handle, data[:7]))
    data = bytes(range(256))
    assert cache.put(cache_key("a"), data).read_bytes() == data


def test_another_failure_names_the_folder(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.close

    def broken(handle: int) -> None:
        real(handle)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "close", broken)
    with pytest.raises(
        CacheError,
        match=r"the cache folder '.*kernels' cannot be used: Input/output error; set WHENCE_CACHE",
    ):
        cache.put(cache_key("a"), b"code")
    assert files(cache.folder) == []


@pytest.fixture
def read_only(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache whose folder refuses writing, also to root."""
    cache.put(cache_key("old"), b"old")
    real = module.replace_file

    def refuse(path: Path, data: bytes) -> None:
        if cache.folder in path.parents:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        real(path, data)

    monkeypatch.setattr(module, "replace_file", refuse)
    return cache


def test_a_read_only_folder_serves_what_it_has_and_the_rest_is_kept_for_the_process(
    read_only: Cache,
) -> None:
    old = read_only.get(cache_key("old"))
    assert old is not None
    assert read_only.folder in old.parents
    new = read_only.put(cache_key("new"), b"new")
    assert read_only.folder not in new.parents
    assert read_only.get(cache_key("new")) == new
    assert new.read_bytes() == b"new"
    assert mode(new) == 0o600
    assert mode(new.parent) == 0o700
    assert read_only._overflow is not None
    read_only._overflow.cleanup()
    assert not new.exists()


def _as_nobody(folder: Path) -> None:
    if os.geteuid() == 0:
        os.setuid(65534)
    cache = Cache(folder)
    path = cache.put(cache_key("a"), b"code")
    assert path.read_bytes() == b"code"
    assert cache.get(cache_key("a")) == path
    assert folder not in path.parents
    with cache.workspace() as workspace:
        (workspace / "file").write_text("text")
    (cache.subfolder("zig") / "file").write_text("text")


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    user = FORK.Process(target=_as_nobody, args=(closed / "whence" / "kernels",))
    user.start()
    user.join(60)
    assert user.exitcode == 0


def test_a_folder_that_was_deleted_is_made_again(cache: Cache) -> None:
    cache.folder.rmdir()
    assert cache.get(cache_key("a")) is None
    with cache.workspace() as work:
        assert work.parent == cache.folder
    cache.folder.rmdir()
    assert cache.put(cache_key("a"), b"code").read_bytes() == b"code"
    assert mode(cache.folder) == 0o700


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "kernels").write_text("")
    with pytest.raises(
        CacheError, match=r"kernels' cannot be used: File exists; set WHENCE_CACHE to another"
    ):
        Cache(tmp_path / "kernels")
    with pytest.raises(CacheError, match="Not a directory"):
        Cache(tmp_path / "kernels" / "below")


# ---- whose folder it is ----


def test_a_folder_of_somebody_else_is_refused(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(
        CacheError,
        match=(
            r"belongs to another user \(uid \d+\): code loaded from there would run as you; set"
            r" WHENCE_CACHE"
        ),
    ):
        Cache(cache.folder)


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_is_refused(cache: Cache, bits: int) -> None:
    cache.folder.chmod(bits)
    with pytest.raises(
        CacheError,
        match=r"can be written by others: code loaded from there would run as you; .* chmod 700",
    ):
        Cache(cache.folder)
    cache.folder.chmod(0o755)
    Cache(cache.folder)


def test_a_folder_that_others_can_replace_is_refused(cache: Cache) -> None:
    cache.folder.parent.chmod(0o777)
    with pytest.raises(CacheError, match="where anybody could replace it"):
        Cache(cache.folder)
    cache.folder.parent.chmod(0o1777)  # as /tmp: only the owner may rename
    Cache(cache.folder)


# ---- pruning ----


def _aged(cache: Cache, number: int, size: int) -> Path:
    path = cache.put(cache_key(str(number)), bytes([number]) * size)
    os.utime(path, (1000 + number, 1000 + number))
    return path


def test_prune_removes_the_least_recently_used(cache: Cache) -> None:
    paths = [_aged(cache, number, 100) for number in range(5)]
    assert [entry.path for entry in cache.entries()] == paths
    assert cache.get(cache_key("0")) == paths[0]  # now the most recent
    assert cache.prune(250) == 300
    assert {entry.path for entry in cache.entries()} == {paths[0], paths[4]}
    assert cache.prune(250) == 0


def test_prune_spares_what_was_just_used(cache: Cache) -> None:
    path = cache.put(cache_key("a"), b"code")
    assert cache.prune(0) == 0
    assert path.exists()
    assert cache.prune(0, spare_seconds=0) == 4
    assert cache.entries() == ()


def test_prune_sweeps_old_workspaces_and_leaves_new_ones(cache: Cache) -> None:
    with cache.workspace() as work:
        (work / "deep").mkdir()
        (work / "deep" / "file").write_text("text")
        cache.prune()
        assert (work / "deep" / "file").exists()
        os.utime(work, (0, 0))
        cache.prune()
        assert not work.exists()
    assert list(cache.folder.iterdir()) == []

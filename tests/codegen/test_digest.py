"""Digests of files: those of their content, however long."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

import pytest

from whence.codegen.digest import PIECE, FileDigest, digest_of, digest_of_file


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 77])
def test_a_file_has_the_digest_of_its_content(tmp_path: Path, size: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "file").write_bytes(data[:size])
    assert digest_of_file(tmp_path / "file") == digest_of(data[:size])
    assert FileDigest(tmp_path / "file").value == digest_of(data[:size])


def test_any_byte_counts(tmp_path: Path) -> None:
    data = bytearray(2 * PIECE + 5)
    digests = set()
    for place in (0, PIECE - 1, PIECE, 2 * PIECE + 4):
        data[place] ^= 1
        (tmp_path / "file").write_bytes(data)
        digests.add(digest_of_file(tmp_path / "file"))
    assert len(digests) == 4


def test_a_file_that_cannot_be_read_has_no_digest(tmp_path: Path) -> None:
    assert not FileDigest(tmp_path / "missing").value
    assert not FileDigest(tmp_path).value


def test_a_file_that_shrinks_while_it_is_read_has_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whence.codegen.digest._Pieces.start", lambda pieces, threads: None)
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * PIECE))
    digest = FileDigest(path)
    os.truncate(path, PIECE + 1)
    assert not digest.value


def test_another_process_is_told_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a model")
    long_ago = path.stat().st_mtime - 100
    os.utime(path, (long_ago, long_ago))
    monkeypatch.setattr("whence.codegen.digest._SETTLED_NS", 0)
    (tmp_path / "weights").write_bytes(b"its weights")
    here = FileDigest(path)
    here.of_beside("weights")
    there = pickle.loads(pickle.dumps(here))
    monkeypatch.setattr("whence.codegen.digest._OpenFile.digest", lambda _: "read again")
    assert there.value == digest_of(b"a model")
    assert there.of_beside("weights").value == digest_of(b"its weights")
    assert there.is_current()
    path.write_bytes(b"another model")
    assert not there.is_current()


def test_a_file_that_is_new_is_read_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times that are seconds old say no more than that it was the same then."""
    path = tmp_path / "file"
    path.write_bytes(b"a model")
    digest = FileDigest(path)
    monkeypatch.setattr("whence.codegen.digest._SETTLED_NS", 0)
    assert digest.is_current()
    monkeypatch.setattr("whence.codegen.digest._OpenFile.digest", lambda _: "read again")
    assert digest.is_current()


def test_a_file_beside_another_is_read_once(tmp_path: Path) -> None:
    for name in ("model", "weights"):
        (tmp_path / name).write_bytes(name.encode())
    digest = FileDigest(tmp_path / "model")
    weights = digest.of_beside("weights")
    assert weights.value == digest_of(b"weights")
    assert digest.of_beside("weights") is weights
    assert not digest.of_beside("missing").value
    assert digest.of_beside("weights", anew=True) is not weights


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_many_files_are_not_open_at_once(tmp_path: Path) -> None:
    digest, names = FileDigest(tmp_path / "model"), [str(number) for number in range(100)]
    before = _open_files()
    for name in names:
        (tmp_path / name).write_text(name)
    digests = [digest.of_beside(name) for name in names]
    assert _open_files() < before + 30
    assert [each.value for each in digests] == [digest_of(name.encode()) for name in names]
    assert _open_files() <= before


def test_a_file_that_is_replaced_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is hashed is the file that was there, or nothing."""
    path = tmp_path / "file"
    path.write_bytes(b"a model")
    status = path.stat()
    with monkeypatch.context() as patch:
        patch.setattr("whence.codegen.digest._IN_BACKGROUND", threading.Semaphore(0))
        waiting = FileDigest(path)
    assert waiting.is_of(status)
    (tmp_path / "other").write_bytes(b"another model")
    (tmp_path / "other").replace(path)
    assert not waiting.value
    assert not waiting.is_current()
    assert not FileDigest(path).is_of(status)

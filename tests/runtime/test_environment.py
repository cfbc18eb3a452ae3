"""What a result says it was made with."""

from __future__ import annotations

from pathlib import Path

import pytest

from whence.runtime.environment import environment, processor_name, source_commit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_versions_machine_date_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHENCE_CHECK", "1")
    monkeypatch.setenv("WHENCE_CACHE", "/home/somebody")
    found = environment()
    assert {"whence", "python", "numpy", "ziglang", "cpu", "cores", "system", "date"} <= set(found)
    assert found["date"].endswith("UTC")
    assert found["WHENCE_CHECK"] == "1"
    assert not any("somebody" in fact for fact in found.values())


def test_the_processor_s_name(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: Fast 9000 @ 3 GHz\n")
    assert processor_name(file) == "Fast 9000 @ 3 GHz"


@pytest.mark.parametrize("form", ["detached", "branch", "packed", "worktree"])
def test_the_commit_of_a_checkout(tmp_path: Path, form: str) -> None:
    package = tmp_path / "src" / "whence" / "runtime"
    package.mkdir(parents=True)
    assert source_commit(package) == ""
    git = tmp_path / ".git"
    if form == "worktree":
        git.write_text("gitdir: " + str(tmp_path / "main" / "worktrees" / "w"))
        git = tmp_path / "main" / "worktrees" / "w"
        (tmp_path / "main" / "refs" / "heads").mkdir(parents=True)
        (tmp_path / "main" / "refs" / "heads" / "x").write_text(COMMIT + "\n")
        git.mkdir(parents=True)
        (git / "commondir").write_text("../..\n")
    else:
        (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text(COMMIT if form == "detached" else "ref: refs/heads/x\n")
    if form == "branch":
        (git / "refs" / "heads" / "x").write_text(COMMIT + "\n")
    if form == "packed":
        (git / "packed-refs").write_text(f"# pack-refs\n{COMMIT} refs/heads/x\n")
    assert source_commit(package) == COMMIT[:12]


def test_another_project_s_repository_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(COMMIT)
    package = tmp_path / ".venv" / "lib" / "whence" / "runtime"
    package.mkdir(parents=True)
    assert source_commit(package) == ""

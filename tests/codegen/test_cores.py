"""How many cores a process may keep busy."""

from __future__ import annotations

from pathlib import Path

from whence.codegen.target import _quotas, usable_cores


def _group(root: Path, name: str, limit: str) -> None:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.max").write_text(limit, encoding="ascii")


def test_the_quota_of_a_control_group_and_of_those_above_it(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("0::/pods/one\n", encoding="ascii")
    _group(tmp_path, "pods/one", "150000 100000\n")
    _group(tmp_path, "pods", "400000 100000\n")
    assert list(_quotas(membership, tmp_path)) == [2, 4]


def test_no_quota_is_no_limit(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("1:cpu:/old\n0::/\n", encoding="ascii")
    _group(tmp_path, "", "max 100000\n")
    assert list(_quotas(membership, tmp_path)) == []
    assert list(_quotas(tmp_path / "missing", tmp_path)) == []
    assert usable_cores() >= 1


def test_the_first_version_of_control_groups_has_its_quota_in_two_files(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("4:memory:/one\n2:cpu,cpuacct:/one\n0::/\n", encoding="ascii")
    folder = tmp_path / "cpu" / "one"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("250000\n", encoding="ascii")
    (folder / "cpu.cfs_period_us").write_text("100000\n", encoding="ascii")
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n", encoding="ascii")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n", encoding="ascii")
    assert list(_quotas(membership, tmp_path)) == [3]

"""Bisecting: real git, real processes, versions of whence that are slow by construction."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from tests.fleet.models import tiny_model
from whence.errors import InputError
from whence.fleet.cell import Cell
from whence.fleet.versions import find_version

WHENCE = [sys.executable, "-c", "from whence.cli.main import main; main()"]
STUB = """
def compile_model(*args, **options):
    return None

class _Profile:
    def without_local_paths(self):
        return self
    def to_dict(self):
        import random
        time = int({time} * random.uniform(0.97, 1.03))
        source = dict(name="/conv", module="conv", time_ns=20 * time, band_ns=[time] * 3)
        return dict(runs_ns=[time] * 20, runs=20, sources=[source])

def profile_model(*args, **options):
    return _Profile()
"""


def git(folder, *arguments):
    options = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(folder)]
    done = subprocess.run(["git", *options, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def model(tmp_path):
    return tiny_model(tmp_path / "model.onnx")


@pytest.mark.parametrize("first_slow", [1, 4, 6])
def test_the_first_slow_commit_is_found(tmp_path, model, first_slow):
    repository = tmp_path / "repository"
    package = repository / "src" / "whence"
    package.mkdir(parents=True)
    git(repository, "init", "-q")
    commits = []
    for number in range(7):
        time = 1_200_000 if number >= first_slow else 1_000_000
        (package / "__init__.py").touch()
        (package / "api.py").write_text(STUB.format(time=time) + f"# {number}\n")
        git(repository, "add", ".")
        git(repository, "commit", "-q", "-m", f"commit {number}")
        commits.append(git(repository, "rev-parse", "HEAD"))
    done = subprocess.run(
        [
            *WHENCE, "bisect", str(model), "--good", commits[0], "--bad", "HEAD", "--repository",
            str(repository), "--op", "/conv", "--rounds", "3",
        ],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert f"{commits[first_slow][:12]} is the first slow version" in done.stdout
    assert f"{commits[first_slow - 1][:12]} is the last fast one" in done.stdout
    assert git(repository, "worktree", "list").count("\n") == 0  # nothing is left behind


def test_wheels_are_bisected_too(tmp_path, model):
    wheels = []
    for number, time in enumerate((1_000_000, 1_500_000, 1_500_000)):
        path = tmp_path / f"whence-0.{number}.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("whence/__init__.py", "")
            wheel.writestr("whence/api.py", STUB.format(time=time))
        wheels += ["--wheel", str(path)]
    done = subprocess.run(
        [*WHENCE, "bisect", str(model), *wheels, "--rounds", "3"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "whence-0.1.0-py3-none-any.whl is the first slow version" in done.stdout


def test_a_wheel_that_was_not_unpacked_to_its_end_is_unpacked_again(tmp_path):
    path = tmp_path / "whence-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("whence/__init__.py", "")
        wheel.writestr("whence/api.py", "complete")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"complete", b"cOmplete", 1))
    with pytest.raises(InputError, match="not a wheel: Bad CRC"):
        find_version(str(path), tmp_path / "unpacked")
    with pytest.raises(InputError, match="not a wheel: Bad CRC"):
        find_version(str(path), tmp_path / "unpacked")
    assert not list((tmp_path / "unpacked").iterdir())
    path.write_bytes(whole)
    found = find_version(str(path), tmp_path / "unpacked")
    assert found.folder is not None
    assert (found.folder / "whence" / "api.py").read_text() == "complete"


def test_nothing_to_find_is_said(tmp_path, model):
    path = tmp_path / "whence-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("whence/__init__.py", "")
        wheel.writestr("whence/api.py", STUB.format(time=1_000_000))
    done = subprocess.run(
        [*WHENCE, "bisect", str(model), "--wheel", str(path), "--wheel", str(path)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "is not slower than" in done.stderr


def test_cells_of_a_bisection_have_no_date():
    assert Cell("m", "", night="bisect").folder.startswith("night=bisect/")

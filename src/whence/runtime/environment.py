"""What a result was made with: versions, machine, settings. In words, for people and files."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from whence.codegen.target import CPU_INFO, Target, cpu_info
from whence.codegen.toolchain import Toolchain
from whence.errors import WhenceError

COMPUTED_WITH = ("numpy", "onnx", "ziglang")
"""The packages that results and times depend on."""
_HASH = re.compile(r"[0-9a-f]{40,64}")


def environment(toolchain: Toolchain | None = None) -> dict[str, str]:
    """Facts about this process and machine, now. Nothing that names a user or a folder."""
    try:
        target = toolchain.target if toolchain is not None else Target.default()
        machine = {
            "cpu": processor_name() or f"{target.arch}",
            "cpu features": ", ".join(sorted(target.features)),
            "cores": str(target.cores),
        }
    except WhenceError as error:
        machine = {"cpu": f"unknown: {error}"}
    commit = source_commit()
    return {
        "whence": version_of("whence") + (f" ({commit})" if commit else ""),
        "python": platform.python_version(),
        **{name: version_of(name) for name in COMPUTED_WITH},
        **machine,
        "system": f"{platform.system()} {platform.release()}",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        **settings(),
    }


def settings() -> dict[str, str]:
    """The environment variables that change what whence does; not where its cache lies."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith("WHENCE_") and name != "WHENCE_CACHE"
    }


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    return {package: version_of(package) for package in packages}


def processor_name(cpuinfo: Path = CPU_INFO) -> str:
    """As the processor calls itself; empty where nobody says."""
    text = cpu_info(cpuinfo)
    found = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor()


def source_commit(folder: Path = Path(__file__).parent) -> str:
    """The commit of a checkout that whence runs from, shortened; empty for an installed package.
    Read from git's files: git itself need not be there.
    """
    for above in folder.resolve().parents:
        git = above / ".git"
        if not git.exists():
            continue
        if not (above / "src" / "whence").is_dir():
            return ""  # somebody else's repository, with an environment in it
        try:
            if git.is_file():
                git = (above / git.read_text(encoding="utf-8").partition(": ")[2].strip()).resolve()
            return _head(git)[:12]
        except OSError:
            return ""
    return ""


def _head(git: Path) -> str:
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref: "):
        return head if _HASH.fullmatch(head) else ""
    name = head.removeprefix("ref: ")
    shared = git / "commondir"
    common = git / shared.read_text(encoding="utf-8").strip() if shared.exists() else git
    for place in (git, common):
        if (place / name).exists():
            return (place / name).read_text(encoding="utf-8").strip()
    packed = common / "packed-refs"
    for line in packed.read_text(encoding="utf-8").splitlines() if packed.exists() else ():
        value, _, ref = line.partition(" ")
        if ref == name:
            return value
    return ""

"""Fetches axe-core, the checker of web pages' accessibility, for the tests of the report:

    python -m tools.fetch_axe

leaves build/axe-core/axe.min.js, by npm. A file of this version that is there already is kept.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "4.10.2"
FILE = Path(__file__).parent.parent / "build" / "axe-core" / "axe.min.js"


def fetch(file: Path = FILE) -> Path:
    """The file, after fetching it unless it is there."""
    if file.is_file() and f"axe v{VERSION}" in file.read_text(encoding="utf-8")[:80]:
        return file
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("fetch_axe: npm is not installed; it comes with Node.js")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [npm, "pack", "--silent", f"axe-core@{VERSION}"],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
        (archive,) = Path(folder).glob("axe-core-*.tgz")
        with tarfile.open(archive) as found:
            script = found.extractfile("package/axe.min.js")
            assert script is not None
            text = script.read()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text)
    return file


if __name__ == "__main__":
    print(fetch())

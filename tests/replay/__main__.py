"""Write the code generated for the replayed models into a folder, to compare two versions with
`diff -r`; without one, say what is other than in `digests.txt`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.replay.digests import describe_changes, generate_all, read_digests, summarise
from tests.replay.generated import Generated, generate
from tests.replay.models_other import models


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("--write", metavar="DIR", type=Path, help="write the texts there")
    parser.add_argument("models", nargs="*", choices=[[], *models()], help="only these models")
    given = parser.parse_args()
    found: dict[str, Generated] = {}
    if given.models:
        for model in given.models:
            found |= generate(model)
    else:
        found = generate_all()
    if given.write is not None:
        _write(found, given.write)
        print(f"{len(found)} texts in {given.write}")
        return 0
    known = {key: line for key, line in read_digests().items() if not given.models or key in found}
    changes = describe_changes(known, summarise(found))
    print(changes or f"{len(found)} texts, all as before")
    return 1 if changes else 0


def _write(found: dict[str, Generated], folder: Path) -> None:
    for key, each in found.items():
        if each.text:
            path = folder / f"{key}.{_suffix(key)}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(each.text, encoding="utf-8")


def _suffix(key: str) -> str:
    if key.endswith("/plan"):
        return "txt"
    return "cl" if "opencl" in key.split("/") else "c"


if __name__ == "__main__":
    sys.exit(main())

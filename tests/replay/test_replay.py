"""A change that is not meant to change generated code must not change it: the digest of every C and
OpenCL kernel of some thirty small models, for four targets, is in `digests.txt`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.replay.digests import (
    describe_changes,
    generate_all,
    read_digests,
    summarise,
    write_digests,
)
from tests.replay.generated import Generated

_MEANT = """
If this is meant, run 'pytest tests/replay --bless', and say in the commit what changed and why.
To see it: 'python -m tests.replay --write DIR' on both versions, then 'diff -r' the folders.
"""


def test_generated_code_is_what_it_was(bless: bool) -> None:
    now = summarise(generate_all())
    if bless:
        write_digests(now)
    changes = describe_changes(read_digests(), now)
    assert not changes, f"generated code has changed in {changes}\n{_MEANT}"


def test_it_depends_on_nothing_but_the_source(tmp_path: Path) -> None:
    """Another process, with another order of sets, on as little of the machine as can be."""
    environment = {**os.environ, "PYTHONHASHSEED": "7", "WHENCE_TARGET": "", "WHENCE_CHECK": "1"}
    here = Path(__file__).parents[2]
    models = ["encoder", "integer_depthwise", "quantised", "scan", "top_k"]
    subprocess.run(
        [sys.executable, "-m", "tests.replay", "--write", str(tmp_path), *models],
        check=True,
        cwd=here,
        env=environment,
    )
    written = {
        str(path.relative_to(tmp_path)).rpartition(".")[0]: path.read_text(encoding="utf-8")
        for path in tmp_path.rglob("*.*")
        if path.is_file()
    }
    known = {
        key: summary
        for key, summary in read_digests().items()
        if key.partition("/")[0].partition(".")[0] in models and "none: " not in summary
    }
    assert set(written) == set(known)
    for key, text in written.items():
        assert known[key].startswith(Generated(text).summary), key


def test_changes_are_described_by_kernel() -> None:
    before = {"a/avx2/conv": "1", "a/neon/conv": "2", "b/avx2/add": "3"}
    after = {"a/avx2/conv": "9", "b/avx2/add": "3", "b/avx2/mul": "4"}
    assert describe_changes(before, before) == ""
    assert describe_changes(before, after).splitlines() == [
        "3 of 3 texts: a/avx2 1, a/neon 1, b/avx2 1",
        "changed  a/avx2/conv: 1 -> 9",
        "new      b/avx2/mul",
        "gone     a/neon/conv",
    ]

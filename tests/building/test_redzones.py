"""Code compiled with `sanitize` is stopped at the first byte that belongs to no value."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.mutation import sanitizer
from whence.building.aligned_memory import ALIGNMENT, aligned_bytes
from whence.building.arena import Lifetime, side_by_side
from whence.building.redzones import gaps_between, watched_bytes
from whence.codegen.toolchain import Toolchain
from whence.errors import GraphError, UnsupportedError

PROGRAM = """
import ctypes, sys
import numpy as np
from whence.codegen.toolchain import Toolchain, SourceUnit
from whence.building.redzones import watched_bytes

source = "int peek(const unsigned char *at) { return *at; }"
library = ctypes.CDLL(str(Toolchain(sanitize=True).build_library([SourceUnit("peek", source)])))
library.peek.argtypes = (ctypes.c_void_p,)
for _ in range(3):
    block = watched_bytes(256, [(64, 70), (128, 192)])
    for at in (64, 69, 128, 191):
        assert library.peek(block.ctypes.data + at) == 0
print("fine so far", flush=True)
library.peek(block.ctypes.data + int(sys.argv[1]))
print("not seen")
"""

LATE_FINALIZER = """
import numpy as np
from whence.building.redzones import watched_bytes

def let_go(blocks):
    # A finalizer that is called here finds no room on the stack, and is not carried out.
    try:
        let_go(blocks)
    except RecursionError:
        blocks.clear()

for size in range(64, 1024, 64):
    let_go([watched_bytes(size, []) for _ in range(8)])
    # NumPy writes the zeros of small arrays by itself.
    arrays = [np.zeros(size + 64, np.uint8) for _ in range(16)]
print("nobody was given poisoned memory", flush=True)
"""

CONTENT = """
import numpy as np
from whence.building.redzones import watched_bytes

block = watched_bytes(128, [(0, 60), (64, 100)], np.arange(128, dtype=np.uint8))
assert block.ctypes.data % 64 == 0
print(block[:60].sum() + block[64:100].sum())
"""

needs_runtime = pytest.mark.skipif(
    sanitizer.runtime() is None, reason="no runtime of AddressSanitizer here"
)


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    library = sanitizer.runtime()
    assert library is not None
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=sanitizer.environment(library),
    )


@needs_runtime
@pytest.mark.parametrize("at", [0, 63, 70, 127, 192, 255])
def test_bytes_between_values_may_not_be_read(at):
    done = _run(PROGRAM, str(at))
    assert done.stdout == "fine so far\n", done.stderr
    assert "AddressSanitizer: use-after-poison" in done.stderr


@needs_runtime
def test_memory_of_a_block_whose_finalizer_is_late_is_nobody_elses():
    done = _run(LATE_FINALIZER)
    assert done.stdout == "nobody was given poisoned memory\n", done.stderr


@needs_runtime
def test_a_block_has_its_content_between_the_gaps():
    done = _run(CONTENT)
    assert int(done.stdout) == sum(range(60)) + sum(range(64, 100)), done.stderr


def test_gaps_are_what_no_range_covers():
    assert gaps_between([(10, 20), (12, 15), (30, 30), (20, 25)], 40) == [
        (0, 10),
        (25, 30),
        (30, 40),
    ]
    assert gaps_between([], 8) == [(0, 8)]
    assert gaps_between([(0, 8)], 8) == []


def test_a_range_beyond_the_block_is_an_error():
    with pytest.raises(GraphError, match="bytes 8 to 20 of a block of 16"):
        gaps_between([(8, 20)], 16)


def test_values_lie_apart():
    blocks = [[Lifetime(size, 0, 1)] for size in (10, 0, 64, 65)]
    plan = side_by_side(blocks)
    ends = [begin + size for begin, size in zip(plan.offsets, (10, 0, 64, 65), strict=True)]
    assert all(begin % ALIGNMENT == 0 for begin in plan.offsets)
    assert all(begin - end >= ALIGNMENT for end, begin in zip(ends, plan.offsets[1:], strict=False))
    assert plan.offsets[0] >= ALIGNMENT
    assert plan.arena_bytes - ends[-1] >= ALIGNMENT


def test_sanitized_code_is_other_code():
    assert Toolchain(sanitize=True).key() != Toolchain().key()


def test_without_the_runtime_there_is_an_error():
    with pytest.raises(UnsupportedError, match="load it first"):
        watched_bytes(64, [(0, 64)])
    assert np.all(aligned_bytes(64) == 0)

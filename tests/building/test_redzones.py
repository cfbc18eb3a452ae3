"""Code compiled with `sanitize` is stopped at the first byte that belongs to no value."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.mutation import sanitizer
from whence.building.aligned_memory import ALIGNMENT, aligned_bytes
from whence.building.arena import Lifetime, side_by_side
from whence.building.redzones import poison_gaps
from whence.codegen.toolchain import Toolchain
from whence.errors import UnsupportedError

PROGRAM = """
import ctypes, sys
import numpy as np
from whence.codegen.toolchain import Toolchain, Unit
from whence.building.redzones import poison_gaps
from whence.building.aligned_memory import aligned_bytes

source = "int peek(const unsigned char *at) { return *at; }"
library = ctypes.CDLL(str(Toolchain(sanitize=True).build_library([Unit("peek", source)])))
library.peek.argtypes = (ctypes.c_void_p,)
for _ in range(3):
    block = aligned_bytes(256)
    poison_gaps(block, [(64, 70), (128, 192)])
    for at in (64, 69, 128, 191):
        assert library.peek(block.ctypes.data + at) == 0
print("fine so far", flush=True)
library.peek(block.ctypes.data + int(sys.argv[1]))
print("not seen")
"""

needs_runtime = pytest.mark.skipif(
    sanitizer.runtime() is None, reason="no runtime of AddressSanitizer here"
)


@needs_runtime
@pytest.mark.parametrize("at", [0, 63, 70, 127, 192, 255])
def test_bytes_between_values_may_not_be_read(at):
    library = sanitizer.runtime()
    assert library is not None
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(at)],
        capture_output=True,
        text=True,
        check=False,
        env=sanitizer.environment(library),
    )
    assert done.stdout == "fine so far\n", done.stderr
    assert "AddressSanitizer: use-after-poison" in done.stderr


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
        poison_gaps(aligned_bytes(64), [(0, 64)])
    assert np.all(aligned_bytes(64) == 0)

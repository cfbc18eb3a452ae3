"""Integer kernels as made for machines without the instructions of this one: other vectors, other
ways to add four products.
"""

from __future__ import annotations

import functools
import platform

import numpy as np
import pytest

from tests.kernels import harness
from tests.kernels.harness import Cases
from tests.kernels.test_integer_conv import codes, conv, requantised
from whence.codegen.emit import emit
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.codegen.vectors import VECTORS
from whence.fusion import find_groups, fuse
from whence.kernels.lower import lower
from whence.kernels.tile import AVX512, NEON, Tile
from whence.runtime.engine import Engine


@functools.cache
def engine_for(target: str) -> Engine:
    return Engine(threads=1, toolchain=Toolchain(Target.named(target)))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="runs code for x86-64")
@pytest.mark.parametrize("target", ["x86_64", "x86_64-avx2", "x86_64-avx512"])
def test_results_are_the_same(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Target.host().has(*Target.named(target).features):
        pytest.skip(f"this machine is no {target}")
    monkeypatch.setattr(harness, "engine", lambda: engine_for(target))
    cases = Cases(20)
    for x_type in (np.int8, np.uint8):
        cases.expect(
            requantised(
                cases, conv(cases, (1, 7, 9, 12), (24, 3, 3, 12), x_type, pads=(1, 1, 1, 1)), 24
            ),
            "conv",
            0,
        )
        cases.expect(
            requantised(
                cases,
                conv(cases, (1, 7, 20, 24), (24, 3, 3, 1), x_type, group=24, pads=(1, 1, 1, 1)),
                24,
            ),
            "depthwise",
            0,
        )
        cases.expect(
            requantised(
                cases,
                conv(cases, (1, 7, 9, 12), (37, 1, 1, 12), x_type, np.uint8, 3, 100),
                37,
                rounding="single",
            ),
            "sums",
            0,
        )
        b = cases.feed(codes(cases, 30, 21, dtype=x_type))
        cases.expect(
            cases.op(
                "MatMulInteger",
                cases.feed(codes(cases, 10, 30)),
                b,
                None,
                cases.feed(np.array(9, x_type)),
            ),
            "matmul",
            0,
        )
    wide = np.full((1, 1, 8, 64), 255, np.uint8)
    for weight in (127, -128):
        cases.expect(
            cases.op(
                "IntegerConv",
                cases.feed(wide),
                cases.const(np.full((16, 1, 1, 64), weight, np.int8)),
            ),
            "never saturates",
            0,
        )
    cases.check(peer=False)


def test_each_machine_has_its_own_instruction() -> None:
    for name in (
        "__builtin_ia32_vpdpbusd512",
        "__builtin_ia32_vpdpbusd256",
        "__builtin_ia32_pmaddwd256",
        "vusdotq_s32",
        "vdotq_s32",
    ):
        assert name in VECTORS


@pytest.mark.parametrize(
    ("target", "tile"),
    [("aarch64", NEON), ("aarch64-dotprod", NEON), ("aarch64-macos", NEON), ("x86_64-amx", AVX512)],
)
def test_code_is_made_for_other_machines(target: str, tile: Tile) -> None:
    cases = Cases(21)
    made = requantised(cases, conv(cases, (1, 4, 4, 12), (24, 3, 3, 12), pads=(1, 1, 1, 1)), 24)
    cases.expect(cases.op("LookUp", made, cases.const(codes(cases, 256))))
    cases.expect(
        requantised(
            cases, conv(cases, (1, 4, 4, 24), (24, 3, 3, 1), group=24), 24, rounding="single"
        )
    )
    cases.expect(
        cases.op(
            "MatMulInteger", cases.feed(codes(cases, 10, 30)), cases.feed(codes(cases, 30, 21))
        )
    )
    graph = cases.build.finish()
    kernels = [
        step.kernel
        for step in lower(fuse(graph, find_groups(graph, "dominator")), tile)
        if step.kernel is not None
    ]
    emitted = emit(kernels, [("case",)] * len(kernels))
    assert len(kernels) == 3
    assert not emitted.refused
    assert (
        Toolchain(Target.named(target)).build_library(emitted.units, link_libc=True).stat().st_size
    )

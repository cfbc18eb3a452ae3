from __future__ import annotations

import dataclasses
import os
import platform
import sys
from pathlib import Path

import pytest

from whence.codegen import target as module
from whence.codegen.target import KIB, MIB, Arch, Feature, System, Target, usable_cores
from whence.codegen.toolchain import Toolchain
from whence.errors import UnsupportedError

CPUINFO_X86 = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
flags\t\t: fpu sse2 avx2 fma f16c avx512f avx512dq avx512bw avx512vl avx512_vnni

processor\t: 1
flags\t\t: fpu
"""
CPUINFO_ARM = """processor\t: 0
Features\t: fp asimd aes asimdhp asimddp i8mm bf16
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


def test_host_is_this_machine() -> None:
    host = Target.host()
    assert host == Target.host()
    assert host.key() == Target.host().key()
    assert host.march == "native"
    assert host.lanes in (4, 8, 16)
    assert 1 <= host.cores <= (os.cpu_count() or 1)
    assert 8 * KIB <= host.l1d <= host.l2 <= 1024 * MIB
    assert Target.named("host") == host


def test_reads_an_x86_cpu(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO_X86)
    flags, cpu = module._linux_cpu(tmp_path / "cpuinfo")
    assert {"avx2", "avx512_vnni"} <= flags
    assert cpu == "vendor_id=GenuineIntel cpu family=6 model=85"


def test_reads_an_arm_cpu(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO_ARM)
    flags, cpu = module._linux_cpu(tmp_path / "cpuinfo")
    found = {feature for flag, feature in module._LINUX_FLAGS.items() if flag in flags}
    assert found == {
        Feature.NEON,
        Feature.NEON_FP16,
        Feature.NEON_DOT,
        Feature.NEON_I8MM,
        Feature.NEON_BF16,
    }
    assert cpu == "CPU implementer=0x41 CPU part=0xd40"


def test_reads_cache_sizes_and_has_defaults(tmp_path: Path) -> None:
    assert module._linux_caches(tmp_path) == (32 * KIB, 1 * MIB, 8 * MIB)
    for index, (level, kind, size) in enumerate(
        [
            (1, "Data", "48K"),
            (1, "Instruction", "64K"),
            (2, "Unified", "2M"),
            (3, "Unified", "what"),
        ]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", str(level)), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert module._linux_caches(tmp_path) == (48 * KIB, 2 * MIB, 8 * MIB)


def test_a_host_without_cpuinfo_is_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_linux_cpu", lambda: (frozenset(), ""))
    monkeypatch.setattr(module, "_host_system", lambda: System.LINUX)
    monkeypatch.setattr(module, "_host_arch", lambda: Arch.X86_64)
    plain = Target.host()
    assert plain.features == frozenset()
    assert plain.lanes == 4
    monkeypatch.setattr(module, "_host_arch", lambda: Arch.AARCH64)
    assert Target.host().has(Feature.NEON)


@pytest.mark.parametrize(
    ("name", "lanes", "registers"),
    [
        ("x86_64", 4, 16),
        ("x86_64-avx2", 8, 16),
        ("x86_64-avx512", 16, 32),
        ("x86_64-amx", 16, 32),
        ("aarch64", 4, 32),
        ("aarch64-macos", 4, 32),
    ],
)
def test_named(name: str, lanes: int, registers: int) -> None:
    named = Target.named(name)
    assert (named.lanes, named.vector_registers) == (lanes, registers)
    assert ("-mprefer-vector-width=512" in named.flags) == (lanes == 16)


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(
        UnsupportedError, match=r"no target named 'pdp11'; there are host, x86_64, x86_64-avx2"
    ):
        Target.named("pdp11")


def test_keys_tell_targets_apart() -> None:
    targets = [Target.named(name) for name in Target.names()]
    assert len({target.key() for target in targets}) == len(targets)
    host = Target.host()
    assert dataclasses.replace(host, cpu="another CPU").key() != host.key()
    # What the compiler does not see changes no code.
    assert dataclasses.replace(host, cores=64, l2=1).key() == host.key()


def test_another_cpu_of_the_same_features_is_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_host_system", lambda: System.LINUX)
    monkeypatch.setattr(module, "_linux_cpu", lambda: (frozenset({"avx2", "fma"}), "model=1"))
    first = Target.host().key()
    monkeypatch.setattr(module, "_linux_cpu", lambda: (frozenset({"avx2", "fma"}), "model=2"))
    assert Target.host().key() != first
    monkeypatch.setattr(
        module, "_linux_cpu", lambda: (frozenset({"avx2", "fma", "sse4a"}), "model=1")
    )
    assert Target.host().key() != first


def test_reads_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "machdep.cpu.brand_string": "Apple M2",
        "hw.optional.arm.FEAT_DotProd": "1",
        "hw.optional.arm.FEAT_BF16": "0",
        "hw.l1dcachesize": "65536",
    }
    monkeypatch.setattr(
        module, "_sysctl", lambda names: {name: said[name] for name in names if name in said}
    )
    monkeypatch.setattr(module, "_host_system", lambda: System.MACOS)
    monkeypatch.setattr(module, "_host_arch", lambda: Arch.AARCH64)
    mac = Target.host()
    assert mac.features == {Feature.NEON, Feature.NEON_DOT}
    assert (mac.l1d, mac.l2) == (64 * KIB, 1 * MIB)
    assert mac.flags == ("-target", "aarch64-macos", "-march=native")
    assert mac.library_suffix == ".dylib"


@pytest.mark.parametrize(
    ("machine", "system", "what"),
    [("riscv64", "linux", "'riscv64'"), ("x86_64", "win32", "'win32'")],
)
def test_other_machines_are_refused(
    monkeypatch: pytest.MonkeyPatch, machine: str, system: str, what: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "platform", system)
    with pytest.raises(UnsupportedError, match=what):
        Target.host()


def test_usable_cores_is_at_most_the_affinity() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.skipif(
    Target.host().arch is not Arch.X86_64 or Target.host().system is not System.LINUX,
    reason="narrows Linux on x86-64",
)
def test_the_environment_narrows_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Target.host()
    for name in ("", "host"):
        monkeypatch.setenv("WHENCE_TARGET", name)
        assert Target.default() == host
    monkeypatch.setenv("WHENCE_TARGET", "x86-64-v2")
    narrow = Target.default()
    assert narrow.features == frozenset()
    assert (narrow.march, narrow.lanes) == ("x86_64_v2", 4)
    assert (narrow.l1d, narrow.l2, narrow.l3) == (host.l1d, host.l2, host.l3)
    assert narrow.cores == host.cores
    assert narrow.key() != host.key()
    assert Toolchain().target == narrow


def test_the_environment_cannot_name_a_machine_that_this_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = "aarch64" if Target.host().arch is Arch.X86_64 else "x86-64-v3"
    monkeypatch.setenv("WHENCE_TARGET", other)
    with pytest.raises(UnsupportedError, match=f"WHENCE_TARGET is '{other}', whose code"):
        Target.default()
    monkeypatch.setenv("WHENCE_TARGET", "pdp11")
    with pytest.raises(UnsupportedError, match=r"no target named 'pdp11'; .*x86-64-v4"):
        Target.default()


def test_levels_of_x86_have_their_usual_names() -> None:
    assert Target.named("x86-64-v2") is Target.named("x86_64")
    assert Target.named("x86-64-v3").lanes == 8
    assert Target.named("x86-64-v4").lanes == 16
    assert Target.named("x86-64-v4").runs(Target.named("x86-64-v3"))
    assert not Target.named("x86-64-v3").runs(Target.named("x86-64-v4"))
    assert not Target.named("x86-64-v4").runs(Target.named("aarch64"))

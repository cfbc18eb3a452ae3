"""The machine that code is made for: its instructions, its vectors, its caches."""

from __future__ import annotations

import ctypes
import enum
import hashlib
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from whence.errors import UnsupportedError

KIB = 1024
MIB = 1024 * KIB


class Arch(enum.StrEnum):
    X86_64 = "x86_64"
    AARCH64 = "aarch64"
    RISCV64 = "riscv64"


class System(enum.StrEnum):
    LINUX = "linux"
    MACOS = "macos"


class Feature(enum.StrEnum):
    """Instruction sets that a kernel may choose its shape by."""

    AVX2 = "avx2"
    FMA = "fma"
    F16C = "f16c"
    AVX_VNNI = "avxvnni"
    AVX512F = "avx512f"
    AVX512BW = "avx512bw"
    AVX512VL = "avx512vl"
    AVX512DQ = "avx512dq"
    AVX512_VNNI = "avx512vnni"
    AVX512_BF16 = "avx512bf16"
    AVX512_FP16 = "avx512fp16"
    AMX_TILE = "amx-tile"
    AMX_INT8 = "amx-int8"
    AMX_BF16 = "amx-bf16"
    NEON = "neon"
    NEON_DOT = "dotprod"
    NEON_FP16 = "fullfp16"
    NEON_BF16 = "bf16"
    NEON_I8MM = "i8mm"


AVX512 = frozenset({Feature.AVX512F, Feature.AVX512BW, Feature.AVX512VL, Feature.AVX512DQ})
"""What every CPU has whose 512-bit vectors are worth using."""
AVX2 = frozenset({Feature.AVX2, Feature.FMA})
_MATRIX = frozenset({Feature.AMX_TILE, Feature.AMX_INT8, Feature.AMX_BF16})


@dataclass(frozen=True, slots=True)
class Target:
    """A machine to make code for. Two targets with the same `key()` can run each other's code."""

    arch: Arch
    system: System
    features: frozenset[Feature]
    march: str
    """The CPU as the compiler is told of it; `native` for the machine we are on."""
    cpu: str = ""
    """What tells this CPU from others where `march` does not (as with `native`)."""
    l1d: int = 32 * KIB
    """Bytes of first-level data cache per core."""
    l2: int = 1 * MIB
    l3: int = 8 * MIB
    cores: int = 1
    """Cores this process may use."""

    @classmethod
    def host(cls) -> Target:
        """The machine we are on."""
        arch, system = _host_arch(), _host_system()
        flags, cpu = _linux_cpu() if system is System.LINUX else _macos_cpu(arch)
        names = _LINUX_FLAGS if system is System.LINUX else _MACOS_FLAGS
        features = {feature for flag, feature in names.items() if flag in flags}
        if arch is Arch.AARCH64:
            features.add(Feature.NEON)  # part of the architecture
        if features & _MATRIX and not _may_use_matrix_tiles():
            features -= _MATRIX
        caches = _linux_caches() if system is System.LINUX else _macos_caches()
        digest = hashlib.sha256("\n".join([cpu, *sorted(flags)]).encode()).hexdigest()[:16]
        return cls(
            arch, system, frozenset(features), "native", digest, *caches, cores=usable_cores()
        )

    @classmethod
    def default(cls) -> Target:
        """The machine we are on, without what the target named in WHENCE_TARGET does not have: with
        `x86-64-v3` there, a CPU with AVX-512 is one with AVX2.
        """
        name, host = os.environ.get("WHENCE_TARGET", ""), cls.host()
        if name in ("", "host"):
            return host
        narrow = cls.named(name)
        if not host.runs(narrow):
            lacks = ", ".join(sorted(narrow.features - host.features)) or narrow.triple
            raise UnsupportedError(
                f"WHENCE_TARGET is '{name}', whose code this machine ({host.triple}) does not run:"
                f" it lacks {lacks}"
            )
        return replace(narrow, l1d=host.l1d, l2=host.l2, l3=host.l3, cores=host.cores)

    @classmethod
    def named(cls, name: str) -> Target:
        """A machine by name, to make code for elsewhere; `host` is this one. `Target.names()` lists
        them.
        """
        if name == "host":
            return cls.host()
        try:
            return _NAMED[_ALIASES.get(name, name)]
        except KeyError:
            raise UnsupportedError(
                f"no target named '{name}'; there are {', '.join((*cls.names(), *_ALIASES))}"
            ) from None

    @staticmethod
    def names() -> tuple[str, ...]:
        return ("host", *_NAMED)

    def precise(self) -> Target:
        """The same machine without its matrix units, whose float32 products are rounded earlier
        (see `kernels/bf16x2.py`).
        """
        return replace(self, features=self.features - _MATRIX)

    def has(self, *features: Feature) -> bool:
        """Whether it has all of them."""
        return self.features.issuperset(features)

    def runs(self, other: Target) -> bool:
        """Can this machine execute code made for the other one?"""
        same = (self.arch, self.system) == (other.arch, other.system)
        return same and self.has(*other.features)

    @property
    def lanes(self) -> int:
        """float32 values in one vector register."""
        return 16 if self.features >= AVX512 else 8 if self.features >= AVX2 else 4

    @property
    def vector_registers(self) -> int:
        return 32 if self.arch is not Arch.X86_64 or self.features >= AVX512 else 16

    @property
    def triple(self) -> str:
        """The platform in the compiler's words. Linux code asks for a glibc that every distribution
        in use has.
        """
        if self.system is System.MACOS:
            return f"{self.arch}-macos"
        # The first that RISC-V has at all.
        version = "2.27" if self.arch is Arch.RISCV64 else "2.17"
        return f"{self.arch}-linux-gnu.{version}"

    @property
    def flags(self) -> tuple[str, ...]:
        """The compiler's flags for this machine."""
        width = ("-mprefer-vector-width=512",) if self.lanes == 16 else ()
        return ("-target", self.triple, f"-march={self.march}", *width)

    @property
    def library_suffix(self) -> str:
        return ".so" if self.system is System.LINUX else ".dylib"

    def key(self) -> str:
        """A string that is the same exactly where the compiler makes the same code."""
        return "/".join([self.triple, self.march, self.cpu, ",".join(sorted(self.features))])


def usable_cores() -> int:
    """Cores this process may keep busy: its affinity, and the quota of its control group."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min([cores, *_quotas(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))]))


def _quotas(membership: Path, root: Path) -> Iterator[int]:
    """Cores that the process's control group allows, and each of those above it; a container may
    see only its own, as the root. Both versions of control groups. As in whence_cores.c.
    """
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, folder = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            tree, files = root, ["cpu.max"]
        elif "cpu" in controllers.split(","):
            tree, files = root / "cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        parts = Path(folder).parts[1:]
        for depth in range(len(parts), -1, -1):
            group = tree.joinpath(*parts[:depth])
            try:
                words = [group.joinpath(name).read_text(encoding="ascii") for name in files]
                quota, period = map(int, " ".join(words).split())
            except (OSError, ValueError):  # no such control group, or "max"
                continue
            if quota > 0 and period > 0:
                yield -(-quota // period)


def _host_arch() -> Arch:
    machine = platform.machine().lower()
    found = {
        "x86_64": Arch.X86_64,
        "amd64": Arch.X86_64,
        "aarch64": Arch.AARCH64,
        "arm64": Arch.AARCH64,
    }.get(machine)
    if found is None:
        raise UnsupportedError(
            f"whence makes native code for x86_64 and aarch64, and this machine is '{machine}'"
        )
    return found


def _host_system() -> System:
    if sys.platform.startswith("linux"):
        return System.LINUX
    if sys.platform == "darwin":
        return System.MACOS
    raise UnsupportedError(
        f"whence makes native code for Linux and macOS, and this is '{sys.platform}'"
    )


# ---- Linux ----

_LINUX_FLAGS: Mapping[str, Feature] = {
    # Of x86 in lower case as here, of ARM by names of their own.
    **{each.name.lower(): each for each in Feature if not each.name.startswith("NEON")},
    "asimd": Feature.NEON,
    "asimddp": Feature.NEON_DOT,
    "asimdhp": Feature.NEON_FP16,
    "bf16": Feature.NEON_BF16,
    "i8mm": Feature.NEON_I8MM,
}
# arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA), by number: the C library has no function for
# it.
_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA = 158, 0x1023, 18
_CPU_NAMES = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part", "CPU variant")


CPU_INFO = Path("/proc/cpuinfo")


def cpu_info(path: Path = CPU_INFO) -> str:
    """What Linux says of its processors; nothing where nobody says it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _linux_cpu(path: Path = CPU_INFO) -> tuple[frozenset[str], str]:
    """The flags of the first CPU, and what it calls itself."""
    flags: frozenset[str] = frozenset()
    identity = []
    for line in cpu_info(path).split("\n\n")[0].splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name in ("flags", "Features"):
            flags = frozenset(value.split())
        elif name in _CPU_NAMES:
            identity.append(f"{name}={value}")
    return flags, " ".join(identity)


def _may_use_matrix_tiles() -> bool:
    """Does the system let this process use the matrix units' registers? It must be asked; that the
    CPU has them is not enough.
    """
    refused: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA)
    return refused == 0


def _linux_caches(cpu: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> tuple[int, int, int]:
    sizes = [32 * KIB, 1 * MIB, 8 * MIB]
    for folder in sorted(cpu.glob("index*")):
        try:
            level, kind, size = (
                (folder / part).read_text(encoding="ascii").strip()
                for part in ("level", "type", "size")
            )
            if kind in ("Data", "Unified"):
                sizes[int(level) - 1] = _size(size) or sizes[int(level) - 1]
        except (OSError, ValueError, IndexError):
            continue
    return sizes[0], sizes[1], sizes[2]


def _size(text: str) -> int:
    unit = {"K": KIB, "M": MIB, "G": KIB * MIB}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit


# ---- macOS ----

_MACOS_FLAGS: Mapping[str, Feature] = {
    **{each.upper(): each for each in (*AVX2, *AVX512, Feature.F16C, Feature.AVX512_VNNI)},
    "hw.optional.arm.FEAT_DotProd": Feature.NEON_DOT,
    "hw.optional.arm.FEAT_FP16": Feature.NEON_FP16,
    "hw.optional.arm.FEAT_BF16": Feature.NEON_BF16,
    "hw.optional.arm.FEAT_I8MM": Feature.NEON_I8MM,
}


def _sysctl(names: Iterable[str]) -> dict[str, str]:
    """What the system says of each name it knows."""
    import subprocess

    try:
        run = subprocess.run(
            ["/usr/sbin/sysctl", *names], capture_output=True, text=True, check=False
        )
    except OSError:
        return {}
    return dict(line.split(": ", 1) for line in run.stdout.splitlines() if ": " in line)


def _macos_cpu(arch: Arch) -> tuple[frozenset[str], str]:
    brand = "machdep.cpu.brand_string"
    if arch is Arch.X86_64:
        said = _sysctl(["machdep.cpu.features", "machdep.cpu.leaf7_features", brand])
        return frozenset(
            word for name, value in said.items() if name != brand for word in value.split()
        ), said.get(brand, "")
    said = _sysctl([name for name in _MACOS_FLAGS if name.startswith("hw.")] + [brand])
    return frozenset(name for name, value in said.items() if value == "1"), said.get(brand, "")


def _macos_caches() -> tuple[int, int, int]:
    said = _sysctl(["hw.l1dcachesize", "hw.l2cachesize", "hw.l3cachesize"])
    first, second, third = (
        int(said.get(f"hw.{name}cachesize", "0")) for name in ("l1d", "l2", "l3")
    )
    return first or 32 * KIB, second or 1 * MIB, third or 8 * MIB


# ---- by name ----


def _x86(
    march: str, features: frozenset[Feature], l1d: int = 32 * KIB, l2: int = 1 * MIB
) -> Target:
    return Target(Arch.X86_64, System.LINUX, features, march, l1d=l1d, l2=l2)


_NEON = frozenset({Feature.NEON})
_AVX512_ALL = AVX2 | AVX512 | {Feature.F16C}
_AMX = _AVX512_ALL | {
    Feature.AVX_VNNI,
    Feature.AVX512_VNNI,
    Feature.AVX512_BF16,
    Feature.AVX512_FP16,
    Feature.AMX_TILE,
    Feature.AMX_INT8,
    Feature.AMX_BF16,
}
_NAMED: Mapping[str, Target] = {
    "x86_64": _x86("x86_64_v2", frozenset()),
    "x86_64-avx2": _x86("x86_64_v3", AVX2 | {Feature.F16C}),
    "x86_64-avx512": _x86("x86_64_v4", _AVX512_ALL),
    "x86_64-avx512vnni": _x86(
        "x86_64_v4+avx512vnni", _AVX512_ALL | {Feature.AVX512_VNNI}, l1d=48 * KIB
    ),
    "x86_64-amx": _x86("sapphirerapids", _AMX, l1d=48 * KIB, l2=2 * MIB),
    "aarch64": Target(Arch.AARCH64, System.LINUX, _NEON, "generic"),
    "aarch64-dotprod": Target(
        Arch.AARCH64,
        System.LINUX,
        _NEON | {Feature.NEON_DOT, Feature.NEON_FP16},
        "generic+dotprod+fullfp16",
        l1d=64 * KIB,
    ),
    "aarch64-macos": Target(
        Arch.AARCH64,
        System.MACOS,
        _NEON | {Feature.NEON_DOT, Feature.NEON_FP16},
        "apple_m1",
        l1d=64 * KIB,
        l2=4 * MIB,
    ),
    "riscv64": Target(Arch.RISCV64, System.LINUX, frozenset(), "baseline_rv64"),
}
# The levels of the x86-64 psABI, by the names that compilers and distributions use.
_ALIASES: Mapping[str, str] = {
    "x86-64-v2": "x86_64",
    "x86-64-v3": "x86_64-avx2",
    "x86-64-v4": "x86_64-avx512",
}

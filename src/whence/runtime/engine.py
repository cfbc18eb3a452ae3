"""Engines: what a model runs on."""

from __future__ import annotations

import enum
import weakref
from dataclasses import dataclass, field

from whence.codegen.target import Target, usable_cores
from whence.codegen.toolchain import Toolchain
from whence.errors import InputError, UnsupportedError
from whence.runtime.native_library import NativeRuntime


class EngineKind(enum.StrEnum):
    CPU = "cpu"


@dataclass(eq=False)
class Engine:
    """A device and the threads to use on it. Models compiled for an engine share its thread pool."""

    kind: str = "cpu"
    index: int = 0
    threads: int = 0
    """0 uses every core the process may use. Afterwards: how many there are, the caller of a run among them."""
    toolchain: Toolchain = field(default_factory=Toolchain, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in set(EngineKind):
            raise UnsupportedError(f"there is no engine '{self.kind}'; there is {', '.join(EngineKind)}")
        if self.index != 0:
            raise InputError(f"engine {self.kind} has index 0 only, not {self.index}")
        if self.threads < 0:
            raise InputError(f"{self.threads} threads make no sense; 0 uses every core")
        self.runtime = NativeRuntime(self.toolchain)
        self.pool = self.runtime.create_pool(self.threads or usable_cores())
        self.threads = self.runtime.pool_threads(self.pool)
        # At exit a run may still be on its way, and the system takes the threads back by itself.
        weakref.finalize(self, self.runtime.destroy_pool, self.pool).atexit = False

    @property
    def target(self) -> Target:
        return self.toolchain.target

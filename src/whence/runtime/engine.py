"""Engines: what a model runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.errors import InputError
from whence.plural import counted
from whence.runtime.registry import find_backend

if TYPE_CHECKING:
    from whence.building.backend import Backend
    from whence.codegen.toolchain import Toolchain

_DEFAULTS = {"threads": 0, "toolchain": None, "precise": False}


class Engine:
    """A device that models are compiled for and run on: `Engine()` is this machine's processor,
    `Engine("opencl", 0)` its first OpenCL device; `whence devices` lists all.

    `threads` 0 is as many as turn out to be fastest, up to one for every core. `precise` leaves out
    matrix units, which make float32 products of bfloat16 ones: faster, and less exact. They are not
    used either for a model whose outputs would show it (see `backends/cpu/reduced_precision.py`).

        >>> model = whence.compile("model.onnx", engine=whence.Engine(threads=1))
        >>> model.engine
        <Engine cpu:0, 1 thread>
    """

    def __init__(
        self,
        kind: str = "cpu",
        index: int = 0,
        threads: int = 0,
        toolchain: Toolchain | None = None,
        *,
        precise: bool = False,
    ) -> None:
        backend = find_backend(kind)
        given: dict[str, Any] = {"threads": threads, "toolchain": toolchain, "precise": precise}
        options = {name: value for name, value in given.items() if value != _DEFAULTS[name]}
        for name in options:
            if name not in backend.options:
                raise InputError(f"the {kind} engine takes no {name}")
        self.backend = backend(index, **options)

    @classmethod
    def of(cls, backend: Backend) -> Engine:
        """An engine on a device that is open already."""
        engine = cls.__new__(cls)
        engine.backend = backend
        return engine

    @property
    def kind(self) -> str:
        """What runs models: `cpu`, `opencl`, or the name of a plugin's backend."""
        return self.backend.kind

    @property
    def index(self) -> int:
        """Which of the devices of its kind."""
        return self.backend.index

    @property
    def threads(self) -> int:
        """How many of the device's cores work on a model."""
        return self.backend.threads

    def __repr__(self) -> str:
        threads = counted(self.threads, "thread")
        return f"<Engine {self.kind}:{self.index}, {threads}>"

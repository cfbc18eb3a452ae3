"""LiteRT with its profiler, which only its C interface has (`litert/c/litert_profiler.h`): events
of operators, and of those that the XNNPACK delegate makes of them.
"""

from __future__ import annotations

import ctypes
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import ai_edge_litert
import numpy as np

FILE = "litert.json"
_CPU = 1
_READ, _WRITE = 0, 1
_POINTER = ctypes.c_void_p
_DELETER = ctypes.CFUNCTYPE(None, _POINTER)
_TYPE_BYTES = 256
"""More than a tensor's type takes."""


class _Event(ctypes.Structure):
    _fields_ = (
        ("tag", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("begin_us", ctypes.c_uint64),
        ("elapsed_us", ctypes.c_uint64),
        ("memory_before", ctypes.c_int64 * 3),
        ("memory_after", ctypes.c_int64 * 3),
        ("operator", ctypes.c_uint64),
        ("subgraph", ctypes.c_uint64),
        ("source", ctypes.c_int),
    )


def load(model: Path, threads: int, inputs: dict[str, np.ndarray], folder: Path) -> LiteRtSession:
    return LiteRtSession(model, threads, inputs)


class LiteRtSession:
    def __init__(self, model: Path, threads: int, inputs: dict[str, np.ndarray]) -> None:
        self.version = metadata.version("ai-edge-litert")
        library = _Library()
        self._plain = _Compiled(library, model, threads, inputs, profiled=False)
        self._profiled = _Compiled(library, model, threads, inputs, profiled=True)
        self._runs: list[list[tuple[str, int, int, int, int]]] = []

    def run(self, *, counts: bool) -> None:
        self._plain.run()

    def run_profiled(self, *, counts: bool) -> None:
        self._profiled.run()

    def note(self) -> None:
        self._runs.append(self._profiled.events())

    def finish(self, folder: Path, warmup: int) -> None:
        content = {"runs": self._runs[warmup:]}
        (folder / FILE).write_text(json.dumps(content), encoding="utf-8")


class _Library:
    """The functions of libLiteRt.so, each of which returns a status."""

    def __init__(self) -> None:
        place = Path(ai_edge_litert.__file__).with_name("libLiteRt.so")
        self._library = ctypes.CDLL(str(place))
        self.environment = _POINTER()
        self("LiteRtCreateEnvironment", ctypes.c_int(0), None, ctypes.byref(self.environment))

    def __call__(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name)
        function.restype = ctypes.c_int
        status = function(*arguments)
        if status:
            raise RuntimeError(f"{name} failed with status {status}")

    def make(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """What a function that makes an object puts behind its last argument."""
        made = _POINTER()
        self(name, *arguments, ctypes.byref(made))
        return made

    def count(self, name: str, of: ctypes.c_void_p) -> int:
        found = ctypes.c_size_t()
        self(name, of, ctypes.byref(found))
        return found.value


class _Compiled:
    def __init__(
        self,
        library: _Library,
        path: Path,
        threads: int,
        inputs: dict[str, np.ndarray],
        *,
        profiled: bool,
    ) -> None:
        self._library = library
        environment = library.environment
        model = library.make(
            "LiteRtCreateModelFromFile", environment, ctypes.c_char_p(str(path).encode())
        )
        options = library.make("LiteRtCreateOptions")
        library("LiteRtSetOptionsHardwareAccelerators", options, ctypes.c_int(_CPU))
        # Options travel as text; LiteRT keeps the pointers, so the text has to stay.
        self._kept: list[Any] = []
        self._add(options, b"runtime_options_string", f"enable_profiling = {str(profiled).lower()}")
        self._add(options, b"cpu_options_string", f"num_threads = {threads}")
        self._compiled = library.make("LiteRtCreateCompiledModel", environment, model, options)
        signature = library.make("LiteRtGetModelSignature", model, ctypes.c_size_t(0))
        self._inputs, names = self._buffers(signature, "Input")
        self._outputs, _ = self._buffers(signature, "Output")
        values = list(inputs.values())
        for position, (buffer, name) in enumerate(zip(self._inputs, names, strict=True)):
            self._write(buffer, inputs[name] if name in inputs else values[position])
        self._profiler = _POINTER()
        if profiled:
            self._profiler = library.make("LiteRtCompiledModelGetProfiler", self._compiled)
            library("LiteRtStartProfiler", self._profiler)

    def run(self) -> None:
        self._library(
            "LiteRtRunCompiledModel",
            self._compiled,
            ctypes.c_size_t(0),
            ctypes.c_size_t(len(self._inputs)),
            self._inputs,
            ctypes.c_size_t(len(self._outputs)),
            self._outputs,
        )

    def events(self) -> list[tuple[str, int, int, int, int]]:
        """Since the last call: name, kind, microseconds, number of the operator and of its
        subgraph.
        """
        count = ctypes.c_int()
        self._library("LiteRtGetNumProfilerEvents", self._profiler, ctypes.byref(count))
        found = (_Event * count.value)()
        self._library("LiteRtGetProfilerEvents", self._profiler, count, found)
        rows = [
            (
                (each.tag or b"").decode(errors="replace"),
                int(each.kind),
                int(each.elapsed_us),
                int(each.operator),
                int(each.subgraph),
            )
            for each in found
        ]
        self._library("LiteRtResetProfiler", self._profiler)
        self._library("LiteRtStartProfiler", self._profiler)
        return rows

    def _add(self, options: ctypes.c_void_p, identifier: bytes, text: str) -> None:
        payload = ctypes.create_string_buffer(text.encode())
        deleter = _DELETER(lambda _: None)
        self._kept += [payload, deleter]
        made = self._library.make(
            "LiteRtCreateOpaqueOptions",
            ctypes.c_char_p(identifier),
            ctypes.cast(payload, _POINTER),
            deleter,
        )
        self._library("LiteRtAddOpaqueOptions", options, made)

    def _buffers(self, signature: ctypes.c_void_p, kind: str) -> tuple[Any, list[str]]:
        library = self._library
        count = library.count(f"LiteRtGetNumSignature{kind}s", signature)
        buffers, names = [], []
        for index in map(ctypes.c_size_t, range(count)):
            tensor = library.make(f"LiteRtGetSignature{kind}TensorByIndex", signature, index)
            name = ctypes.c_char_p()
            library("LiteRtGetTensorName", tensor, ctypes.byref(name))
            ranked = ctypes.create_string_buffer(_TYPE_BYTES)
            library("LiteRtGetRankedTensorType", tensor, ranked)
            self._check_static(ranked, (name.value or b"").decode(errors="replace"))
            needs = library.make(
                f"LiteRtGetCompiledModel{kind}BufferRequirements",
                self._compiled,
                ctypes.c_size_t(0),
                index,
            )
            made = library.make(
                "LiteRtCreateManagedTensorBufferFromRequirements",
                library.environment,
                ranked,
                needs,
            )
            buffers.append(made.value)
            names.append((name.value or b"").decode(errors="replace"))
        return (_POINTER * count)(*buffers), names

    def _check_static(self, ranked: Any, name: str) -> None:
        # The element's type, the rank in the low bits of a word, the dimensions.
        words = np.frombuffer(ranked, np.int32)
        rank = int(words[1]) & 127
        if (words[2 : 2 + rank] < 0).any():
            raise RuntimeError(f"tensor '{name}' has open dimensions; profiling needs static ones")

    def _write(self, buffer: Any, value: np.ndarray) -> None:
        size = ctypes.c_size_t()
        self._library("LiteRtGetTensorBufferSize", _POINTER(buffer), ctypes.byref(size))
        data = np.ascontiguousarray(value).tobytes()
        if len(data) > size.value:
            raise RuntimeError(f"an input of {size.value} bytes is given {len(data)}")
        place = _POINTER()
        self._library(
            "LiteRtLockTensorBuffer", _POINTER(buffer), ctypes.byref(place), ctypes.c_int(_WRITE)
        )
        assert place.value is not None
        ctypes.memmove(place.value, data, len(data))
        self._library("LiteRtUnlockTensorBuffer", _POINTER(buffer))

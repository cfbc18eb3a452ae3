"""Engines and streams on the application's own OpenCL objects."""

from __future__ import annotations

from typing import Any

from whence.backends.opencl.backend import OpenClBackend
from whence.backends.opencl.devices import find_devices, require_pyopencl
from whence.errors import InputError
from whence.runtime.engine import Engine
from whence.runtime.stream import Stream, StreamFlags, check_stream


def make_engine(context: Any, device: Any = None) -> Engine:
    """An engine on the application's context, so that its queues and ours can use the same memory.
    Without `device`, the context's first.
    """
    cl = require_pyopencl()
    if not isinstance(context, cl.Context):
        raise InputError(f"an engine is made on a pyopencl.Context, not {type(context).__name__}")
    device = device if device is not None else context.devices[0]
    if not isinstance(device, cl.Device):
        raise InputError(f"an engine is made on a pyopencl.Device, not {type(device).__name__}")
    for index, found in enumerate(find_devices()):
        if found == device:
            return Engine.of(OpenClBackend(index, context=context))
    raise InputError(f"'{device.name}' is not among the OpenCL devices of this machine")


def get_context(engine: Engine) -> Any:
    """The OpenCL context of an engine, to make queues and buffers in: `pyopencl.Context`."""
    return _opencl(engine).context


def get_device(engine: Engine) -> Any:
    """The OpenCL device of an engine: `pyopencl.Device`."""
    return _opencl(engine).device


def get_command_queue(stream: Stream) -> Any:
    """The OpenCL queue that the runs of a stream go to: `pyopencl.CommandQueue`."""
    check_stream(stream)
    _opencl(stream.engine)
    return stream.queue


def _opencl(
    engine: Engine, what: str = "only an opencl engine has OpenCL objects"
) -> OpenClBackend:
    backend = engine.backend if isinstance(engine, Engine) else engine
    if not isinstance(backend, OpenClBackend):
        kind = getattr(engine, "kind", type(engine).__name__)
        raise InputError(f"{what}, not {kind}")
    return backend


def make_stream(engine: Engine, queue: Any) -> Stream:
    """A stream whose runs go to the application's queue. It profiles if the queue does."""
    cl = require_pyopencl()
    backend = _opencl(engine, "a stream on an OpenCL queue needs an opencl engine")
    if not isinstance(queue, cl.CommandQueue):
        raise InputError(f"a stream is made on a pyopencl.CommandQueue, not {type(queue).__name__}")
    if queue.context != backend.context or queue.device != backend.device:
        raise InputError(
            "the queue is on another context or device than the engine: make the engine with"
            " whence.interop.opencl.make_engine(context)"
        )
    flags = StreamFlags.IN_ORDER
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        flags = StreamFlags.OUT_OF_ORDER
    if queue.properties & cl.command_queue_properties.PROFILING_ENABLE:
        flags |= StreamFlags.PROFILING
    return Stream(engine, flags, queue=queue)

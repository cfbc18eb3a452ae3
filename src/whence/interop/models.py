"""Models of other libraries, given as objects: their graphs, and what their compiled form is called
with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from whence.errors import InputError
from whence.frontends.registry import is_exported_program, is_torch_module, read_object
from whence.graph import Graph
from whence.runtime.executable import Executable
from whence.types import Dim


class ModelObject(NamedTuple):
    graph: Graph
    finish: Callable[[Executable], Executable]
    """The compiled graph as callers want it: a module of PyTorch takes and gives tensors."""


def from_object(
    model: Any,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
) -> ModelObject:
    is_module = is_torch_module(model)
    if not is_module and any(each is not None for each in (args, kwargs, dynamic_shapes)):
        raise InputError(
            "example inputs and dynamic_shapes are for a module of PyTorch; any other model says"
            " itself what it takes (shapes= fixes the shapes it leaves open)"
        )
    if not is_module and not is_exported_program(model):
        graph = model if isinstance(model, Graph) else read_object(model, shapes)
        return ModelObject(graph, lambda compiled: compiled)
    from whence.frontends.torch.exported import dimension_names, export_module, read_exported
    from whence.interop.torch.executable import TorchExecutable

    program, names = model, {}
    if is_module:
        if args is None and kwargs is None:
            raise InputError(
                "a module of PyTorch is compiled with example inputs: whence.compile(module, (x,))"
            )
        program = export_module(model, args or (), kwargs, dynamic_shapes)
        names = dimension_names(program, dynamic_shapes)
    name = type(model).__name__ if is_module else ""
    graph = read_exported(program, name=name, dimensions=names)
    return ModelObject(graph, lambda compiled: TorchExecutable.of(compiled, program))

"""whence as a backend of `torch.compile`, by the entry point `torch_dynamo_backends`:

model = torch.compile(module, backend="whence")
with torch.no_grad():
    y = model(x)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whence.api import compile_model
from whence.errors import InputError
from whence.graph import Graph
from whence.interop.torch.dynamo import compile_graph_module
from whence.runtime.executable import Executable

if TYPE_CHECKING:
    from torch.fx import GraphModule

OPTIONS = ("threads", "tune", "precise", "engine")


def compile_fx(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    **others: Any,
) -> Callable[..., Any]:
    """Compile one graph of `torch.compile`. `options` are those of `whence.compile`: threads, tune,
    precise, engine.
    """
    given = dict(options or {})
    unknown = [name for name in given if name not in OPTIONS]
    unknown += [name for name, value in others.items() if value is not None]
    if unknown:
        raise InputError(
            f"backend 'whence' has no option {unknown[0]!r}; it takes {', '.join(OPTIONS)}"
        )

    def compile_graph(graph: Graph) -> Executable:
        return compile_model(graph, **given)

    return compile_graph_module(module, example_inputs, compile_graph)

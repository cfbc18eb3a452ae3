"""The graphs of `torch.compile`, compiled by whence.

PyTorch cuts a module's code into graphs without Python in them, and hands each to the backend with
its parameters as inputs. AOTAutograd makes it a graph of ATen operators without effects, and sees
to effects on arguments, aliases and views itself; a graph that has none is called without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from whence.errors import InputError
from whence.frontends.naming import UniqueNames
from whence.frontends.program_place import line_of
from whence.frontends.torch.exported import decompositions
from whence.frontends.torch.sources import dotted
from whence.interop.torch.compiled_graph import CompiledGraph, CompileGraph
from whence.interop.torch.effects import input_positions, is_free_of_effects, written_inputs

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph
    from torch.fx import GraphModule


def compile_graph_module(
    module: GraphModule, example_inputs: Sequence[Any], compile_graph: CompileGraph
) -> Callable[..., Any]:
    """What a backend of `torch.compile` returns: a function of the graph's inputs."""
    from torch._functorch.aot_autograd import aot_module_simplified

    names = _input_names(module)
    _refuse_training(names, example_inputs)
    traced, why = module.graph, _ending(module)
    called_directly: list[CompiledGraph] = []

    def compiler(lowered: GraphModule, _: Sequence[Any]) -> CompiledGraph:
        graph = lowered.graph
        made = CompiledGraph(
            _graph_name(traced),
            traced,
            graph,
            _names_of_inputs(graph, names),
            _constants(graph, example_inputs),
            why,
            compile_graph,
        )
        if is_free_of_effects(graph, example_inputs):
            called_directly.append(made)
        return made

    wrapped = aot_module_simplified(
        module,
        example_inputs,
        fw_compiler=compiler,
        decompositions=dict(decompositions().items()),
    )
    return called_directly[0].run if called_directly else wrapped


def _input_names(module: GraphModule) -> list[str]:
    """What the user calls the inputs of a graph of `torch.compile`: `x`,
    `layer1.0.conv1.weight`.
    """
    names = UniqueNames()
    found = []
    for node in module.graph.nodes:
        if node.op != "placeholder":
            continue
        source = getattr(node, "_dynamo_source", None)
        wanted = dotted(_text(source.name)) if source is not None else ""
        found.append(names.take(wanted or node.name))
    return found


def _text(name: Any) -> str:
    """A source's name is a property in some versions of PyTorch, and a method in others."""
    return str(name() if callable(name) else name)


def _names_of_inputs(lowered: FxGraph, names: Sequence[str]) -> list[str]:
    """Of the lowered graph, as the user calls them."""
    nodes = [node.name for node in lowered.find_nodes(op="placeholder")]
    return [
        node if index is None else names[index]
        for node, index in zip(nodes, input_positions(lowered), strict=True)
    ]


def _constants(lowered: FxGraph, example_inputs: Sequence[Any]) -> list[int]:
    """The inputs of the lowered graph that are parameters and buffers of modules, which it does not
    write to.
    """
    import torch

    written = written_inputs(lowered)
    return [
        position
        for position, index in enumerate(input_positions(lowered))
        if index is not None
        and index not in written
        and (
            isinstance(each := example_inputs[index], torch.nn.Parameter)
            or getattr(each, "_dynamo_static_input_type", None) is not None
        )
    ]


def _refuse_training(names: Sequence[str], example_inputs: Sequence[Any]) -> None:
    import torch

    if not torch.is_grad_enabled():
        return
    wanting = [
        name
        for name, each in zip(names, example_inputs, strict=True)
        if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    if wanting:
        few = ", ".join(wanting[:3]) + (", ..." if len(wanting) > 3 else "")
        raise InputError(
            f"whence runs inference, and this call would record gradients of {few}: call the"
            " module under torch.no_grad() or torch.inference_mode(), and train with another"
            " backend"
        )


def _ending(module: GraphModule) -> str:
    """Why PyTorch ended the graph where it did, where that is a graph break."""
    reason = getattr(module, "compile_subgraph_reason", None)
    if reason is None or not getattr(reason, "graph_break", False):
        return ""
    frames = "".join(
        f'File "{frame.filename}", line {frame.lineno}\n' for frame in reason.user_stack
    )
    text = next((line.strip() for line in str(reason.reason).splitlines() if line.strip()), "")
    return f"{line_of(frames) or 'unknown line'}: {text}"


def _graph_name(graph: FxGraph) -> str:
    """The line that a graph begins at."""
    for node in graph.nodes:
        if node.op != "placeholder" and (line := line_of(node.meta.get("stack_trace") or "")):
            return f"torch.compile, from {line}"
    return "torch.compile"

"""The graphs of `torch.compile`, compiled by whence.

PyTorch cuts a module's code into graphs without Python in them, and hands each to the backend with
its parameters as inputs. AOTAutograd makes it a graph of ATen operators without effects, and sees
to effects on arguments, aliases and views itself.

Parameters become constants, so that kernels are made for them: read from PyTorch's memory, and
packed once. A parameter that was written to since, or another one in its place, is noticed by its
address and version, and the graph compiled anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.errors import InputError
from whence.frontends.program_place import line_of
from whence.frontends.torch.dynamo import input_names, trace_graph
from whence.frontends.torch.exported import decompositions
from whence.frontends.torch.reader import read_program
from whence.frontends.torch.tensors import array_of, tensor_of
from whence.graph import Graph
from whence.interop.torch.recording import GraphRun, present_recording
from whence.runtime.executable import Executable

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph
    from torch.fx import GraphModule

CompileGraph = Callable[[Graph], Executable]


def compile_graph_module(
    module: GraphModule, example_inputs: Sequence[Any], compile_graph: CompileGraph
) -> Callable[..., Any]:
    """What a backend of `torch.compile` returns: a function of the graph's inputs."""
    from torch._functorch.aot_autograd import aot_module_simplified

    names = input_names(module)
    _refuse_training(names, example_inputs)
    traced, why = module.graph, _ending(module)

    def compiler(lowered: GraphModule, _: Sequence[Any]) -> CompiledGraph:
        return CompiledGraph(
            traced, lowered.graph, names, _constants(example_inputs), why, compile_graph
        )

    return aot_module_simplified(  # type: ignore[no-any-return]
        module, example_inputs, fw_compiler=compiler, decompositions=_table()
    )


class CompiledGraph:
    """Runs one graph. The arguments come in a list, which it empties, so that PyTorch's memory is
    free as early as can be.
    """

    _boxed_call = True

    def __init__(
        self,
        traced: FxGraph,
        lowered: FxGraph,
        names: Sequence[str],
        constants: frozenset[int],
        ended_by: str,
        compile_graph: CompileGraph,
    ) -> None:
        self._traced, self._lowered, self._names = traced, lowered, tuple(names)
        self._ended_by, self._compile_graph = ended_by, compile_graph
        written = _written(lowered)
        self._constants = sorted(constants - written)
        self._given = [index for index in range(len(names)) if index not in self._constants]
        self._compiled: dict[tuple[int, ...], tuple[list[int], _Compiled]] = {}
        self._last: tuple[list[int], list[int], _Compiled] | None = None
        """Addresses and versions of the parameters of the last call, and what ran it."""
        output = next(node for node in lowered.nodes if node.op == "output")
        self._results = list(output.args[0])
        self._n_made = sum(hasattr(result, "meta") for result in self._results)

    def __call__(self, args: list[Any]) -> list[Any]:
        parameters = [args[index] for index in self._constants]
        where, versions = _addresses(parameters), _versions(parameters)
        last = self._last
        if last is not None and last[0] == where and last[1] == versions:
            compiled = last[2]
        else:
            compiled = self._find(where, versions, args)
        inputs = [_array(args[index]) for index in compiled.inputs]
        args.clear()
        began = time.monotonic_ns()
        outputs = compiled.executable(*inputs)
        if (record := present_recording()) is not None:
            record.graph_ns += time.monotonic_ns() - began
            if record.keeps_inputs:
                record.runs.append(self._run(compiled, inputs, where))
        return self._as_torch([outputs] if self._n_made == 1 else outputs)

    def _find(self, where: list[int], versions: list[int], args: Sequence[Any]) -> _Compiled:
        """What was compiled for these parameters, or is now."""
        found = self._compiled.get(tuple(where))
        if found is None or found[0] != versions:
            found = versions, self._compile(args)
            self._compiled[tuple(where)] = found
        self._last = where, versions, found[1]
        return found[1]

    def _run(self, compiled: _Compiled, inputs: Sequence[Any], where: Sequence[int]) -> GraphRun:
        """What was run; inputs are copied, as the program may write to them afterwards."""
        names = [self._names[index] for index in self._constants]
        return GraphRun(
            compiled.executable,
            tuple(value.copy() for value in inputs),
            self._ended_by,
            tuple(zip(names, where, strict=True)),
        )

    def _compile(self, args: Sequence[Any]) -> _Compiled:
        parameters = {index: args[index] for index in self._constants}
        name = _graph_name(self._traced)
        program = trace_graph(name, self._traced, self._lowered, self._names, parameters)
        executable = self._compile_graph(read_program(program))
        taken = {port.name for port in executable.inputs}
        return _Compiled(
            executable, [index for index in self._given if self._names[index] in taken]
        )

    def _as_torch(self, outputs: Sequence[Any]) -> list[Any]:
        made = iter(outputs)
        found = []
        for result in self._results:
            meta = result.meta.get("val") if hasattr(result, "meta") else None
            if not hasattr(result, "meta"):
                found.append(result)
            elif hasattr(meta, "shape"):
                found.append(tensor_of(next(made)))
            else:
                found.append(next(made).item())
        return found


class _Compiled:
    def __init__(self, executable: Executable, inputs: list[int]) -> None:
        self.executable = executable
        self.inputs = inputs
        """Which of the arguments it takes."""


def _array(value: Any) -> np.ndarray:
    return array_of(value) if hasattr(value, "data_ptr") else np.asarray(value)


def _addresses(tensors: Sequence[Any]) -> list[int]:
    """Where the elements of each lie. There may be hundreds, in every call."""
    import torch

    return list(map(torch.Tensor.data_ptr, tensors))


def _versions(tensors: Sequence[Any]) -> list[int]:
    """How often each was written to."""
    try:
        return [each._version for each in tensors]
    except RuntimeError:
        # Tensors made under inference_mode cannot be written to outside it, and have no version.
        return [0 if each.is_inference() else each._version for each in tensors]


def _table() -> Mapping[Any, Any]:
    return dict(decompositions().items())


def _constants(example_inputs: Sequence[Any]) -> frozenset[int]:
    """The inputs that are parameters and buffers of modules."""
    import torch

    return frozenset(
        index
        for index, each in enumerate(example_inputs)
        if isinstance(each, torch.nn.Parameter)
        or getattr(each, "_dynamo_static_input_type", None) is not None
    )


def _written(lowered: FxGraph) -> frozenset[int]:
    """The inputs that the graph writes to: their new values are among its results."""
    output = next(node for node in lowered.nodes if node.op == "output")
    found = set()
    for description in output.meta.get("desc") or ():
        written = getattr(description, "mutated_input", None)
        if written is not None and hasattr(written, "idx"):
            found.add(int(written.idx))
    return frozenset(found)


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

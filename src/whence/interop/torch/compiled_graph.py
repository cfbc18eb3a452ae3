"""One graph of `torch.compile`, run with PyTorch's tensors.

Parameters become constants, so that kernels are made for them: read from PyTorch's memory, and
packed once. A parameter that was written to since, or another one in its place, is noticed by its
address and version (`parameters.py`), and the graph compiled anew.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from whence.frontends.torch.reader import (
    InputKind,
    TracedInput,
    TracedOutput,
    TracedProgram,
    read_program,
)
from whence.frontends.torch.sources import find_sources
from whence.frontends.torch.tensors import as_array, tensor_of
from whence.graph import Graph
from whence.interop.torch.effects import shared_results
from whence.interop.torch.parameters import ParameterState
from whence.interop.torch.recording import RECORDING, GraphRun
from whence.runtime.executable import Executable

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph

CompileGraph = Callable[[Graph], Executable]


class CompiledGraph:
    """Runs one graph, as `run`, or as AOTAutograd calls what it wraps: with the arguments in a
    list, which is emptied, so that PyTorch's memory is free as early as can be.

    What stands here is done in every call, with hundreds of parameters that have left the caches
    since the last: what can be found out once is found out in `__init__`.
    """

    _boxed_call = True

    def __init__(
        self,
        name: str,
        traced: FxGraph,
        lowered: FxGraph,
        names: Sequence[str],
        constants: Sequence[int],
        ended_by: str,
        compile_graph: CompileGraph,
    ) -> None:
        """`names` and `constants` are of the inputs of `lowered`: what they are called, and which
        are parameters that it does not write to.
        """
        self._name, self._traced, self._lowered = name, traced, lowered
        self._names, self._constants = tuple(names), tuple(constants)
        self._ended_by, self._compile_graph = ended_by, compile_graph
        self._compiled: dict[tuple[int, ...], tuple[list[int], _Compiled]] = {}
        self._last: tuple[ParameterState, _Compiled] | None = None
        """The parameters of the last call, and what ran it."""
        self._results = list(lowered.output_node().args[0])
        self._n_made = sum(map(_is_made, self._results))
        self._are_tensors = all(map(_is_tensor, self._results))
        self._shared = shared_results(lowered)

    def __call__(self, args: list[Any]) -> list[Any]:
        given = tuple(args)
        args.clear()
        return self.run(*given)

    def run(self, *args: Any) -> list[Any]:
        """The graph's results, given the inputs of the lowered graph in order."""
        last = self._last
        if last is None or not last[0].is_of(args):
            last = self._find(args)
        compiled = last[1]
        inputs = [as_array(args[index]) for index in compiled.inputs]
        del args
        record = RECORDING.get()
        began = 0 if record is None else time.monotonic_ns()
        outputs = compiled.executable(*inputs)
        if record is not None:
            record.graph_ns += time.monotonic_ns() - began
            if record.keeps_inputs:
                record.runs.append(self._run(compiled, inputs, last[0].addresses))
        found = self._as_torch([outputs] if self._n_made == 1 else outputs)
        for each in self._shared:
            each.join(found)
        return found

    def _find(self, args: Sequence[Any]) -> tuple[ParameterState, _Compiled]:
        """What was compiled for the parameters among these, or is now."""
        present = ParameterState(args, self._constants)
        key = tuple(present.addresses)
        found = self._compiled.get(key)
        if found is None or found[0] != present.versions:
            self._compiled = {
                place: each for place, each in self._compiled.items() if each[1].may_run(place)
            }
            found = present.versions, self._compile(args)
            self._compiled[key] = found
        self._last = present, found[1]
        return self._last

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
        program = TracedProgram(
            self._name,
            self._lowered,
            find_sources(self._traced, self._lowered),
            tuple(
                TracedInput(InputKind.CONSTANT, name, as_array(parameters[index]))
                if index in parameters
                else TracedInput(InputKind.GIVEN, name)
                for index, name in enumerate(self._names)
            ),
            tuple(TracedOutput(f"output_{index}") for index in range(len(self._results))),
            {},
        )
        executable = self._compile_graph(read_program(program))
        taken = {port.name for port in executable.inputs}
        inputs = [
            index
            for index, name in enumerate(self._names)
            if index not in parameters and name in taken
        ]
        return _Compiled(executable, inputs, list(parameters.values()))

    def _as_torch(self, outputs: Sequence[Any]) -> list[Any]:
        if self._are_tensors:
            return [tensor_of(each) for each in outputs]
        made = iter(outputs)
        return [
            result
            if not _is_made(result)
            else tensor_of(next(made))
            if _is_tensor(result)
            else next(made).item()
            for result in self._results
        ]


class _Compiled:
    """What a graph is compiled to, for one set of parameters."""

    def __init__(
        self, executable: Executable, inputs: list[int], parameters: Sequence[Any]
    ) -> None:
        self.executable = executable
        self.inputs = inputs
        """Which of the arguments it takes."""
        # Another parameter must not come to lie where one of these was: it would be taken for it.
        self._memory = [each.detach() for each in parameters]
        self._parameters = [weakref.ref(each) for each in parameters]

    def may_run(self, where: Sequence[int]) -> bool:
        """Can these parameters, from these addresses, still be given in a call?"""
        alive = [each() for each in self._parameters]
        return all(
            each is not None and each.data_ptr() == address
            for each, address in zip(alive, where, strict=True)
        )


def _is_made(result: Any) -> bool:
    """Is it a node of the graph? The others are constants."""
    return hasattr(result, "meta")


def _is_tensor(result: Any) -> bool:
    return _is_made(result) and hasattr(result.meta.get("val"), "shape")

"""A compiled program of `torch.export`, called as the module was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from whence.errors import InputError
from whence.frontends.torch.tensors import array_of, tensor_of
from whence.ops.definition import Value
from whence.runtime.executable import Executable


class TorchExecutable(Executable):
    """Takes what the module takes. With tensors of PyTorch it returns what the module returns, in
    the same nesting; with arrays, in order or by name, it is like any other compiled model.
    """

    _program: Any = None

    @classmethod
    def of(cls, compiled: Executable, program: Any) -> TorchExecutable:
        """The compiled graph of an exported program."""
        own = cls(compiled.inputs, compiled.engine, compiled._specialise, lambda: compiled.graph)
        own._programs = compiled._programs
        own._program = program
        return own

    def clone(self) -> TorchExecutable:
        return TorchExecutable.of(super().clone(), self._program)

    def __call__(self, /, *args: Value, **kwargs: Value) -> Value:
        from torch.utils import _pytree

        leaves, spec = _pytree.tree_flatten((args, kwargs))
        if not any(is_tensor(leaf) for leaf in leaves):
            return super().__call__(*args, **kwargs)
        wanted = self._program.call_spec.in_spec
        if kwargs:
            kwargs = self._in_order(kwargs, wanted)
            leaves, spec = _pytree.tree_flatten((args, kwargs))
        if spec != wanted:
            names = ", ".join(f"{port.name}: {port.type}" for port in self.inputs)
            raise InputError(
                "the model is called with other arguments than it was exported with; it takes"
                f" {names}"
            )
        outputs = self._run(self._binder.bind(self._given(leaves)), None)
        return _pytree.tree_unflatten(self._results(outputs), self._program.call_spec.out_spec)

    def _in_order(self, kwargs: dict[str, Value], wanted: Any) -> dict[str, Value]:
        names = wanted.children()[1].context
        if set(names) != set(kwargs):
            raise InputError(
                f"the model takes {', '.join(names) or 'no arguments'} by name, not"
                f" {', '.join(kwargs)}"
            )
        return {name: kwargs[name] for name in names}

    def _given(self, leaves: Sequence[Value]) -> list[Value]:
        """The leaves of a call that are inputs; the others are as they were when it was
        exported.
        """
        specs = [
            spec
            for spec in self._program.graph_signature.input_specs
            if spec.kind.name == "USER_INPUT"
        ]
        given: list[Value] = []
        for leaf, spec in zip(leaves, specs, strict=True):
            if type(spec.arg).__name__ != "ConstantArgument":
                given.append(as_array(leaf))
            elif leaf != spec.arg.value:
                raise InputError(
                    f"argument '{spec.arg.name}' is {leaf!r}, and the model was exported for"
                    f" {spec.arg.value!r}: export it again"
                )
        # The size of a tensor that is given is no input of its own.
        names = {port.name for port in self.inputs}
        kept = [spec.arg.name in names for spec in specs if _is_given(spec)]
        return [value for value, is_input in zip(given, kept, strict=True) if is_input]

    def _results(self, outputs: Sequence[Value]) -> list[Any]:
        made = iter(outputs)
        return [
            (
                spec.arg.value
                if type(spec.arg).__name__ == "ConstantArgument"
                else as_given(next(made), spec)
            )
            for spec in self._program.graph_signature.output_specs
            if spec.kind.name == "USER_OUTPUT"
        ]


def _is_given(spec: Any) -> bool:
    return type(spec.arg).__name__ != "ConstantArgument"


def is_tensor(value: Value) -> bool:
    """Is it a tensor of PyTorch?"""
    import torch

    return isinstance(value, torch.Tensor)


def as_array(value: Value) -> np.ndarray:
    return array_of(value) if is_tensor(value) else np.asarray(value)


def as_given(value: Any, spec: Any) -> Any:
    """A result as PyTorch has it: a tensor, or a plain number."""
    if type(spec.arg).__name__.startswith("Sym"):
        return value.item()
    return tensor_of(value)

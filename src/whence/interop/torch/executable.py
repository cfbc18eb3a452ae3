"""A compiled program of `torch.export`, called as the module was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from whence.errors import InputError
from whence.frontends.torch.tensors import as_array, tensor_of
from whence.ops.definition import Value
from whence.runtime.executable import Executable


class _Leaf(NamedTuple):
    """A leaf of the arguments of a call, or of what it returns."""

    name: str
    is_constant: bool
    """Is it as it was when the module was exported?"""
    value: Any
    """What it was then."""
    is_input: bool
    """The size of a tensor that is given is no input of its own."""
    is_number: bool
    """Not a tensor."""


class TorchExecutable(Executable):
    """Takes what the module takes. With tensors of PyTorch it returns what the module returns, in
    the same nesting; with arrays it is like any other compiled model. Either are given in order, by
    name, or as a dictionary by name.
    """

    _program: Any = None
    # Read from the program once: its signature lists every parameter of the module, so that a call
    # that goes through it takes longer the larger the module is, and its call_spec makes a class
    # whenever it is asked for, which takes a tenth of a millisecond.
    _arguments: tuple[_Leaf, ...] = ()
    _made: tuple[_Leaf, ...] = ()
    _in_spec: Any = None
    _out_spec: Any = None
    _takes_leaves = False
    """Are its arguments tensors and numbers, none by name and none in a list?"""

    @classmethod
    def of(cls, compiled: Executable, program: Any) -> TorchExecutable:
        """The compiled graph of an exported program."""
        from torch.utils import _pytree

        own = cls(compiled.inputs, compiled.engine, compiled._specialise, lambda: compiled.graph)
        own._programs, own.has_state = compiled._programs, compiled.has_state
        own._program = program
        signature, names = program.graph_signature, {port.name for port in compiled.inputs}
        own._arguments = _leaves_of(signature.input_specs, "USER_INPUT", names)
        own._made = _leaves_of(signature.output_specs, "USER_OUTPUT")
        own._in_spec, own._out_spec = program.call_spec
        leaves = tuple(range(len(own._arguments)))
        own._takes_leaves = _pytree.tree_flatten((leaves, {}))[1] == own._in_spec
        return own

    def clone(self) -> TorchExecutable:
        return TorchExecutable.of(super().clone(), self._program)

    def __call__(self, /, *args: Value, **kwargs: Value) -> Value:
        from torch.utils import _pytree

        leaves: Sequence[Value] = args
        # Most calls: there is nothing to take apart.
        is_plain = (
            self._takes_leaves
            and not kwargs
            and len(args) == len(self._arguments)
            and all(map(_is_tensor, args))
        )
        if not is_plain:
            leaves, spec = _pytree.tree_flatten((args, kwargs))
            if not any(map(_is_tensor, leaves)):
                return super().__call__(*args, **kwargs)
            if spec != self._in_spec:
                leaves = self._by_argument(args, kwargs)
        outputs = self._run(self._binder.bind(self._given(leaves)), None)
        return _pytree.tree_unflatten(self._results(outputs), self._out_spec)

    def inputs_of(self, args: Sequence[Value], kwargs: Mapping[str, Value]) -> list[Value]:
        """What a call with these arguments gives the graph, in the order of its inputs."""
        return self._given(self._by_argument(args, kwargs))

    def _by_argument(self, args: Sequence[Value], kwargs: Mapping[str, Value]) -> list[Value]:
        """The leaves of a call as they were when the module was exported, of one whose arguments
        are given in another order, by name instead of in order, or as a dictionary of the inputs.
        """
        from torch.utils import _pytree

        wanted = self._in_spec
        by_name = wanted.children()[1].context
        if set(kwargs) == set(by_name):
            kwargs = {name: kwargs[name] for name in by_name}
        leaves: list[Value]
        leaves, spec = _pytree.tree_flatten((tuple(args), kwargs))
        if spec == wanted:
            return leaves
        first: list[Value] = []
        if not kwargs and len(args) == 1 and isinstance(args[0], Mapping):
            given, names = args[0], {port.name for port in self.inputs}
        else:
            first, given = _pytree.tree_leaves(args), kwargs
            # All of them: one that is left out has the module's default, which may be another
            # value than it was exported with.
            names = {argument.name for argument in self._arguments[len(first) :]}
        if not given or set(given) != names:
            takes = ", ".join(f"{port.name}: {port.type}" for port in self.inputs)
            raise InputError(
                "the model is called with other arguments than it was exported with; it takes"
                f" {takes}" + (f"; by name {', '.join(by_name)}" if by_name else "")
            )
        rest = self._arguments[len(first) :]
        return [*first, *(given.get(each.name, each.value) for each in rest)]

    def _given(self, leaves: Sequence[Value]) -> list[Value]:
        """The leaves of a call that are inputs; the others are as they were when it was
        exported.
        """
        given: list[Value] = []
        for leaf, argument in zip(leaves, self._arguments, strict=True):
            if not argument.is_constant:
                if argument.is_input:
                    given.append(as_array(leaf))
            elif leaf != argument.value:
                raise InputError(
                    f"argument '{argument.name}' is {leaf!r}, and the model was exported for"
                    f" {argument.value!r}: export it again"
                )
        return given

    def _results(self, outputs: Sequence[Value]) -> list[Any]:
        made: Iterator[Any] = iter(outputs)
        return [
            leaf.value
            if leaf.is_constant
            else next(made).item()
            if leaf.is_number
            else tensor_of(next(made))
            for leaf in self._made
        ]


def _leaves_of(
    specs: Sequence[Any], kind: str, inputs: Set[str] = frozenset()
) -> tuple[_Leaf, ...]:
    """Those of one kind in the signature of a program."""
    return tuple(
        _Leaf(
            spec.arg.name,
            constant := type(spec.arg).__name__ == "ConstantArgument",
            spec.arg.value if constant else None,
            spec.arg.name in inputs,
            type(spec.arg).__name__.startswith("Sym"),
        )
        for spec in specs
        if spec.kind.name == kind
    )


def _is_tensor(value: Value) -> bool:
    """Is it a tensor of PyTorch?"""
    import torch

    return isinstance(value, torch.Tensor)

"""Sizes that a kernel's function takes as arguments, so that kernels that differ only in them share
it.

A micro-kernel says which of its numbers are incidental (`Builder.size`): strides of memory, numbers
of blocks, of tiles and of work items. Registers, unrolled loops and displacements in inner loops
stay numbers of the text. What a program asks about such a size is answered for the kernel at hand;
kernels share a function if all their answers make the same text.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from whence.extent import LEAST, Dimensions, is_symbolic
from whence.kernels.index import Index, Var
from whence.kernels.ir import Expr, Kernel, Load, Micro, Op, Splat

_MOST = 2**29


class SizeArguments:
    """The sizes that became arguments so far, in order."""

    def __init__(self) -> None:
        self._dimensions = Dimensions({})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._dimensions.sizes)

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(self._dimensions.sizes.values())

    def argument(self, size: int) -> int:
        """The size as an argument. 0 and 1 stay what they are: they make terms and loops vanish."""
        if is_symbolic(size) or not LEAST <= size < _MOST:
            return size
        name = f"s{len(self._dimensions.sizes)}"
        self._dimensions.sizes[name] = size
        return self._dimensions[name]

    def in_index(self, index: Index, variables: Set[str]) -> Index:
        """An index in which the strides of these variables are arguments."""
        return Index(
            index.const,
            tuple(
                (
                    atom,
                    self.argument(stride)
                    if isinstance(atom, Var) and atom.name in variables
                    else stride,
                )
                for atom, stride in index.terms
            ),
        )

    def in_value(self, value: Expr, variables: Set[str]) -> Expr:
        """A value, of few parts, in which the same is true of all that is loaded. What occurs more
        than once stays one part, which is computed once.
        """
        return self._in_part(value, variables, {})

    def _in_part(self, part: Expr, variables: Set[str], done: dict[Expr, Expr]) -> Expr:
        if part in done:
            return done[part]
        made = part
        match part:
            case Load(_, index):
                made = replace(part, index=self.in_index(index, variables))
            case Op(fn, args, dtype, lanes):
                made_args = tuple(self._in_part(arg, variables, done) for arg in args)
                made = Op(fn, made_args, dtype, lanes)
            case Splat(inner, lanes):
                made = Splat(self._in_part(inner, variables, done), lanes)
        done[part] = made
        return made


def with_size_arguments(kernel: Kernel) -> tuple[Kernel, tuple[int, ...]] | None:
    """The kernel as one that others may share the function of, if its micro-kernel has such a form:
    its `dimensions` are sizes of its own. They come with it; every call hands over those it has.
    """
    if len(kernel.body) != 1 or kernel.dimensions:
        return None
    (micro,) = kernel.body
    if not isinstance(micro, Micro):
        return None
    sizes = SizeArguments()
    body = micro.shared_program(kernel, sizes)
    if body is None or not sizes.names:
        return None
    return replace(kernel, body=body, dimensions=sizes.names), sizes.values

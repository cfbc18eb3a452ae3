"""Sizes that are known only when a model is called: expressions over its named dimensions.

An `Extent` goes wherever the size of a tensor goes. It is used as an `int`, and answers as one: its
arithmetic gives further extents (`sequence * 768`), and an f-string has it as an expression of C.
Nothing of it is an `int` for C code, though, so that NumPy, `range` and the like must ask for the
number.

Whoever *asks* for something that the expression alone does not decide gets the answer of the call
that the model is compiled for, and the answer becomes a *guard*: what is compiled serves all calls
for which every guard holds. `sequence > 100` is such a question, `int(sequence)` is one whose guard
only the same size passes. So a compiled program is right for every size that it is used for, and
what costs generality is listed, with the line that asked. `estimate` is the size for whoever only
compares costs: any choice is right then, and nothing is recorded.

Named dimensions are at least 2: tensors of size 1 broadcast and those of size 0 are empty, so what
is compiled for them is another program, as it is in PyTorch.

`polynomial.py` is the arithmetic, `facts.py` what guards say of polynomials, `expression.py` the
`Extent`, `dimensions.py` the dimensions and guards, `sizes.py` questions that ask nothing.
"""

from whence.extent.dimensions import Dimensions, SizeGuard
from whence.extent.expression import C_PREFIX, Extent, decide, estimate, evaluate, is_symbolic
from whence.extent.facts import LEAST, Relation
from whence.extent.sizes import (
    described,
    dimensions_of,
    larger,
    names,
    same_shape,
    smaller,
    surely_divides,
    surely_equal,
)

__all__ = [
    "C_PREFIX",
    "LEAST",
    "Dimensions",
    "Extent",
    "Relation",
    "SizeGuard",
    "decide",
    "described",
    "dimensions_of",
    "estimate",
    "evaluate",
    "is_symbolic",
    "larger",
    "names",
    "same_shape",
    "smaller",
    "surely_divides",
    "surely_equal",
]

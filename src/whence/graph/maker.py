"""Operators of one edit that all come from the same nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.graph.edit import Edit
from whence.graph.node import Node, Ref
from whence.ops.definition import Attr
from whence.provenance import EdgeKind
from whence.types import DType


class Maker:
    """`make("Add", x, np.float32(1))` is a new operator in `edit`, of one output and whatever types
    follow, with the origin of the nodes `of`: all matched nodes by default.
    """

    def __init__(
        self, edit: Edit, of: Sequence[Node] | None = None, kind: EdgeKind | None = None
    ) -> None:
        self.edit, self.of, self._kind = edit, of, kind

    def __call__(
        self, op: str, /, *inputs: Ref | np.ndarray | np.generic | None, **attrs: Attr
    ) -> Ref:
        """Arrays and numbers of NumPy among the inputs become constants."""
        refs = [
            self.edit.const(each) if isinstance(each, np.ndarray | np.generic) else each
            for each in inputs
        ]
        return self.edit.node(op, refs, attrs, of=self.of, kind=self._kind).ref()

    def cast(self, value: Ref, dtype: DType) -> Ref:
        return self("Cast", value, to=int(dtype))

"""Copying into a concatenation what is not there already."""

from __future__ import annotations

from collections.abc import Sequence

from whence.graph import Node
from whence.kernels.expressions import load
from whence.kernels.group import Group
from whence.kernels.index import Var, of
from whence.kernels.ir import TASK, Kernel, Loop, LoopKind, Member, Store


def lower_copy_parts(group: Group, node: Node, begins: Sequence[int]) -> Kernel:
    """A kernel that stores each input of the group in its output, at these elements."""
    params = group.params()
    loops: list[Loop] = []
    tasks = 0
    for buffer, begin in zip(params[:-1], begins, strict=True):
        task = Var(TASK, buffer.elements)
        store = Store("out0", of(task) + begin, load(buffer.name, of(task), buffer.dtype))
        loops.append(Loop(task, (store,), LoopKind.VECTOR, tasks))
        tasks += buffer.elements
    traffic = 2 * tasks * params[-1].dtype.numpy.itemsize
    members = (Member(node.id, node.op, 0, traffic),)
    return Kernel(group.name, params, tasks, tuple(loops), members, dimensions=group.dimensions)

"""An If that is decided at run time becomes plain operators: those of both its branches, and a
choice between what they give.

1. If(c, f, g)(x) = Choose(c, f(x), g(x))            where both branches give tensors of the same fixed size
2. If(c, f, g)(x) = Choose(c, f(x), Branch(g)(x))    where g is certain to fail on what it is given, and so says nothing of what the If gives

The second is common: a model for two sampling rates takes blocks of one size for one of them, of
another for the other. A run that takes the branch that fails gets its error as before.

Nothing runs that did not run before: what only the side of a choice needs that is not taken is
passed over (`graph/guards.py`). But the operators of both branches are now seen by every pass,
fused, laid out and compiled together with those around them, and a run that meets a branch does not
leave native code.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.errors import ModelError
from whence.graph import Graph, Node, Rewriter
from whence.graph.guards import DEEPEST
from whence.graph.operands import why_it_fails
from whence.graph.state import BOUNDARY
from whence.ops.registry import one_of
from whence.passes.base import Pass
from whence.passes.control.inlining import Inlining, inline_all
from whence.passes.shapes.fold_shapes import FoldShapes
from whence.types import DType, TensorType, ValueType


@dataclass(frozen=True, slots=True)
class FlattenBranches(Pass):
    name = "flatten_branches"
    summary = "compute both branches of an If where they give the same types, and select"
    anchors = one_of("If")

    def run(self, rewriter: Rewriter) -> None:
        while inline_all(rewriter, {"If": _plan}):
            # More is known of what an If gives then, on which the types of another may depend.
            FoldShapes().run(rewriter)


def _plan(rewriter: Rewriter, node: Node) -> Inlining | None:
    graph = rewriter.graph
    condition = node.input(0)
    kind = graph.tensor_type(condition)
    if condition is None or kind is None or kind.dtype is not DType.BOOL or kind.elements != 1:
        return None
    if len({each.inputs[0] for each in graph if each.op == "Choose"} | {condition}) > DEEPEST:
        return None
    then, otherwise = node.bodies["then_branch"], node.bodies["else_branch"]
    types = _result_types(then) or _result_types(otherwise)
    if not types or len(types) != len(node.outputs):
        return None
    # If(c, f, g)(x) = Choose(c, f(x), g(x))
    inlining = Inlining(
        rewriter, node, "an If is both its branches and a choice between what they give"
    )
    decided, given = inlining.number(condition), node.inputs[1:]
    sides = []
    for body in (then, otherwise):
        if _is_certain_to_fail(body):
            sides.append(inlining.keep(body, given, types))
        elif _result_types(body) == types:
            sides.append(inlining.inline(body, given))
        else:
            return None
    chosen = [
        inlining.choose(decided, one, other)
        for one, other in zip(*sides, strict=True)
        if one is not None and other is not None
    ]
    return inlining if inlining.connect(chosen) else None


def _result_types(body: Graph) -> list[ValueType] | None:
    """What the branch gives, if memory can be planned for all of it."""
    types = [body.type_of(ref) for output in body.outputs if (ref := output.inputs[0]) is not None]
    return types if len(types) == len(body.outputs) and all(map(_is_fixed, types)) else None


def _is_certain_to_fail(body: Graph) -> bool:
    """Does it hold an operator, on the way of every run, whose operands do not fit together, or
    whose indices lead nowhere?
    """
    for node in body:
        if node.bodies or node.op in BOUNDARY:
            continue
        try:
            body.inference.infer(body.query(node))
        except ModelError:
            return True
        if why_it_fails(body, node):
            return True
    return False


def _is_fixed(kind: ValueType) -> bool:
    return (
        isinstance(kind, TensorType)
        and kind.is_static
        and kind.dtype not in (DType.STRING, DType.UNDEFINED)
        and kind.dtype.bits >= 8
    )

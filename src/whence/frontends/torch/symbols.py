"""What the user calls the open dimensions of an exported program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def dimension_names(program: Any, dynamic_shapes: Any) -> dict[str, str]:
    """By symbol in the program's shapes: the name of the `torch.export.Dim` that was given for
    it.
    """
    metas = [
        node.meta["val"]
        for node, spec in zip(
            (each for each in program.graph.nodes if each.op == "placeholder"),
            program.graph_signature.input_specs,
            strict=True,
        )
        if spec.kind.name == "USER_INPUT"
    ]
    tensors = [meta for meta in metas if hasattr(meta, "shape")]
    found: dict[str, str] = {}
    for meta, spec in zip(tensors, _dimensions(dynamic_shapes), strict=False):
        for axis, dim in spec.items():
            name = getattr(dim, "__name__", "")
            symbol = str(meta.shape[axis]) if axis < len(meta.shape) else ""
            if name and not symbol.isdigit() and not hasattr(dim, "root"):
                found.setdefault(symbol, name)
    return found


def _dimensions(given: Any) -> Iterator[Mapping[int, Any]]:
    """What is said of each tensor, in the order of the arguments: a dictionary by axis, or a list
    with an entry for each.
    """
    if isinstance(given, Mapping) and all(isinstance(key, int) for key in given):
        yield given
    elif isinstance(given, Mapping):
        for each in given.values():
            yield from _dimensions(each)
    elif isinstance(given, Sequence) and not isinstance(given, str):
        leaves = [
            each is None or isinstance(each, int) or hasattr(each, "__name__") for each in given
        ]
        if given and all(leaves) and any(hasattr(each, "__name__") for each in given):
            yield dict(enumerate(given))
        else:
            for each in given:
                yield from _dimensions(each)
    elif given is None:
        yield {}

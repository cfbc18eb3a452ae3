"""Results of a graph that share memory, as views of one tensor do.

The kernels of a graph write each result to memory of its own, and AOTAutograd looks after aliases
of arguments only. A program that writes to one of two results and reads the other would notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph


class _View(NamedTuple):
    result: int
    """Which of the results."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def end(self) -> int:
        steps = zip(self.shape, self.strides, strict=True)
        return self.offset + 1 + sum((size - 1) * stride for size, stride in steps)


class SharedResults:
    """Results that are views of the same memory."""

    def __init__(self, views: Sequence[_View]) -> None:
        first = min(view.offset for view in views)
        self._views = [view._replace(offset=view.offset - first) for view in views]
        self._elements = max(view.end for view in self._views)

    def join(self, results: list[Any]) -> None:
        """Make views of one tensor of the results, in place."""
        whole = results[self._views[0].result].new_empty(self._elements)
        for index, shape, strides, offset in self._views:
            view = whole.as_strided(shape, strides, offset)
            results[index] = view.copy_(results[index])


def shared_results(lowered: FxGraph) -> list[SharedResults]:
    """Those of a graph with fixed sizes; where sizes are open, where views lie is not known."""
    inputs = {_storage(node) for node in lowered.find_nodes(op="placeholder")}
    output = lowered.output_node()
    results = list(output.args[0])
    described = output.meta.get("desc") or [None] * len(results)
    groups: dict[Any, list[_View]] = {}
    for index, (result, description) in enumerate(zip(results, described, strict=True)):
        key = _storage(result)
        # What is written back to an argument is copied there.
        if key is None or key in inputs or hasattr(description, "mutated_input"):
            continue
        value = result.meta["val"]
        view = _View(index, tuple(value.shape), tuple(value.stride()), value.storage_offset())
        if value.numel() and all(
            isinstance(each, int) for each in (*view.shape, *view.strides, view.offset)
        ):
            groups.setdefault((key, value.dtype), []).append(view)
    return [SharedResults(views) for views in groups.values() if len(views) > 1]


def _storage(node: Any) -> Any:
    """What tells the memory of a node's tensor from that of others, while PyTorch traces."""
    value: Any = node.meta.get("val") if hasattr(node, "meta") else None
    return value.untyped_storage()._cdata if hasattr(value, "untyped_storage") else None

"""Model files: reading and writing them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from whence.errors import InputError, ModelError, UnsupportedError

if TYPE_CHECKING:
    from whence.graph import Graph
    from whence.types import Dim

Shapes: TypeAlias = "Mapping[str, Sequence[Dim]]"
"""Of inputs, by name; a size that is a name or `None` stays open."""
Dims = Mapping[str, int]
"""Sizes by the names of dimensions."""
StatePairs = Mapping[str, str]
"""Inputs, and the outputs that have their next values."""
OutputAxes = Mapping[str, int]
"""Axes by the names of outputs."""


def load(
    path: str | Path | Any,
    *,
    shapes: Shapes | None = None,
    dims: Dims | None = None,
    state: StatePairs | None = None,
    only_last: OutputAxes | None = None,
) -> Graph:
    """Read a model file, or a model in memory: the bytes of a file, an `onnx.ModelProto`, an
    `onnx_ir.Model`, a program of `torch.export`. `shapes` fixes the shapes of inputs that it leaves
    open, `dims` the sizes of the dimensions that it names. `state` makes variables of inputs whose
    next value is an output, by the names of both: they are zero at first, stay with the model, and
    are no longer given or returned. `only_last` names outputs of which only what is last along an
    axis is made: `{"logits": 1}` the scores behind the last token of a prompt.

        >>> whence.load("model.onnx")
        <Graph 'images': (x: f32[1,3,32,32]) → (y), 15 nodes>
        >>> whence.load("open.onnx", shapes={"x": (2, 4)})
        <Graph 'open': (x: f32[2,4]) → (y), 3 nodes>
    """
    check_sizes_and_names(shapes, dims, state, only_last)
    graph = _sized_read(path, shapes, dims) if dims else _read(path, shapes)
    return bound_graph(graph, state, only_last)


def bound_graph(graph: Graph, state: StatePairs | None, only_last: OutputAxes | None) -> Graph:
    """The graph, which may be changed, with these inputs as state and outputs shortened, as `load`
    has it.
    """
    if state:
        from whence.graph.state import bind_state

        graph = bind_state(graph, state)
    if only_last:
        from whence.graph.only_last import only_last as shorten

        graph = shorten(graph, only_last)
    return graph


def _sized_read(path: str | Path | Any, shapes: Shapes | None, dims: Dims) -> Graph:
    opened = _read(path, None)
    shapes = shapes_with(opened, dims, shapes)
    try:
        return _read(path, shapes)
    except ModelError as error:
        from whence.passes.shapes.working_sizes import explain_sizes

        found = explain_sizes(opened, shapes, error, lambda graph: None)
        if found is None:
            raise
        raise found from error


def _read(path: str | Path | Any, shapes: Shapes | None) -> Graph:
    from whence.frontends.registry import find_reader, read_object

    if not isinstance(path, str | os.PathLike):
        return sized(read_object(path, shapes), shapes)
    path = Path(path)
    if not path.exists():
        raise ModelError(f"'{path}': no such file")
    if path.is_dir():
        raise ModelError(f"'{path}' is a folder; name the model file in it")
    return sized(find_reader(path)(path, shapes=shapes), shapes)


def shapes_with(graph: Graph, dims: Dims, shapes: Shapes | None = None) -> Shapes:
    """The shapes of the graph's inputs, those given and those that the sizes of its dimensions
    fix.
    """
    from whence.ops.binding import Port
    from whence.ops.named_dimensions import sized_inputs

    return sized_inputs([Port(node.name, node.type) for node in graph.inputs], dims, shapes)


def check_sizes_and_names(
    shapes: Shapes | None, dims: Dims | None, state: StatePairs | None, only_last: OutputAxes | None
) -> None:
    """Are they dictionaries of what `load` takes? What they name is checked with the model."""
    given = {"shapes": shapes, "dims": dims, "state": state, "only_last": only_last}
    for option, value in given.items():
        if value is not None and not isinstance(value, Mapping):
            raise InputError(f"{option}= takes a dictionary, not {type(value).__name__}")
    for name, shape in (shapes or {}).items():
        if (
            isinstance(shape, str)
            or not isinstance(shape, Collection)
            or not all(map(_is_dim, shape))
        ):
            raise InputError(
                f"the shape of input '{name}' is given as {shape!r}; a list of sizes is wanted,"
                " each a number, a name or None"
            )
    for name, axis in (only_last or {}).items():
        if not isinstance(axis, int):
            raise InputError(f"only_last: the axis of output '{name}' is given as {axis!r}")


def _is_dim(size: object) -> bool:
    return size is None or isinstance(size, str) or hasattr(size, "__index__")


def _check_shapes(graph: Graph, shapes: Shapes) -> None:
    """Can its inputs have these shapes?"""
    from whence.types import TensorType, as_dims, differ

    known = {node.name: node.type for node in graph.inputs}
    for name, shape in shapes.items():
        if name not in known:
            inputs = ", ".join(f"'{each}'" for each in known)
            raise InputError(f"a shape is given for '{name}'; the model's inputs are {inputs}")
        kind, dims = known[name], as_dims(shape)
        own = kind.shape if isinstance(kind, TensorType) else ()
        # One that is declared as a scalar may have any.
        if (
            not isinstance(kind, TensorType)
            or (own and (len(own) != len(dims) or any(map(differ, own, dims))))
            or any(isinstance(dim, int) and dim < 0 for dim in dims)
        ):
            raise InputError(f"shape {list(dims)} is given for input '{name}', which is {kind}")


def sized(graph: Graph, shapes: Shapes | None) -> Graph:
    """The graph with the shapes of inputs fixed, where its reader left that to others."""
    from whence.types import TensorType

    opened = {
        node.name
        for node in graph.inputs
        if not (isinstance(node.type, TensorType) and node.type.is_static)
    }
    _check_shapes(graph, shapes or {})
    if not shapes or not opened & shapes.keys():
        return graph
    from whence.passes.shapes.propagate_types import fix_input_shapes

    return fix_input_shapes(graph, shapes)


def check_graph_argument(graph: object, wanted: str) -> None:
    from whence.graph import Graph

    if not isinstance(graph, Graph):
        raise InputError(f"{wanted}, not {type(graph).__name__}")


WRITTEN = (".onnx", ".tflite", ".circle")
"""What `save` writes, by the file's ending."""


def written_suffix(path: Path) -> str:
    """The ending of a file that `save` writes."""
    suffix = path.suffix.lower()
    if suffix not in WRITTEN:
        raise UnsupportedError(
            f"'{path}': whence writes {', '.join(WRITTEN[:-1])} and {WRITTEN[-1]} files"
        )
    return suffix


def save(graph: Graph, path: str | Path) -> None:
    """Write the graph as an ONNX, TFLite or Circle model, by the file's ending. Each operator of
    the file carries its origins.

        >>> graph = whence.prepare(whence.load("model.onnx"), portable=True)
        >>> whence.save(graph, "smaller.onnx")
    """
    check_graph_argument(graph, "what is saved is a graph, as whence.load gives it")
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"where to save it is named by a path, not by {type(path).__name__}")
    path = Path(path)
    suffix = written_suffix(path)
    is_onnx = suffix == ".onnx"
    if not is_onnx or any(op == "Call" or op.startswith("ChannelsLast") for op in graph.op_counts):
        from whence.frontends.files import without_collection
        from whence.passes.manager import run_passes
        from whence.passes.pipeline import CHANNELS_FIRST, CHANNELS_LAST

        # The graph stays as it is: where the format wants channels is no business of the caller's.
        graph = graph.copy()
        with without_collection():
            run_passes(graph, CHANNELS_FIRST if is_onnx else CHANNELS_LAST)
    if is_onnx:
        from whence.frontends.onnx.writer import write_onnx

        write_onnx(graph, path)
    else:
        from whence.frontends.tflite.writer import write_circle, write_tflite

        (write_tflite if suffix == ".tflite" else write_circle)(graph, path)

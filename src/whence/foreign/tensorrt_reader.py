"""A recording of TensorRT, from `trtexec --exportProfile` and `--exportLayerInfo` (with
`--profilingVerbosity=detailed`, without which layers have names only).

1. A layer lists the tensors it makes by name; those of the ONNX file keep theirs.
2. A layer that reformats has the name of the file's tensor on its output, in place of the layer
   before it.
3. A fused layer is called after its members, `Conv_5 + Add_6 + Relu_7` or `PWN(PWN(a), b)`, weights
   among them; newer versions list them in `Metadata`, `[ONNX Layer: Conv_5]...`.
4. A layer that was made twice is called `..._clone_1`; one that copies an operand to its place in a
   concatenation, `Concat_9_tensor copy`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whence.errors import ModelError
from whence.foreign.reading import read_json, reading
from whence.foreign.recording import EngineNode, Recording, averaged
from whence.foreign.source import SourceGraph, window_of

_METADATA = re.compile(r"\[ONNX Layer: ([^\]]*)\]")
_CLONE = re.compile(r"_clone_\d+$")
_COPY = " copy"
_LAYOUT = frozenset({"NoOp", "Reformat", "Shuffle"})
_HEAVY = re.compile(
    r"[Cc]onvolution|Deconvolution|[Gg]emm|MatrixMultiply|FullyConnected|RNN|LSTM|GRU|[Aa]ttention"
)
_COMPOSITE = re.compile(r"[Mm]yelin|ForeignNode|kgen|fusion|PluginV")
_ACTIVATIONS = {"RELU": "Relu", "SIGMOID": "Sigmoid", "TANH": "Tanh", "CLIP": "Clip"}
_WINDOW = {
    "Kernel": "kernel_shape",
    "Stride": "strides",
    "Groups": "group",
    "Dilation": "dilations",
}


def read_tensorrt(source: SourceGraph, profile: Path, layers: Path) -> Recording:
    times, count = _times(profile)
    rows = _layers(layers)
    with reading(layers, "has layers that trtexec does not write"):
        nodes = _nodes(source, rows)
    known: dict[str, list[int]] = {}
    for node in nodes:
        known.setdefault(node.name, []).append(node.number)
    spent: dict[int, int] = {}
    for name, time in times:
        numbers = known.get(name)
        if numbers is None:
            # What the profile has and the list of layers has not: nothing else is known of it.
            numbers, members = [len(nodes)], layer_members(source, name)
            nodes.append(EngineNode(len(nodes), name, "unlisted layer", holds=members))
        spent[numbers.pop(0) if len(numbers) > 1 else numbers[0]] = time
    return averaged("tensorrt", nodes, spent, [f"averages over {count} runs"] if count else [])


def _times(path: Path) -> tuple[list[tuple[str, int]], int]:
    content = read_json(path)
    with reading(path, "is no profile of trtexec --exportProfile"):
        rows = [row for row in content if "name" in row]
        count = next((int(row["count"]) for row in content if "count" in row), 0)
        return [(str(row["name"]), round(float(row["averageMs"]) * 1e6)) for row in rows], count


def _layers(path: Path) -> list[Mapping[str, Any]]:
    content = read_json(path)
    found = content.get("Layers") if isinstance(content, dict) else None
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise ModelError(
            f"'{path}' has no layers with details: trtexec --exportLayerInfo writes them with"
            " --profilingVerbosity=detailed"
        )
    return found


def _nodes(source: SourceGraph, rows: Sequence[Mapping[str, Any]]) -> list[EngineNode]:
    maker = {name: number for number, row in enumerate(rows) for name in _tensors(row, "Outputs")}
    forwarded = {
        inner: outer
        for row in rows
        if row.get("LayerType") in {"Reformat", "NoOp"}
        for inner, outer in zip(_tensors(row, "Inputs"), _tensors(row, "Outputs"), strict=False)
    }
    return [_node(source, number, row, maker, forwarded) for number, row in enumerate(rows)]


def _tensors(row: Mapping[str, Any], which: str) -> list[str]:
    return [str(each.get("Name", "")) for each in row.get(which, ()) if isinstance(each, dict)]


def _node(
    source: SourceGraph,
    number: int,
    row: Mapping[str, Any],
    maker: Mapping[str, int],
    forwarded: Mapping[str, str],
) -> EngineNode:
    name, kind = str(row.get("Name", "")), str(row.get("LayerType", ""))
    is_layout = kind in _LAYOUT and name.startswith("Reformatting")
    window = _WINDOW if row.get("ParameterType") == "Convolution" else {}
    makes: list[int] = []
    holds: tuple[int, ...] = ()
    if not is_layout:
        outputs = [forwarded.get(each, each) for each in _tensors(row, "Outputs")]
        makes = [source.by_output[each] for each in outputs if each in source.by_output]
        holds = layer_members(source, name, str(row.get("Metadata", "")))
    return EngineNode(
        number,
        name,
        kind,
        tuple(dict.fromkeys(maker[each] for each in _tensors(row, "Inputs") if each in maker)),
        tuple(dict.fromkeys(makes)),
        holds,
        is_layout=is_layout or (kind in _LAYOUT and not makes and not holds),
        is_heavy=_HEAVY.search(kind) is not None,
        is_composite=_COMPOSITE.search(kind) is not None,
        activation=_ACTIVATIONS.get(str(row.get("Activation", "")), ""),
        window=window_of({ours: row.get(theirs) for theirs, ours in window.items()}),
        shape=", ".join(
            f"{each.get('Format/Datatype', '')}{each.get('Dimensions', '')}"
            for each in row.get("Outputs", ())
            if isinstance(each, dict)
        ),
        kernel=str(row.get("TacticName", "")),
    )


def layer_members(source: SourceGraph, name: str, metadata: str = "") -> tuple[int, ...]:
    """The operators of the file that a layer's name or its metadata lists."""
    listed = [*_METADATA.findall(metadata), *_parts(name)]
    names = [each for given in listed for each in (given, _CLONE.sub("", given))]
    if name.endswith(_COPY):
        rest = _CLONE.sub("", name.removesuffix(_COPY))
        # `{operator}_{tensor}`, and either may have underscores in it.
        cuts = [at for at, letter in enumerate(rest) if letter == "_"]
        names += [rest[:at] for at in cuts if rest[at + 1 :] in source.by_output]
    return source.running(names)


def _parts(name: str) -> Iterator[str]:
    """`a + PWN(PWN(b), c)` is made of a, b and c. Names may have anything else in them."""
    yield name
    for part in name.split(" + "):
        yield part
        for inner in part.replace("PWN(", "").rstrip(")").split(","):
            yield inner.strip().rstrip(")")

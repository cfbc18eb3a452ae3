"""OpenVINO's execution graph as a file: what `benchmark_app -exec_graph_path` and
`openvino.serialize(compiled.get_runtime_model(), ...)` write, with the average time of every node
in it. A detailed counters report (`-report_type detailed_counters`) may give the times instead.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from whence.errors import ModelError
from whence.foreign.openvino_reader import read_nodes
from whence.foreign.reading import reading
from whence.foreign.recording import Recording, averaged
from whence.foreign.source import SourceGraph

FIRST_RUN = (
    "OpenVINO's averages are over all runs since the model was compiled, the first, which compiles"
    " kernels, included"
)


def read_openvino_xml(source: SourceGraph, path: Path, counters: Path | None = None) -> Recording:
    rows = _rows(path)
    if counters is None:
        told = {str(row["name"]): str(row["info"].get("execTimeMcs", "")) for row in rows}
        times = {name: int(text) * 1000 for name, text in told.items() if text.isdecimal()}
    else:
        times = _counters(counters)
    nodes = read_nodes(source, rows)
    by_node = {node.number: times[node.name] for node in nodes if node.name in times}
    return averaged("openvino", nodes, by_node, [FIRST_RUN])


def _rows(path: Path) -> list[dict[str, Any]]:
    with reading(path, "is not XML"):
        root = ElementTree.parse(path).getroot()
    layers = root.findall("./layers/layer")
    described = [layer.find("data") for layer in layers]
    infos = [{} if data is None else data.attrib for data in described]
    if root.tag != "net" or not layers or any("execOrder" not in info for info in infos):
        raise ModelError(f"'{path}' is no execution graph of OpenVINO: nodes have no execOrder")
    name = {layer.get("id", ""): layer.get("name", "") for layer in layers}
    inputs: dict[str, list[str]] = {number: [] for number in name}
    for edge in root.findall("./edges/edge"):
        start, end = edge.get("from-layer", ""), edge.get("to-layer", "")
        if start in name and end in inputs:
            inputs[end].append(name[start])
    return [
        {
            "name": layer.get("name", ""),
            "inputs": inputs[layer.get("id", "")],
            "shapes": [
                "[" + ",".join(dim.text or "" for dim in port.findall("dim")) + "]"
                for port in layer.findall("./output/port")
            ],
            "info": {**info, "layerType": layer.get("type", "")},
        }
        for layer, info in zip(layers, infos, strict=True)
    ]


def _counters(path: Path) -> dict[str, int]:
    """Nanoseconds by node of a detailed counters report, whose columns are separated by
    semicolons.
    """
    found = {}
    with reading(path, "is no detailed counters report"):
        text = path.read_text(encoding="utf-8", errors="replace")
        for row in csv.DictReader(io.StringIO(text), delimiter=";"):
            name, status = row.get("layerName"), str(row.get("execStatus", ""))
            time = next((row[key] for key in row if key and key.startswith("realTime")), None)
            if name and time and status.endswith("EXECUTED"):
                found[name] = round(float(time) * 1e6)
    if not found:
        raise ModelError(f"'{path}' is no detailed counters report: no layerName with a realTime")
    return found

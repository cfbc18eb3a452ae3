"""What a TFLite or Circle file declares, and how far a result of it may be from another engine's:
one step of the code it is made of.

| output                                                     | may differ by                                             |
|------------------------------------------------------------|-----------------------------------------------------------|
| codes of 8 or 16 bits                                      | 1                                                         |
| floats that are dequantised codes                          | what one code is worth                                    |
| everything else                                            | as in any model                                           |
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from whence.frontends.tflite.quantisation import quantisation_of
from whence.frontends.tflite.records import OperatorRecord, SubgraphRecord, read_records
from whence.frontends.tflite.tensors import dtype_of

_MOVES = frozenset(
    {
        "RESHAPE",
        "SQUEEZE",
        "TRANSPOSE",
        "CONCATENATION",
        "STRIDED_SLICE",
        "EXPAND_DIMS",
        "PACK",
        "SPLIT",
        "SLICE",
    }
)


def tolerances(file: Path) -> Sequence[float]:
    """What each output of a TFLite or Circle file may differ by; 0 where nothing is quantised."""
    main = read_records(file.read_bytes(), str(file)).subgraphs[0]
    made_by = {tensor: operator for operator in main.operators for tensor in operator.outputs}
    return [_worth(main, tensor, made_by) for tensor in main.outputs]


def declared_inputs(file: Path) -> list[tuple[str, np.dtype[np.generic], tuple[int, ...]]]:
    """Name, type and shape of each input, as LiteRT would allocate it."""
    main = read_records(file.read_bytes(), str(file)).subgraphs[0]
    return [
        (main.tensors[index].name, dtype_of(main.tensors[index]).numpy, main.tensors[index].shape)
        for index in main.inputs
    ]


def _worth(graph: SubgraphRecord, tensor: int, made_by: dict[int, OperatorRecord]) -> float:
    """What a code of an output is worth; 0 when it is not made of codes."""
    if quantisation_of(graph.tensors[tensor]) is not None:
        return 1.0
    seen = set()
    while tensor in made_by and tensor not in seen:
        seen.add(tensor)
        operator = made_by[tensor]
        if operator.name == "DEQUANTIZE":
            found = quantisation_of(graph.tensors[operator.inputs[0]])
            return float(found.scales.max()) if found is not None else 0.0
        if operator.name not in _MOVES:
            return 0.0
        tensor = operator.inputs[0]
    return 0.0

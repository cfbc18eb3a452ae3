"""What the operators of a subgraph can do without once all are written.

1. Two transposes in a row are one, or none when the second undoes the first.
2. A reshape of a reshape reshapes the first one's input.
3. A number that is made 64 bits wide and 32 again is what it was.
4. An operator whose results nobody reads is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from whence.frontends.tflite.export.writing import Subgraph, WrittenOperator
from whence.frontends.tflite.records import OperatorRecord

_STATEFUL = frozenset({"WHILE", "IF", "CALL", "CALL_ONCE", "ASSIGN_VARIABLE"})


def tidy(subgraph: Subgraph, outputs: Sequence[int]) -> None:
    """Leave out what is not needed to make the outputs."""
    makers: dict[int, OperatorRecord] = {}
    alias: dict[int, int] = {}
    instead: dict[int, int] = {}
    remaining: list[WrittenOperator] = []
    for each in subgraph.operators:
        record = dataclasses.replace(
            each.record, inputs=tuple(alias.get(tensor, tensor) for tensor in each.record.inputs)
        )
        if record.name in ("TRANSPOSE", "RESHAPE"):
            record = _joined(subgraph, record, makers.get(record.inputs[0]))
            if record.name == "TRANSPOSE" and _is_identity(subgraph, record):
                source, made = record.inputs[0], record.outputs[0]
                if made not in outputs:
                    alias[made] = source
                    continue
                if source in makers and source not in outputs:
                    # The operator that makes the source makes the output instead.
                    instead[source] = made
                    continue
        elif record.name == "CAST" and record.outputs[0] not in outputs:
            maker = makers.get(record.inputs[0])
            if maker is not None and maker.name == "CAST":
                ends = (maker.inputs[0], maker.outputs[0], record.outputs[0])
                if [subgraph.tensors[end].type for end in ends] == ["INT32", "INT64", "INT32"]:
                    alias[record.outputs[0]] = maker.inputs[0]
                    continue
        makers.update(dict.fromkeys(record.outputs, record))
        remaining.append(dataclasses.replace(each, record=record))
    subgraph.operators[:] = _read([_renamed(each, instead) for each in remaining], outputs)


def _renamed(each: WrittenOperator, names: dict[int, int]) -> WrittenOperator:
    if not names:
        return each
    inputs, outputs = (
        tuple(names.get(tensor, tensor) for tensor in tensors)
        for tensors in (each.record.inputs, each.record.outputs)
    )
    return dataclasses.replace(
        each, record=dataclasses.replace(each.record, inputs=inputs, outputs=outputs)
    )


def _joined(
    subgraph: Subgraph, record: OperatorRecord, maker: OperatorRecord | None
) -> OperatorRecord:
    """The operator on the input of the one before it, when that is of the same kind."""
    if maker is None or maker.name != record.name or len(record.inputs) < 2:
        return record
    if record.name == "RESHAPE":
        # Codes that mean something else in between: both are needed to say so.
        return dataclasses.replace(record, inputs=(maker.inputs[0], record.inputs[1]))
    first, second = (subgraph.constant_value(each.inputs[1]) for each in (maker, record))
    if first is None or second is None or len(first) != len(second):
        return record
    order = subgraph.constant(first[second].astype(np.int32))
    return dataclasses.replace(record, inputs=(maker.inputs[0], order))


def _is_identity(subgraph: Subgraph, record: OperatorRecord) -> bool:
    order = subgraph.constant_value(record.inputs[1])
    return order is not None and order.tolist() == list(range(len(order)))


def _read(operators: Sequence[WrittenOperator], outputs: Sequence[int]) -> list[WrittenOperator]:
    wanted = set(outputs)
    remaining = []
    for each in reversed(operators):
        if wanted.intersection(each.record.outputs) or each.record.name in _STATEFUL:
            wanted.update(each.record.inputs)
            remaining.append(each)
    return remaining[::-1]

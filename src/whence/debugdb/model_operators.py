"""The operators of a TFLite or Circle file, as a join with a debug database needs them.

Only the file's structure is read, so that a model with operators that whence does not compile can
be joined as well.
"""

from __future__ import annotations

from pathlib import Path

from whence.debugdb.join import ModelOperator
from whence.errors import ModelError
from whence.frontends.tflite.records import ABSENT, read_records


def model_operators(path: Path) -> list[ModelOperator]:
    """Every operator, numbered from 1 in file order, subgraph after subgraph. It is named by its
    first output, as TFLite's own tools do.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"'{path}' cannot be read: {error.strerror or error}") from error
    model = read_records(data, f"'{path}'")
    found: list[ModelOperator] = []
    for number, subgraph in enumerate(model.subgraphs):
        makers: dict[int, int] = {}
        for index, operator in enumerate(subgraph.operators):
            own = len(found) + 1
            outputs = [tensor for tensor in operator.outputs if tensor != ABSENT]
            first = subgraph.tensors[outputs[0]] if outputs else None
            found.append(
                ModelOperator(
                    id=own,
                    name=(first.name if first is not None else "") or f"{operator.name} {index}",
                    op=operator.name,
                    subgraph=number,
                    index=index,
                    shape=first.shape if first is not None else None,
                    makers=tuple(
                        dict.fromkeys(
                            makers[tensor] for tensor in operator.inputs if tensor in makers
                        )
                    ),
                )
            )
            makers.update(dict.fromkeys(outputs, own))
    return found

"""Operators that go out as they came: what they were read from is an attribute of the node (see
`frontends/tflite/written_back.py`).
"""

from __future__ import annotations

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.records import ABSENT
from whence.frontends.tflite.written_back import renumber_blocks, states_of, written_call


def _call(call: ExportCall) -> None:
    model, node, subgraph = written_call(call.node), call.node, call.writer.subgraph
    (written,) = model.subgraphs
    (operator,) = written.operators
    states = call.writer.state.of_layer.get(node.id, [])
    if len(states) != len(states_of(written)):
        call.unsupported("the state that it keeps is used elsewhere, or begins with other values")
    made: dict[int, int] = {
        index: call.output(place) for place, index in enumerate(written.outputs)
    }
    for place, index in enumerate(written.inputs):
        if not written.tensors[index].is_variable:
            ref = node.inputs[place]
            assert ref is not None
            made[index] = call.writer.tensor(ref)

    def tensor(index: int) -> int | None:
        if index == ABSENT:
            return None
        if index not in made:
            record = renumber_blocks(
                written.tensors[index],
                lambda each: ABSENT if (new := tensor(each)) is None else new,
            )
            made[index] = subgraph.copy_of(record, model.buffers[record.buffer])
        return made[index]

    call.emit(
        operator.name,
        [tensor(index) for index in operator.inputs],
        operator.options,
        outputs=[made[index] for index in written.outputs],
        version=operator.version,
        custom=operator.custom_options,
        intermediates=[
            each for index in operator.intermediates if (each := tensor(index)) is not None
        ],
    )


EXPORTS: Exports = {"Call": _call}

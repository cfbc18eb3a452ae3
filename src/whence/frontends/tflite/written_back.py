"""Operators that go out as they came: recurrent layers on codes, and products with weights in codes
of which the graph does not say how a runtime multiplies them.

LiteRT computes such layers in integers of its own, which the graph has in many small operators that
no file could say as one again. So such an operator is read as a `Call`: the graph that it holds
computes it, and its attribute `record` is a TFLite or Circle model of this operator alone, with its
weights, its options and what its tensors mean. Passes for compiling put the graph in its place;
writers of both formats take the record.

The inputs of the node are the values that it is given, in the order of the model's inputs, then the
variables that it keeps; its outputs are what it makes, then the variables' next values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from whence.errors import ModelError
from whence.frontends.tflite.emitter import Emitter
from whence.frontends.tflite.mapping import Mapper, OperatorCall
from whence.frontends.tflite.quantisation import quantisation_of
from whence.frontends.tflite.records import (
    ABSENT,
    VERSIONS,
    BlocksRecord,
    ModelRecord,
    SubgraphRecord,
    TensorRecord,
    read_records,
)
from whence.frontends.tflite.scope import SubgraphScope
from whence.frontends.tflite.serialise import serialise
from whence.frontends.tflite.variables import KEEPING
from whence.graph.node import Node, Ref


def is_written_back(call: OperatorCall) -> bool:
    """Is it a recurrent layer with weights or activations in codes, a product of real numbers and
    codes, or has it weights quantised by blocks?
    """
    tensors = [call.tensor(index) for index in range(call.n_inputs) if call.has(index)]
    # Sparse weights are stored densely once they are read.
    if any(each.sparsity is not None for each in tensors):
        return False
    quantised = [quantisation_of(each) is not None for each in tensors]
    if call.record.name == "BATCH_MATMUL":
        return any(quantised) and not all(quantised)
    return any(each.quantisation is not None and each.quantisation.blocks for each in tensors) or (
        call.record.name in KEEPING and call.record.name != "GRU" and any(quantised)
    )


def call_body(call: OperatorCall, mapper: Mapper) -> None:
    """Have `mapper` map the operator into a graph that it holds."""
    within, record = call.subgraph, call.record
    used = dict.fromkeys(index for index in record.inputs if index != ABSENT)
    keys = {index: key for index in used if (key := within.state_key(index)) is not None}
    given = [index for index in used if index not in keys and not within.is_stored(index)]
    values = [within.value(index) for index in (*given, *keys)]

    def fill(body: Emitter, refs: list[Ref]) -> list[Ref]:
        inner = SubgraphScope(body.scope, within.index, within.record, within.path)
        for index, ref in zip(given, refs, strict=False):
            inner.define(index, ref)
        body.scope.present.update(zip(keys.values(), refs[len(given) :], strict=True))
        mapped = OperatorCall(inner, record, call.place)
        mapper(mapped)
        return [*mapped.results(), *(body.scope.present[key] for key in keys.values())]

    body = call.body("operators", [call.type_of(ref) for ref in values], fill)
    model = _model_of(call, given, list(keys))
    made = call.emit_holder(
        "Call", values, {"body": body}, body.output_types, attrs={"record": model}
    )
    outputs = [index for index, tensor in enumerate(record.outputs) if tensor != ABSENT]
    for index, ref in zip(outputs, made, strict=False):
        call.output_codes(index, ref)
    for key, ref in zip(keys.values(), made[len(outputs) :], strict=True):
        call.assign(key, ref)


def _model_of(call: OperatorCall, given: list[int], state: list[int]) -> bytes:
    """A model of this operator alone. Its inputs are what the operator is given, then the variables
    that it keeps; its outputs are what the operator makes.
    """
    record, reading = call.record, call.scope.reading
    listed = [*given, *state, *record.inputs, *record.intermediates, *record.outputs]
    listed += [each for index in listed if index != ABSENT for each in _scales_of(call, index)]
    found = dict.fromkeys(index for index in listed if index != ABSENT)
    places = {index: place for place, index in enumerate(found)}
    buffers: list[np.ndarray] = [np.empty(0, np.uint8)]
    tensors: list[TensorRecord] = []
    for index in places:
        tensor = call.subgraph.tensor(index)
        data = reading.model.buffers[tensor.buffer] if tensor.buffer else buffers[0]
        tensor = renumber_blocks(tensor, lambda index: places.get(index, ABSENT))
        tensors.append(replace(tensor, buffer=len(buffers) if data.nbytes else 0))
        if data.nbytes:
            buffers.append(data)

    def renumbered(indices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(places.get(index, ABSENT) for index in indices)

    operator = replace(
        record,
        inputs=renumbered(record.inputs),
        outputs=renumbered(record.outputs),
        intermediates=renumbered(record.intermediates),
    )
    inputs = renumbered((*given, *state))
    outputs = tuple(places[index] for index in record.outputs if index != ABSENT)
    subgraph = SubgraphRecord(record.name, tuple(tensors), inputs, outputs, (operator,))
    form = reading.model.format
    return serialise(ModelRecord(form, VERSIONS[form], "", (subgraph,), tuple(buffers), (), ()))


def _scales_of(call: OperatorCall, index: int) -> list[int]:
    """The tensors that hold scales and zero points of another."""
    found = call.subgraph.tensor(index).quantisation
    if found is None or found.blocks is None:
        return []
    return [each for each in (found.blocks.scales, found.blocks.zero_points) if each != ABSENT]


def renumber_blocks(tensor: TensorRecord, number: Callable[[int], int]) -> TensorRecord:
    """The tensor in a file where those that hold its scales have other numbers."""
    found = tensor.quantisation
    if found is None or found.blocks is None:
        return tensor
    blocks = BlocksRecord(
        number(found.blocks.scales), number(found.blocks.zero_points), found.blocks.size
    )
    return replace(tensor, quantisation=replace(found, blocks=blocks))


def written_call(node: Node) -> ModelRecord:
    """The model that a `Call` was read from, of one operator. What the node takes are the inputs of
    its subgraph, and what it first makes are the outputs; the next values of variables follow.
    """
    record = node.attrs.get("record")
    if not isinstance(record, bytes):
        raise ModelError(f"operator '{node.name}' (Call) does not say what it was read from")
    return read_records(record, f"the record of operator '{node.name}'")


def states_of(written: SubgraphRecord) -> list[tuple[int, int]]:
    """Where a `Call` takes each variable, and where it gives its next value."""
    tensors, first = written.tensors, len(written.outputs)
    held = [place for place, index in enumerate(written.inputs) if tensors[index].is_variable]
    return list(zip(held, range(first, first + len(held)), strict=True))

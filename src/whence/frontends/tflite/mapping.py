"""What a mapping of one operator works with: `OperatorCall`, the operator of the file and the means
to say it in canonical operators.

A mapper reads its inputs, emits nodes and names its outputs:

    def _relu(call: OperatorCall) -> None:
        call.output(0, call.op("Relu", call.real(0)))

- `real(i)` and `output(i, ref)` are in real numbers: where the file's tensor is quantised they put
  DequantizeLinear and QuantizeLinear around it.
  `needed(i)` and `output_codes(i, ref)` are the tensors as the file has them; `move` takes these
  where it can. Both are of inputs that the operator cannot do without; `has(i)` asks for others.
- `constant(i)` is the value of an input that the file stores, or that follows from shapes, in real
  numbers; `constant_codes(i)` the same in codes.
- Everything emitted gets the operator's origin. The last node that makes one of its outputs bears
  the operator's number.

What does not fit raises through `fail` (the file is wrong) or `unsupported` (the file is right and
whence cannot).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from whence.frontends.importer import OperatorOrigin
from whence.frontends.naming import quoted
from whence.frontends.tflite.emitter import Emitter, OperatorOfFile
from whence.frontends.tflite.quantisation import (
    FIXED_POINT,
    ROUND_AWAY,
    parameters,
    quantisation_of,
    unit_of_bias,
)
from whence.frontends.tflite.records import (
    ABSENT,
    BlocksRecord,
    OperatorRecord,
    QuantisationRecord,
    TensorRecord,
)
from whence.frontends.tflite.schema import activation_names
from whence.frontends.tflite.scope import SubgraphScope
from whence.frontends.tflite.tensors import dtype_of
from whence.graph.node import Node, Ref, const_node
from whence.ops.definition import Attr
from whence.ops.quantised.quantise import integer_range
from whence.provenance import Reason
from whence.types import DType, TensorType

HYBRID = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
"""Operators that take real activations beside weights of 8 bits."""
Mapper: TypeAlias = "Callable[[OperatorCall], None]"
Mappings: TypeAlias = Mapping[str, Mapper]

FUNCTIONS = {"TANH": "Tanh", "RELU": "Relu"}
_BOUNDS = {"RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1)}


def activated(at: Emitter, value: Ref, kind: str) -> Ref:
    """The value after the activation that the schema calls `kind`."""
    if kind in _BOUNDS:
        return at.clip(value, *_BOUNDS[kind])
    if kind in FUNCTIONS:
        return at.op(FUNCTIONS[kind], value)
    if kind != "NONE":
        at.unsupported(f"the activation {kind}")
    return value


class OperatorCall(OperatorOfFile):
    """One operator of the file while it is mapped. `Emitter` has what makes nodes: `op`, `const`,
    `cast`, `clip`, `body`, `inline`, `fail`; `OperatorOfFile` what the file says of the operator.
    """

    def __init__(
        self, subgraph: SubgraphScope, record: OperatorRecord, place: OperatorOrigin
    ) -> None:
        super().__init__(subgraph, record, place)
        self._outputs: dict[int, Ref] = {}

    # ---- inputs ----

    def needed(self, index: int) -> Ref:
        """Input `index` as it is in the file."""
        return self.subgraph.value(self.input_number(index))

    def real(self, index: int) -> Ref:
        """Input `index` in real numbers, dequantised if need be."""
        tensor = self.tensor(index)
        found = quantisation_of(tensor)
        if found is None:
            return self.needed(index)
        return self._dequantise(self.needed(index), tensor, found)

    def constant_codes(self, index: int) -> np.ndarray | None:
        """An input's value in codes, when it is stored or follows from shapes."""
        return self.subgraph.constant(self.record.inputs[index]) if self.has(index) else None

    def constant(self, index: int) -> np.ndarray | None:
        """An input's value in real numbers, when it is stored or follows from shapes."""
        codes = self.constant_codes(index)
        found = self.quantisation(index)
        if codes is None or found is None:
            return codes
        scale, zero, axis = parameters(self.tensor(index), found)
        spread = [1] * codes.ndim
        if scale.ndim:
            spread[axis] = -1
        return np.asarray(
            (codes.astype(np.float32) - zero.astype(np.float32).reshape(spread))
            * scale.reshape(spread),
            np.float32,
        )

    def arranged(self, index: int, codes: np.ndarray, axis: int) -> Ref:
        """A stored input in real numbers, its codes in another arrangement; `axis` is where its
        quantised dimension is then.
        """
        tensor = self.tensor(index)
        self.scope.reading.copied(codes.nbytes)
        ref = self.const(np.ascontiguousarray(codes), tensor.name)
        found = quantisation_of(tensor)
        return ref if found is None else self._dequantise(ref, tensor, found, axis)

    def numbers(self, index: int, what: str) -> tuple[int, ...]:
        """The whole numbers in an input that must be known while reading, such as axes."""
        value = self.constant_codes(index)
        if value is None:
            self.unsupported(
                f"its {what} are computed while the model runs; whence needs them stored in the"
                " file"
            )
        if value.dtype.kind not in "iu":
            self.fail(f"its {what} are {value.dtype}, not whole numbers")
        return tuple(int(item) for item in value.reshape(-1))

    def stored(self, index: int) -> bool:
        """Does the file store this input?"""
        return self.has(index) and self.subgraph.is_stored(self.record.inputs[index])

    def whole(self, index: int) -> Ref:
        """An input of integers, such as a shape, as int64, which canonical operators take."""
        value = self.constant_codes(index) if self.stored(index) else None
        if value is None:
            return self.cast(self.needed(index), DType.I64)
        return self.const(value.astype(np.int64))

    def bias(self, index: int, scale: np.ndarray | None = None) -> Ref | None:
        """A bias, a list of real numbers: whole numbers of 32 or 64 bits are multiples of `scale`,
        the unit of the sums that they are added to, or of its own where that is not known.
        """
        if not self.has(index):
            return None
        tensor = self.tensor(index)
        codes = self.constant_codes(index) if self.stored(index) else None
        if tensor.type not in ("INT32", "INT64"):
            ref = self.real(index)
            return ref if self.rank(index) == 1 else self.op("Reshape", ref, self.ints(-1))
        own = tensor.quantisation
        stated = own.scales if own is not None and len(own.scales) else None
        step = unit_of_bias(stated, scale)
        step = step.reshape(()) if step.size == 1 else step.reshape(-1)
        if codes is None:
            ref = self.cast(self.op("Reshape", self.needed(index), self.ints(-1)), DType.I32)
        elif np.any(np.abs(codes) > np.iinfo(np.int32).max):
            return self.const(
                (codes.astype(np.float64).reshape(-1) * step).astype(np.float32), tensor.name
            )
        else:
            ref = self.const(codes.astype(np.int32, copy=False).reshape(-1), tensor.name)
        return self.emit(
            "DequantizeLinear", [ref, self.const(step)], {"axis": 0} if step.ndim else {}
        )

    @property
    def activation(self) -> str:
        """The operator's fused activation, as the schema names it."""
        return activation_names().get(self.integer("fused_activation_function"), "unknown")

    def activate(self, ref: Ref) -> Ref:
        """The value after the operator's fused activation."""
        return activated(self, ref, self.activation)

    # ---- outputs ----

    def output(self, index: int, ref: Ref) -> None:
        """Name a value in real numbers as output `index`, quantised where the file's tensor is."""
        if self.has_output(index):
            self.output_codes(index, self.as_output(index, ref))

    def outputs(self, refs: Iterable[Ref]) -> None:
        """Name values in real numbers as the outputs, in order."""
        for index, ref in enumerate(refs):
            self.output(index, ref)

    def as_output(self, index: int, ref: Ref) -> Ref:
        """A value in real numbers, quantised as output `index` of the file is."""
        tensor = self.output_tensor(index)
        found = quantisation_of(tensor)
        if found is None or not self.tensor_type_of(ref).dtype.is_float:
            return ref
        scale, zero, axis = parameters(tensor, found)
        if DType.of(zero) is not dtype_of(tensor):
            return self._quantise_by_hand(ref, scale, zero, dtype_of(tensor))
        # What QUANTIZE is given in real numbers was computed in them.
        is_real = self.record.name == "QUANTIZE" and self.tensor(0).type == "FLOAT32"
        attrs: dict[str, Attr] = {"arithmetic": ROUND_AWAY if is_real else FIXED_POINT}
        if scale.ndim:
            attrs["axis"] = axis
        return self.emit("QuantizeLinear", [ref, self.const(scale), self.const(zero)], attrs)

    def output_codes(self, index: int, ref: Ref) -> None:
        """Name a value as output `index`, as it is."""
        if not self.has_output(index):
            return
        if index in self._outputs:
            self.fail(f"its output {index} is made twice")
        if not self.makes(ref):
            # Something must stand for the operator, even if it does nothing.
            ref = self.op("Identity", ref)
        wanted, kind = dtype_of(self.output_tensor(index)), self.type_of(ref)
        if (
            isinstance(kind, TensorType)
            and kind.dtype is not wanted
            and kind.dtype is not DType.UNDEFINED
        ):
            ref = self.cast(ref, wanted)
        self._outputs[index] = ref

    def outputs_codes(self, refs: Iterable[Ref]) -> None:
        """Name values as the outputs, in order and as they are."""
        for index, ref in enumerate(refs):
            self.output_codes(index, ref)

    def output_constant(self, index: int, array: np.ndarray) -> None:
        """Say that output `index` is a constant."""
        node = self.hold(const_node(self.scope.graph.new_id(), array))
        self.scope.learn(node.ref(), array)
        self._outputs[index] = node.ref()

    def output_known(self, index: int, array: np.ndarray, rule: str) -> None:
        """Say that output `index` is a constant that only mappings read."""
        self._outputs[index] = self.const(array)
        self.add_own_tombstone(Reason.ABSORBED, rule)

    def keeps_codes(self, index: int = 0) -> bool:
        """Do input `index` and the first output mean the same by the same codes?"""
        given, made = self.quantisation(index), self.output_quantisation(0)
        if given is None or made is None:
            return given is made
        same_scales = np.array_equal(given.scales, made.scales) and np.array_equal(
            given.zero_points, made.zero_points
        )
        return same_scales and len(given.scales) == 1

    def move(self, make: Callable[..., Ref], inputs: Sequence[int] = (0,)) -> None:
        """The output is what `make` makes of the values of these inputs, which it only moves or
        chooses: of their codes where all mean the same as in the output, and no activation follows.
        """
        if self.activation == "NONE" and all(map(self.keeps_codes, inputs)):
            self.output_codes(0, make(*map(self.needed, inputs)))
        else:
            self.output(0, self.activate(make(*map(self.real, inputs))))

    def adopt(self, ref: Ref) -> Ref:
        """Have a variable that nothing has read yet stand for this operator."""
        node = self.scope.graph[ref.node]
        name = node.name
        self.scope.graph.remove(node)
        self.hold(node).name = name
        return node.ref()

    def has_state(self, index: int) -> bool:
        """Is input `index` a variable tensor, which the operator keeps from one run to the next?"""
        return self.has(index) and self.subgraph.state_key(self.input_number(index)) is not None

    def assign_state(self, index: int, ref: Ref) -> None:
        """Give input `index`, where it is a variable tensor, the value, in real numbers or in the
        codes of the file, that operators after this one and the next run see.
        """
        key = self.subgraph.state_key(self.input_number(index)) if self.has(index) else None
        if key is None:
            return
        tensor = self.tensor(index)
        found = quantisation_of(tensor)
        if found is not None and self.tensor_type_of(ref).dtype.is_float:
            scale, zero, _ = parameters(tensor, found)
            ref = self.op("QuantizeLinear", ref, self.const(scale), self.const(zero))
        if self.tensor_type_of(ref).static_shape != tensor.shape:
            ref = self.op("Reshape", ref, self.ints(*tensor.shape))
        self.assign(key, self.cast(ref, dtype_of(tensor)))

    # ---- the end ----

    def add_own_tombstone(self, reason: Reason, rule: str) -> None:
        """Say that the operator leaves no node, and why: its work is done by others."""
        self.enter()
        self.add_tombstone(self.place, reason, rule)
        self._is_accounted_for = True

    def finish(self) -> None:
        """Enter all nodes into the graph, one as the operator itself; define its outputs."""
        keeper = self.keep(self._outputs.values(), 0)
        if keeper is not None:
            self.rename(keeper, self.scope.reading.claim(self.place.number) or keeper.id)
        if not self._pending and not self._outputs and not self._is_accounted_for:
            rule = f"{self.name} does nothing but tell others what to do"
            self.add_own_tombstone(Reason.ABSORBED, rule)
        self.enter(keeper)
        for index, ref in self._mapped():
            self.subgraph.define(self.record.outputs[index], ref)

    def results(self) -> list[Ref]:
        """End in a graph that the operator holds: put all nodes there; its outputs."""
        self.enter()
        return [ref for _, ref in self._mapped()]

    def _mapped(self) -> Iterator[tuple[int, Ref]]:
        for index in filter(self.has_output, range(len(self.record.outputs))):
            if index not in self._outputs:
                self.fail(f"its output {index} is not mapped")
            yield index, self._outputs[index]

    def rename(self, node: Node, number: int) -> None:
        old = node.id
        super().rename(node, number)
        self._outputs = {
            index: Ref(number, ref.index) if ref.node == old else ref
            for index, ref in self._outputs.items()
        }
        self.scope.rename(old, number)

    def _quantise_by_hand(self, ref: Ref, scale: np.ndarray, zero: np.ndarray, dtype: DType) -> Ref:
        """As QuantizeLinear, for a zero point that is no code."""
        steps = self.op("Round", self.op("Div", ref, self.const(scale)))
        return self.cast(
            self.clip(
                self.op("Add", steps, self.const(zero.astype(np.float32))),
                *integer_range(dtype),
            ),
            dtype,
        )

    def _dequantise(
        self, ref: Ref, tensor: TensorRecord, found: QuantisationRecord, axis: int | None = None
    ) -> Ref:
        if found.blocks is not None:
            return self._dequantise_blocks(ref, tensor, found.blocks)
        scale, zero, axis = parameters(tensor, found, axis)
        if DType.of(zero) is not dtype_of(tensor):
            # No code means zero: DequantizeLinear cannot say that, its zero point is a code.
            centred = self.op("Sub", self.cast(ref, DType.F32), self.const(zero.astype(np.float32)))
            return self.op("Mul", centred, self.const(scale))
        return self.dequantise(ref, tensor, scale, zero, axis)

    def dequantise(
        self, ref: Ref, tensor: TensorRecord, scale: np.ndarray, zero: np.ndarray, axis: int
    ) -> Ref:
        """The codes of a tensor in real numbers, by these parameters. What it says of weights is
        that LiteRT multiplies them with codes that it finds for real activations while the model
        runs.
        """
        attrs: dict[str, Attr] = {"axis": axis} if scale.ndim else {}
        is_hybrid = (
            self.record.name in HYBRID
            and tensor.type in ("INT8", "UINT8")
            and self.has(1)
            and self.tensor(1) is tensor
            and self.tensor(0).type == "FLOAT32"
        )
        if is_hybrid:
            asymmetric = self.flag("asymmetric_quantize_inputs")
            attrs["arithmetic"] = "hybrid_asymmetric" if asymmetric else "hybrid"
        return self.emit("DequantizeLinear", [ref, self.const(scale), self.const(zero)], attrs)

    def _dequantise_blocks(self, ref: Ref, tensor: TensorRecord, blocks: BlocksRecord) -> Ref:
        """As DequantizeLinear with a `block_size`. LiteRT multiplies such weights with activations
        that it quantises too; here they are real.
        """
        parts = [self.subgraph.stored_tensor(blocks.scales)]
        if blocks.zero_points != ABSENT:
            parts.append(self.subgraph.stored_tensor(blocks.zero_points))
        shape = (*tensor.shape[:-1], -(-tensor.shape[-1] // blocks.size)) if tensor.shape else ()
        for part, what in zip(parts, ("scales", "zero points"), strict=False):
            if part is None or part.shape != shape:
                found = "not stored" if part is None else f"of shape {list(part.shape)}"
                self.fail(
                    f"the {what} of {quoted(tensor.name)}, blocks of {blocks.size} in"
                    f" {list(tensor.shape)}, are {found}"
                )
        kinds = (np.dtype(np.float32), dtype_of(tensor).numpy)
        inputs = [
            self.const(part.astype(kind))
            for part, kind in zip(parts, kinds, strict=False)
            if part is not None
        ]
        attrs: dict[str, Attr] = {"axis": len(shape) - 1, "block_size": blocks.size}
        return self.emit("DequantizeLinear", [ref, *inputs], attrs)

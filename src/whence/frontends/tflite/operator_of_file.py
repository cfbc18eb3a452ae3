"""An operator as the file has it: its tensors, their types and parameters, its options."""

from __future__ import annotations

from whence.frontends.importer import OperatorOrigin
from whence.frontends.tflite.emitter import Emitter
from whence.frontends.tflite.quantisation import quantisation_of
from whence.frontends.tflite.records import (
    ABSENT,
    OperatorRecord,
    QuantisationRecord,
    TensorRecord,
)
from whence.frontends.tflite.scope import SubgraphScope
from whence.types import TensorType


class OperatorOfFile(Emitter):
    """What a mapping asks of the operator that it maps. A tensor that is not there, or an option
    that is no such value, is an error of the file that names the operator.
    """

    def __init__(
        self, subgraph: SubgraphScope, record: OperatorRecord, place: OperatorOrigin
    ) -> None:
        super().__init__(subgraph.scope, record.name, place, subgraph.path)
        self.record = record
        self.options = record.options
        self.subgraph = subgraph
        """Where it stands."""

    @property
    def n_inputs(self) -> int:
        return len(self.record.inputs)

    @property
    def n_outputs(self) -> int:
        return len(self.record.outputs)

    def has(self, index: int) -> bool:
        """Is input `index` given?"""
        return index < len(self.record.inputs) and self.record.inputs[index] != ABSENT

    def has_output(self, index: int) -> bool:
        return index < len(self.record.outputs) and self.record.outputs[index] != ABSENT

    def tensor(self, index: int) -> TensorRecord:
        """The file's record of an input that is given."""
        return self.subgraph.tensor(self.input_number(index))

    def output_tensor(self, index: int) -> TensorRecord:
        return self.subgraph.tensor(self.output_number(index))

    def type(self, index: int) -> TensorType:
        """The type of an input as it is in the file, with the shape that inference found."""
        kind = self.tensor_type_of(self.subgraph.value(self.input_number(index)))
        if kind.shape is None:
            declared = self.subgraph.declared(self.input_number(index))
            return TensorType(
                kind.dtype, None if declared.shape is None else (None,) * len(declared.shape)
            )
        return kind

    def rank(self, index: int) -> int:
        kind = self.type(index)
        if kind.shape is None:
            self.unsupported(f"the number of dimensions of input {index} is not known")
        return len(kind.shape)

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of an input that must be known."""
        shape = self.type(index).static_shape
        if shape is None:
            self.unsupported(f"the shape of input {index}, {self.type(index)}, is not known")
        return shape

    def output_type(self, index: int) -> TensorType:
        """What the file declares of an output. LiteRT does not rely on the shape, nor should a
        mapping that can do without.
        """
        return self.subgraph.declared(self.output_number(index))

    def quantisation(self, index: int) -> QuantisationRecord | None:
        """The parameters of an input that is quantised."""
        return quantisation_of(self.tensor(index)) if self.has(index) else None

    def output_quantisation(self, index: int) -> QuantisationRecord | None:
        return quantisation_of(self.output_tensor(index))

    def integer(self, option: str, default: int = 0) -> int:
        value = self.options.get(option, default)
        if not isinstance(value, int):
            self.fail(f"option {option} is {value!r}, not a whole number")
        return int(value)

    def number(self, option: str, default: float = 0.0) -> float:
        value = self.options.get(option, default)
        if not isinstance(value, int | float):
            self.fail(f"option {option} is {value!r}, not a number")
        return float(value)

    def flag(self, option: str) -> bool:
        return bool(self.options.get(option))

    def integers(self, option: str) -> tuple[int, ...]:
        value = self.options.get(option, ())
        if not isinstance(value, tuple):
            self.fail(f"option {option} is {value!r}, not a list")
        return tuple(int(item) for item in value)

    def input_number(self, index: int) -> int:
        """The number of the tensor that is this input."""
        if not self.has(index):
            self.fail(f"input {index} is missing; it has {len(self.record.inputs)}")
        return self.record.inputs[index]

    def output_number(self, index: int) -> int:
        """The number of the tensor that is this output."""
        if not self.has_output(index):
            self.fail(f"output {index} is missing; it has {len(self.record.outputs)}")
        return self.record.outputs[index]

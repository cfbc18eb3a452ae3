"""Records of a model as the bytes of a TFLite or Circle file: the other way from
`records.read_records`.

1. Buffers stand in the order of the records; their data is aligned to 16 bytes, as runtimes that
   map the file expect.
2. A metadata entry's payload gets a buffer of its own, after all others, in the order of the
   entries.
3. Operator codes are listed in the order in which operators first use them. A code above 126 is 127
   in the old field of 8 bits, which means "look at the new one"; all others, Circle's negative ones
   among them, stand in both.
4. A file that would not fit into 2 GB keeps its buffers behind the flatbuffer and tells their
   places.
"""

from __future__ import annotations

import functools
import importlib
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import flatbuffers
import numpy as np

from whence.errors import UnsupportedError
from whence.frontends.tflite.records import (
    CIRCLE,
    IDENTIFIERS,
    PACKAGES,
    TFLITE,
    BlocksRecord,
    ModelRecord,
    OperatorRecord,
    QuantisationRecord,
    SubgraphRecord,
    TensorRecord,
)
from whence.frontends.tflite.schema import Option, enum_names

_ALIGNMENT = 16
_PLACEHOLDER = 127
_BLOCKWISE = {TFLITE: 2, CIRCLE: 3}
"""The number of `BlockwiseQuantization` among the forms of quantisation."""
_MOST_INLINE = 1_900_000_000
_CUSTOM = "CUSTOM:"
_SHARED_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), "Pool2DOptions"),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    **dict.fromkeys(
        ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL"),
        "ReducerOptions",
    ),
    **dict.fromkeys(("RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "MULTINOMIAL"), "RandomOptions"),
    "L2_NORMALIZATION": "L2NormOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
}
"""The options tables that are not called like their operators."""


def serialise(model: ModelRecord, *, most_inline: int = _MOST_INLINE) -> bytes:
    """The file's bytes. An operator that the format does not have is an `UnsupportedError`."""
    payloads = [np.frombuffer(payload, np.uint8) for _, payload in model.metadata]
    buffers = [*model.buffers, *payloads]
    outside = sum(each.nbytes for each in buffers) > most_inline
    writer = _Writer(model.format)
    file = bytearray(writer.file(model, buffers, outside))
    return bytes(_append_buffers(file, buffers, writer.package) if outside else file)


class _Writer:
    """Writes the tables of one file, innermost first as flatbuffers want it."""

    def __init__(self, form: str) -> None:
        self.package = PACKAGES[form]
        self._form = form
        self._builder = flatbuffers.Builder(1 << 16)
        self._codes: dict[tuple[str, int], int] = {}
        self._numbers = {
            enum: {name: number for number, name in enum_names(self.package, enum).items()}
            for enum in _ENUMS
        }

    def file(self, model: ModelRecord, buffers: Sequence[np.ndarray], outside: bool) -> bytes:
        placed = [self._buffer(data, outside) for data in buffers]
        subgraphs = [self._subgraph(each) for each in model.subgraphs]
        metadata = []
        for position, (name, _) in enumerate(model.metadata):
            metadata.append(
                self._table(
                    "Metadata", {"Name": self._text(name), "Buffer": len(model.buffers) + position}
                )
            )
        signatures = [
            self._table(
                "SignatureDef",
                {
                    "Inputs": self._named_tensors(each.inputs),
                    "Outputs": self._named_tensors(each.outputs),
                    "SignatureKey": self._text(each.key),
                    "SubgraphIndex": each.subgraph,
                },
            )
            for each in model.signatures
        ]
        codes = [self._operator_code(name, version) for name, version in self._codes]
        root = self._table(
            "Model",
            {
                "Version": model.version,
                "OperatorCodes": self._offsets(codes),
                "Subgraphs": self._offsets(subgraphs),
                "Description": self._text(model.description),
                "Buffers": self._offsets(placed),
                "Metadata": self._offsets(metadata),
                "SignatureDefs": self._offsets(signatures) if signatures else None,
            },
        )
        identifier = next(mark for mark, form in IDENTIFIERS.items() if form == self._form)
        self._builder.Finish(root, file_identifier=identifier)
        return bytes(self._builder.Output())

    # ---- parts ----

    def _buffer(self, data: np.ndarray, outside: bool) -> int:
        if outside and data.nbytes > 1:
            # A size of 0 or 1 means that there is none. Places are filled in once the flatbuffer's
            # own size is known; 1 means "not yet".
            return self._table("Buffer", {"Offset": 1, "Size": 1})
        if not data.nbytes:
            return self._table("Buffer", {})
        # As CreateByteVector, which does not align.
        builder = self._builder
        builder.StartVector(1, data.nbytes, _ALIGNMENT)
        builder.head -= data.nbytes
        builder.Bytes[builder.head : builder.head + data.nbytes] = data.tobytes()
        return self._table("Buffer", {"Data": builder.EndVector()})

    def _subgraph(self, subgraph: SubgraphRecord) -> int:
        tensors = [self._tensor(each) for each in subgraph.tensors]
        operators = [self._operator(each) for each in subgraph.operators]
        return self._table(
            "SubGraph",
            {
                "Tensors": self._offsets(tensors),
                "Inputs": self._vector(subgraph.inputs),
                "Outputs": self._vector(subgraph.outputs),
                "Operators": self._offsets(operators),
                "Name": self._text(subgraph.name) if subgraph.name else None,
            },
        )

    def _tensor(self, tensor: TensorRecord) -> int:
        number = self._numbers["TensorType"].get(tensor.type)
        if number is None:
            raise UnsupportedError(
                f"tensor '{tensor.name}': {self._form} has no element type {tensor.type}"
            )
        fields = {
            "Shape": self._vector(tensor.shape) if tensor.shape or tensor.has_rank else None,
            "Type": number,
            "Buffer": tensor.buffer,
            "Name": self._text(tensor.name),
            "Quantization": None
            if tensor.quantisation is None
            else self._quantisation(tensor.quantisation),
            "IsVariable": tensor.is_variable,
            "ShapeSignature": None if tensor.signature is None else self._vector(tensor.signature),
            "HasRank": tensor.has_rank,
        }
        return self._table("Tensor", fields)

    def _quantisation(self, found: QuantisationRecord) -> int:
        fields = {
            "Scale": self._vector(found.scales, np.float32),
            "ZeroPoint": self._vector(found.zero_points, np.int64),
            "QuantizedDimension": found.axis,
        }
        if found.blocks is not None:
            fields["DetailsType"] = _BLOCKWISE[self._form]
            fields["Details"] = self._blocks(found.blocks)
        return self._table("QuantizationParameters", fields)

    def _blocks(self, blocks: BlocksRecord) -> int:
        """The table `BlockwiseQuantization`, whose class not every package of the schema has."""
        self._builder.StartObject(3)
        for slot, number in enumerate((blocks.scales, blocks.zero_points, blocks.size)):
            self._builder.PrependInt32Slot(slot, number, 0)
        return int(self._builder.EndObject())

    def _operator(self, operator: OperatorRecord) -> int:
        code = self._codes.setdefault((operator.name, operator.version), len(self._codes))
        fields: dict[str, int | None] = {
            "OpcodeIndex": code,
            "Inputs": self._vector(operator.inputs),
            "Outputs": self._vector(operator.outputs),
        }
        table = _option_table(operator.name)
        if table is not None and (operator.options or not self._has_fields(table)):
            field = (
                "BuiltinOptions" if table in self._numbers["BuiltinOptions"] else "BuiltinOptions2"
            )
            if table not in self._numbers[field]:
                raise UnsupportedError(
                    f"operator {operator.name}: {self._form} has no options for it"
                )
            fields[f"{field}Type"] = self._numbers[field][table]
            fields[field] = self._options(table, operator.options)
        if operator.custom_options:
            fields["CustomOptions"] = self._builder.CreateByteVector(operator.custom_options)
        if operator.intermediates:
            fields["Intermediates"] = self._vector(operator.intermediates)
        return self._table("Operator", fields)

    def _has_fields(self, table: str) -> bool:
        module = importlib.import_module(f"{self.package}.{table}")
        return any(name.startswith(f"{table}Add") for name in vars(module))

    def _options(self, table: str, options: Mapping[str, Option]) -> int:
        fields: dict[str, Any] = {}
        for name, value in options.items():
            field = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
            if isinstance(value, str):
                fields[field] = self._text(value)
            elif isinstance(value, tuple):
                floats = any(isinstance(item, float) for item in value)
                fields[field] = self._vector(value, np.float32 if floats else np.int32)
            elif isinstance(value, Mapping):
                raise UnsupportedError(f"{table}: options inside options cannot be written")
            elif value is not None:
                fields[field] = value
        return self._table(table, fields)

    def _operator_code(self, name: str, version: int) -> int:
        plain, custom = (
            ("CUSTOM", name.removeprefix(_CUSTOM)) if name.startswith(_CUSTOM) else (name, "")
        )
        number = self._numbers["BuiltinOperator"].get(plain)
        if number is None:
            raise UnsupportedError(f"{self._form} has no operator {plain}")
        old = min(number, _PLACEHOLDER)
        fields = {
            "DeprecatedBuiltinCode": old,
            "CustomCode": self._text(custom) if custom else None,
            "Version": version,
            "BuiltinCode": number,
        }
        return self._table("OperatorCode", fields)

    def _named_tensors(self, named: Iterable[tuple[str, int]]) -> int:
        return self._offsets(
            self._table("TensorMap", {"Name": self._text(name), "TensorIndex": index})
            for name, index in named
        )

    # ---- flatbuffers ----

    def _table(self, name: str, fields: Mapping[str, Any]) -> int:
        """A table with these fields; `None` leaves one out. Offsets among them were made before."""
        module = importlib.import_module(f"{self.package}.{name}")
        _call(module, f"{name}Start")(self._builder)
        for field, value in fields.items():
            if value is not None:
                other = _OTHER_NAMES.get(field, field)
                known = field if hasattr(module, f"{name}Add{field}") else other
                _call(module, f"{name}Add{known}")(self._builder, value)
        return int(_call(module, f"{name}End")(self._builder))

    def _text(self, text: str) -> int:
        return int(self._builder.CreateString(text.encode("utf-8", "surrogateescape")))

    def _vector(
        self, numbers: Sequence[float] | np.ndarray, dtype: type[np.generic] = np.int32
    ) -> int:
        return int(self._builder.CreateNumpyVector(np.asarray(numbers, dtype)))

    def _offsets(self, offsets: Iterable[int]) -> int:
        listed = list(offsets)
        self._builder.StartVector(4, len(listed), 4)
        for offset in reversed(listed):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())


_ENUMS = ("BuiltinOperator", "BuiltinOptions", "BuiltinOptions2", "TensorType")


_OTHER_NAMES = {
    "AdjX": "AdjointLhs",
    "AdjY": "AdjointRhs",
    "AdjointLhs": "AdjX",
    "AdjointRhs": "AdjY",
}
"""Fields that the two schemas call differently."""


@functools.cache
def _option_tables() -> Mapping[str, str]:
    # Circle's schema has the tables of TFLite's and more.
    enums = (enum_names(PACKAGES[CIRCLE], f"BuiltinOptions{number}") for number in ("", "2"))
    return MappingProxyType({name.lower(): name for enum in enums for name in enum.values()})


def _option_table(operator: str) -> str | None:
    """The name of its options table (`Conv2DOptions` of `CONV_2D`); `None` if it has none."""
    own = operator.replace("_", "").lower() + "options"
    return _SHARED_OPTIONS.get(operator) or _option_tables().get(own)


def _call(module: Any, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] | None = getattr(module, name, None)
    if found is None:
        raise UnsupportedError(f"the schema has no {name}")
    return found


def _append_buffers(file: bytearray, buffers: Sequence[np.ndarray], package: str) -> bytearray:
    """Put the buffers after the flatbuffer and fill in where each of them is."""
    model = importlib.import_module(f"{package}.Model").Model.GetRootAs(file, 0)
    for index, data in enumerate(buffers):
        if data.nbytes <= 1:
            continue
        file += b"\0" * (-len(file) % _ALIGNMENT)
        table = model.Buffers(index)._tab
        for slot, value in ((6, len(file)), (8, data.nbytes)):
            struct.pack_into("<Q", file, table.Pos + table.Offset(slot), value)
        file += data.tobytes()
    return file

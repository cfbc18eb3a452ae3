"""A TFLite or Circle file as plain records: subgraphs, tensors, operators and buffers, without
flatbuffers and without meaning.

Both formats have the same parts; the records do not tell them apart except by `ModelRecord.format`.
Indices between records (tensor, buffer, opcode) are checked here, so whoever reads the records may
use them without looking. What the numbers in an operator's options mean is for its mapping to know.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flatbuffers.number_types import Int32Flags

from whence.errors import ModelError, UnsupportedError
from whence.frontends.naming import quoted
from whence.frontends.tflite.schema import FAULTS, Option, Options, SchemaReader

TFLITE = "tflite"
CIRCLE = "circle"
IDENTIFIERS: Mapping[bytes, str] = {b"TFL3": TFLITE, b"CIR0": CIRCLE}
VERSIONS: Mapping[str, int] = {TFLITE: 3, CIRCLE: 0}
PACKAGES: Mapping[str, str] = {TFLITE: "tflite", CIRCLE: "circle_schema.v0_10.circle"}
_BLOCKWISE = frozenset({"BlockwiseQuantization", "kind 2"})
"""Names of the number 2 in schemas that know it, and in those from before."""
ABSENT = -1
"""The index of an input that an operator does without."""


@dataclass(frozen=True, slots=True)
class BlocksRecord:
    """Scales by blocks of `size` neighbours along the last axis."""

    scales: int
    """The tensor that holds them."""
    zero_points: int
    """The tensor that holds theirs; `ABSENT` where all are zero."""
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class QuantisationRecord:
    """real = (code - zero_point) · scale, with one pair for the tensor, one for each index of
    `axis`, or one for each of `blocks`.
    """

    scales: np.ndarray
    """float32[n]; n = 1 per tensor."""
    zero_points: np.ndarray
    """int64[n], as many as scales."""
    axis: int
    details: str = ""
    """The schema's name of a form other than these (`MXQuantization`, ...), else empty."""
    blocks: BlocksRecord | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SparseDimension:
    """One level of a sparse tensor: dense with a size, or compressed as in CSR."""

    is_dense: bool
    dense_size: int
    segments: np.ndarray
    indices: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class SparsityRecord:
    traversal_order: tuple[int, ...]
    block_map: tuple[int, ...]
    dimensions: tuple[SparseDimension, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TensorRecord:
    name: str
    type: str
    """The element type as the schema names it: FLOAT32, INT8, INT4, ..."""
    shape: tuple[int, ...]
    signature: tuple[int, ...] | None = None
    """The shape with -1 where a dimension is open; `None` when the file does not say."""
    buffer: int = 0
    quantisation: QuantisationRecord | None = None
    sparsity: SparsityRecord | None = None
    is_variable: bool = False
    has_rank: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class OperatorRecord:
    name: str
    """The operator as the schema names it (`CONV_2D`), or `CUSTOM:` and the custom name."""
    version: int
    inputs: tuple[int, ...]
    """Tensor indices; `ABSENT` where an optional input is left out."""
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options: Options
    """The fields of the options table by the schema's names (`stride_w`), if there is one."""
    custom_options: bytes


@dataclass(frozen=True, slots=True, eq=False)
class SubgraphRecord:
    name: str
    tensors: tuple[TensorRecord, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[OperatorRecord, ...]


@dataclass(frozen=True, slots=True)
class SignatureRecord:
    """A name under which a subgraph can be called, with the caller's names of its inputs and
    outputs (name, tensor index).
    """

    key: str
    subgraph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class ModelRecord:
    format: str
    """`TFLITE` or `CIRCLE`."""
    version: int
    description: str
    subgraphs: tuple[SubgraphRecord, ...]
    buffers: tuple[np.ndarray, ...]
    """uint8 views of the file. Buffer 0 is empty, for tensors without data."""
    metadata: tuple[tuple[str, bytes], ...]
    signatures: tuple[SignatureRecord, ...]


def read_records(data: bytes, label: str = "the model") -> ModelRecord:
    """The records of a file's bytes. What is not such a file, or a damaged one, is a `ModelError`
    that names it by `label`.
    """
    form = IDENTIFIERS.get(data[4:8])
    if form is None:
        raise ModelError(
            f"{label} is not a TFLite or Circle model, or is cut off: it has no 'TFL3' or 'CIR0' at"
            " byte 4"
        )
    try:
        return _model(SchemaReader(data, PACKAGES[form]), form)
    except ModelError as error:
        raise ModelError(f"{label} is damaged: {error}") from None
    except UnsupportedError as error:
        raise UnsupportedError(f"{label}: {error}") from None
    except FAULTS as error:
        raise ModelError(f"{label} is damaged or cut off: {_one_line(error)}") from error


_ENDS_EARLY = re.compile(r"at least (?P<needed>\d+) bytes.*actual buffer size is (?P<size>\d+)")


def _one_line(error: Exception) -> str:
    if isinstance(error, struct.error):
        found = _ENDS_EARLY.search(str(error))
        if found:
            return f"the file ends early: {found['size']} bytes, at least {found['needed']} needed"
        return "an offset points outside the file"
    return " ".join(str(error).split())[:160] or type(error).__name__


def _model(read: SchemaReader, form: str) -> ModelRecord:
    root = read.root()
    names = [_opcode(read, code, form) for code in read.tables(root, "OperatorCodes")]
    buffers = tuple(
        read.stored(each, "Data", int(each.Offset()), int(each.Size()), "a buffer is")
        for each in read.tables(root, "Buffers")
    )
    metadata = []
    for entry in read.tables(root, "Metadata"):
        index = int(entry.Buffer())
        _check_index(index, len(buffers), "metadata buffer")
        metadata.append((read.text(entry, "Name"), read.copy(buffers[index])))
    subgraphs = tuple(
        _subgraph(read, each, names, len(buffers)) for each in read.tables(root, "Subgraphs")
    )
    if not subgraphs:
        raise ModelError("it holds no subgraph")
    return ModelRecord(
        format=form,
        version=int(root.Version()),
        description=read.text(root, "Description"),
        subgraphs=subgraphs,
        buffers=buffers,
        metadata=tuple(metadata),
        signatures=tuple(
            _signature(read, each, len(subgraphs)) for each in read.tables(root, "SignatureDefs")
        ),
    )


def _opcode(read: SchemaReader, code: Any, form: str) -> tuple[str, int]:
    """An operator's name and version.

    The number stands in an old field of 8 bits and in a new one. TFLite has only positive numbers:
    the larger of the two holds. Circle's own operators are negative, so there the new field holds
    only when the old one says 127.
    """
    old, new = int(code.DeprecatedBuiltinCode()), int(code.BuiltinCode())
    number = max(old, new) if form == TFLITE else new if old == 127 else old
    name = read.names("BuiltinOperator").get(number)
    if name is None:
        raise UnsupportedError(
            f"operator number {number} is not in the {form} schema that whence knows; the file is"
            " of a newer version"
        )
    if name == "CUSTOM":
        name = f"CUSTOM:{read.text(code, 'CustomCode')}"
    return name, int(code.Version())


def _subgraph(
    read: SchemaReader, subgraph: Any, names: list[tuple[str, int]], n_buffers: int
) -> SubgraphRecord:
    tensors = tuple(_tensor(read, each, n_buffers) for each in read.tables(subgraph, "Tensors"))
    inputs, outputs = read.ints(subgraph, "Inputs"), read.ints(subgraph, "Outputs")
    for index in (*inputs, *outputs):
        _check_index(index, len(tensors), "tensor of the subgraph's inputs or outputs")
    operators = tuple(
        _operator(read, each, names, len(tensors)) for each in read.tables(subgraph, "Operators")
    )
    return SubgraphRecord(read.text(subgraph, "Name"), tensors, inputs, outputs, operators)


def _tensor(read: SchemaReader, tensor: Any, n_buffers: int) -> TensorRecord:
    name = read.text(tensor, "Name")
    kind = read.names("TensorType").get(int(tensor.Type()))
    if kind is None:
        raise UnsupportedError(
            f"tensor {quoted(name)} has element type number {tensor.Type()}, which is not in the"
            " schema that whence knows"
        )
    buffer = int(tensor.Buffer())
    _check_index(buffer, max(n_buffers, 1), f"buffer of tensor {quoted(name)}")
    shape = read.ints(tensor, "Shape")
    return TensorRecord(
        name=name,
        type=kind,
        shape=shape,
        signature=None if tensor.ShapeSignatureIsNone() else read.ints(tensor, "ShapeSignature"),
        buffer=buffer,
        quantisation=_quantisation(read, read.table(tensor, "Quantization"), name),
        sparsity=_sparsity(read, read.table(tensor, "Sparsity")),
        is_variable=bool(tensor.IsVariable()),
        # Files from before the field existed have ranks as well; only an empty shape leaves it
        # open.
        has_rank=bool(tensor.HasRank()) or bool(shape),
    )


def _quantisation(read: SchemaReader, found: Any | None, name: str) -> QuantisationRecord | None:
    if found is None:
        return None
    scales = read.array(found, "Scale").astype(np.float32)
    zeros = read.array(found, "ZeroPoint").astype(np.int64)
    kind = int(found.DetailsType())
    details = read.names("QuantizationDetails").get(kind, f"kind {kind}") if kind else ""
    if len(scales) == 0 and not details:
        # Only the range seen in training, which nothing needs.
        return None
    if len(zeros) == 1 or len(zeros) == 0:
        zeros = np.broadcast_to(zeros if len(zeros) else np.zeros(1, np.int64), scales.shape)
    if len(zeros) != len(scales):
        raise ModelError(
            f"tensor {quoted(name)} has {len(scales)} scales and {len(zeros)} zero points"
        )
    if not np.all(np.isfinite(scales)):
        raise ModelError(f"tensor {quoted(name)} has a scale that is not a number")
    axis = int(found.QuantizedDimension())
    if details in _BLOCKWISE:
        return QuantisationRecord(scales, zeros, axis, blocks=_blocks(found, name))
    return QuantisationRecord(scales, zeros, axis, details)


def _blocks(found: Any, name: str) -> BlocksRecord:
    """The table `BlockwiseQuantization`, whose class not every package of the schema has."""
    table = found.Details()
    if table is None:
        raise ModelError(f"tensor {quoted(name)} is quantised by blocks, and does not say how")
    fields = []
    for slot in (4, 6, 8):
        offset = table.Offset(slot)
        fields.append(int(table.Get(Int32Flags, offset + table.Pos)) if offset else 0)
    scales, zeros, size = fields
    if size < 1:
        raise ModelError(f"tensor {quoted(name)} is quantised by blocks of {size}")
    # Tensor 0 is what an absent field reads as.
    return BlocksRecord(scales, zeros if zeros > 0 else ABSENT, size)


def _sparsity(read: SchemaReader, found: Any | None) -> SparsityRecord | None:
    if found is None:
        return None
    dimensions = []
    for each in read.tables(found, "DimMetadata"):
        segments = read.union(each, "ArraySegments", "SparseIndexVector")
        indices = read.union(each, "ArrayIndices", "SparseIndexVector")
        values = [
            np.empty(0, np.int64) if part is None else read.array(part, "Values").astype(np.int64)
            for part in (segments, indices)
        ]
        dimensions.append(SparseDimension(int(each.Format()) == 0, int(each.DenseSize()), *values))
    return SparsityRecord(
        read.ints(found, "TraversalOrder"), read.ints(found, "BlockMap"), tuple(dimensions)
    )


def _operator(
    read: SchemaReader, operator: Any, names: list[tuple[str, int]], n_tensors: int
) -> OperatorRecord:
    code = int(operator.OpcodeIndex())
    _check_index(code, len(names), "operator code")
    name, version = names[code]
    inputs, outputs = read.ints(operator, "Inputs"), read.ints(operator, "Outputs")
    intermediates = read.ints(operator, "Intermediates")
    for index in (*inputs, *outputs, *intermediates):
        if index != ABSENT:
            _check_index(index, n_tensors, f"tensor of a {name}")
    options: dict[str, Option] = {}
    for field in ("BuiltinOptions", "BuiltinOptions2"):
        if (table := read.union(operator, field, field)) is not None:
            options.update(read.members(table))
    custom = read.stored(
        operator,
        "CustomOptions",
        int(operator.LargeCustomOptionsOffset()),
        int(operator.LargeCustomOptionsSize()),
        "custom options are",
    )
    return OperatorRecord(name, version, inputs, outputs, intermediates, options, read.copy(custom))


def _signature(read: SchemaReader, signature: Any, n_subgraphs: int) -> SignatureRecord:
    index = int(signature.SubgraphIndex())
    _check_index(index, n_subgraphs, "subgraph of a signature")
    inputs, outputs = (
        tuple(
            (read.text(each, "Name"), int(each.TensorIndex()))
            for each in read.tables(signature, field)
        )
        for field in ("Inputs", "Outputs")
    )
    return SignatureRecord(read.text(signature, "SignatureKey"), index, inputs, outputs)


def _check_index(index: int, count: int, what: str) -> None:
    if not 0 <= index < count:
        raise ModelError(f"{what} {index} does not exist; there are {count}")

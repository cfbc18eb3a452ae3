"""Changes up to opset 7, before which ONNX promised no compatibility."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from whence.frontends.onnx.record import Adapter, OpRecord, Restate, Rewrite

_IN_PLACE = "consumed_inputs"
_BROADCASTING = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
_FORMERLY_IN_PLACE = (
    "Abs", "Ceil", "Clip", "Elu", "Exp", "Floor", "HardSigmoid", "InstanceNormalization", "LeakyRelu", "Log", "Max", "Mean", "Min", "Neg",
    "Reciprocal", "Relu", "Selu", "Sigmoid", "Sqrt", "Sum", "Tanh",
)  # fmt: skip


def _without(*attributes: str) -> Restate:
    def restate(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
        return [record.with_(attrs=record.attrs_without(*attributes))]

    return restate


def _explicit_broadcast(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """The second operand was aligned with the first at `axis`; now it is at the end."""
    first, second = record.required(0), record.required(1)
    if record.integer("broadcast", 0) and "axis" in record.attrs:
        rank, inner = build.known_rank(first), build.known_rank(second)
        missing = rank - record.axis(0, rank) - inner
        if missing > 0:
            second = build.op("Unsqueeze", second, axes=tuple(range(inner, inner + missing)))
    return build.result(record.op, first, second)


def _channel_slope(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """A slope for each channel was a list; now it has the shape that broadcasts."""
    data, slope = record.required(0), record.required(1)
    shape, rank = build.shape(slope), build.rank(data)
    if shape is not None and len(shape) == 1 and shape[0] != 1 and rank is not None and rank > 2:
        slope = build.op("Unsqueeze", slope, axes=tuple(range(1, rank - 1)))
    return build.result("PRelu", data, slope)


def _inference_only(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    outputs = record.outputs[:1] if record.integer("is_test", 0) else record.outputs
    return [record.with_(outputs=outputs, attrs=record.attrs_without("is_test", _IN_PLACE))]


def _named_type(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    try:
        number = int(TensorProto.DataType.Value(record.text("to", "")))
    except ValueError:
        raise record.unsupported("a conversion to a type nobody knows") from None
    return [record.with_(attrs={"to": number})]


def _concat_axis(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    return [record.with_(attrs={"axis": record.integer("axis", 1)})]


def _paddings(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    pads = record.integers("paddings") or record.integers("pads") or ()
    return [record.with_(attrs={**record.attrs_without("paddings"), "pads": pads})]


def _shape_attribute(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    return build.result(
        "Reshape", record.required(0), build.ints(*(record.integers("shape") or ()))
    )


def _split_input(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """The sizes could be an input, as they can be again since opset 13."""
    if not record.input(1):
        return [record]
    sizes = build.scope.value_of(record.input(1))
    if sizes is None:
        raise record.unsupported("sizes that are computed")
    return [
        record.with_(
            inputs=record.inputs[:1],
            attrs={**record.attrs, "split": tuple(int(size) for size in sizes.reshape(-1))},
        )
    ]


def _tile_axis(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """One axis was repeated; now all have a number."""
    tiles, axis = build.scope.value_of(record.required(1)), build.scope.value_of(record.required(2))
    if tiles is None or axis is None:
        raise record.unsupported("tiles that are computed")
    repeats = [1] * build.known_rank(record.required(0))
    repeats[int(axis.reshape(-1)[0])] = int(tiles.reshape(-1)[0])
    return build.result("Tile", record.required(0), build.ints(*repeats))


def _two_scales(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    scales = (1.0, 1.0, record.number("height_scale", 1.0), record.number("width_scale", 1.0))
    return [record.with_(attrs={"mode": record.text("mode", "nearest"), "scales": scales})]


def _whole_power(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    return [record.with_(attrs={**record.attrs, "p": int(record.number("p", 2.0))})]


ADAPTERS: tuple[Adapter, ...] = (
    *(Adapter(op, 7, _explicit_broadcast) for op in _BROADCASTING),
    *(Adapter(op, 6, _without(_IN_PLACE)) for op in _FORMERLY_IN_PLACE),
    *(Adapter(op, 7, _without("output_sequence")) for op in ("GRU", "LSTM", "RNN")),
    Adapter("BatchNormalization", 7, _inference_only),
    Adapter("Cast", 6, _named_type),
    Adapter("Concat", 4, _concat_axis),
    Adapter("Dropout", 7, _inference_only),
    Adapter("Gemm", 7, _without("broadcast")),
    Adapter("GlobalLpPool", 2, _whole_power),
    Adapter("LpPool", 2, _whole_power),
    Adapter("PRelu", 7, _channel_slope),
    Adapter("Pad", 2, _paddings),
    Adapter("Reshape", 5, _shape_attribute),
    Adapter("Split", 2, _split_input),
    Adapter("Tile", 6, _tile_axis),
    Adapter("Upsample", 7, _two_scales),
)

"""whence's own supernodes: a convolution or matrix product with everything that is added to it and
applied to it.

| operator             | inputs        | value                                                    |
|----------------------|---------------|----------------------------------------------------------|
| `FusedConv`          | x, w, b?, z?  | act(Conv(x, w, b) + z), attributes of Conv               |
| `FusedConvTranspose` | x, w, b?, z?  | act(ConvTranspose(x, w, b) + z), attributes of ConvTranspose |
| `FusedGemm`          | a, b, c?      | act(alpha · a' · b' + beta · c), attributes of Gemm      |
| `FusedMatMul`        | a, b, c?      | act(alpha · a' @ b' + c); `trans_a`, `trans_b` swap the last two axes |

All of them have the attributes `activation` (a name from the list below, or "" for none),
`activation_alpha` and `activation_beta`; a number that is not given has the default of the ONNX
operator:

Relu · LeakyRelu(alpha) · Clip(alpha = min, beta = max) · Sigmoid · Tanh · HardSigmoid(alpha, beta)
· HardSwish · Swish(alpha) · Gelu · GeluTanh (Gelu with approximate = "tanh") · Elu(alpha) ·
Softplus · Mish
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from whence.errors import UnsupportedError
from whence.ops.attributes import get_float, get_int, get_str
from whence.ops.definition import (
    Attrs,
    Call,
    Flops,
    Infer,
    OpClass,
    OpDef,
    Pattern,
    Reference,
    TypeQuery,
    Value,
    count,
)
from whence.ops.neural.activation import ACTIVATIONS
from whence.ops.neural.conv import conv, conv_flops, conv_transpose, conv_transpose_flops
from whence.ops.neural.matmul import gemm, matmul_flops, multiply
from whence.ops.operand import named
from whence.ops.precision import narrow, optional_tensor, tensor, widen
from whence.ops.traits import Trait
from whence.ops.types.spatial_rules import conv as infer_conv
from whence.ops.types.spatial_rules import conv_transpose as infer_conv_transpose
from whence.ops.types.spatial_rules import gemm as infer_gemm
from whence.ops.types.spatial_rules import with_added
from whence.ops.types.type_rules import matmul as infer_matmul
from whence.ops.types.type_rules import tensor_type
from whence.types import TensorType, ValueType

FUSED_ACTIVATIONS = (
    "Relu",
    "LeakyRelu",
    "Clip",
    "Sigmoid",
    "Tanh",
    "HardSigmoid",
    "HardSwish",
    "Swish",
    "Gelu",
    "GeluTanh",
    "Elu",
    "Softplus",
    "Mish",
)
"""What the attribute `activation` may name, besides the empty text."""

_OWN_ATTRS = frozenset({"activation", "activation_alpha", "activation_beta", "trans_a", "trans_b"})


def apply_activation(op: str, attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The activation that a supernode's attributes name, on a float32 or float64 array."""
    name, alpha, beta = _activation(op, attrs)
    return ACTIVATIONS[name](x, alpha, beta) if name else x


def _activation(op: str, attrs: Attrs) -> tuple[str, float | None, float | None]:
    """Name and numbers: `None` for one that the function does not use, else with its default."""
    name = get_str(attrs, "activation", "")
    if not name:
        return "", None, None
    if name not in FUSED_ACTIVATIONS:
        raise UnsupportedError(
            f"{op}: activation {name!r} is not one of {', '.join(FUSED_ACTIVATIONS)}"
        )
    known = ACTIVATIONS[name]
    alpha = None if known.alpha is None else get_float(attrs, "activation_alpha", known.alpha)
    beta = None if known.beta is None else get_float(attrs, "activation_beta", known.beta)
    return name, alpha, beta


# ---- evaluation ----


def _matmul(call: Call) -> np.ndarray:
    a, b = widen(tensor(call, 0)), widen(tensor(call, 1))
    a = a.swapaxes(-1, -2) if get_int(call.attrs, "trans_a", 0) else a
    b = b.swapaxes(-1, -2) if get_int(call.attrs, "trans_b", 0) else b
    y = multiply(a, b)
    alpha = get_float(call.attrs, "alpha", 1.0)
    return y if alpha == 1.0 else y * y.dtype.type(alpha)


def _reference(anchor: Callable[[Call], np.ndarray], added: int | None) -> Reference:
    """The anchor's sum, plus input `added` if there is one, then the activation, rounded once."""

    def reference(call: Call) -> Value:
        y = anchor(call)
        extra = None if added is None else optional_tensor(call, added)
        if extra is not None:
            y = y + widen(extra)
        return narrow(apply_activation(call.op, call.attrs, y), tensor(call, 0).dtype)

    return reference


# ---- types and cost ----


def _infer(anchor: Callable[[TypeQuery], TensorType], added: int | None) -> Infer:
    def infer(query: TypeQuery) -> TensorType:
        base = anchor(query)
        return base if added is None else with_added(query, base, added)

    return infer


def _infer_matmul(query: TypeQuery) -> TensorType:
    operands = [tensor_type(query, 0), tensor_type(query, 1)]
    for index, name in enumerate(("trans_a", "trans_b")):
        shape = operands[index].shape
        if get_int(query.attrs, name, 0) and shape is not None and len(shape) > 1:
            operands[index] = TensorType(operands[index].dtype, (*shape[:-2], shape[-1], shape[-2]))
    return infer_matmul(TypeQuery(query.op, {}, tuple(operands), (None, None), 1))


def _flops(anchor: Callable[[TypeQuery, Sequence[ValueType]], int]) -> Flops:
    """The anchor's operations, and one per output element for whatever is added and applied."""
    return lambda query, outputs: anchor(query, outputs) + count(outputs[0]) * applied(query)


def applied(query: TypeQuery) -> int:
    """How many operands and functions each element of the anchor's sum gets besides."""
    extra = sum(kind is not None for kind in query.types[2:])
    return extra + bool(get_str(query.attrs, "activation", ""))


# ---- expansion into plain operators ----


@dataclass(frozen=True, slots=True)
class Arg:
    """Input `index` of the supernode."""

    index: int


@dataclass(frozen=True, slots=True)
class Result:
    """The output of step `step` of the same expansion."""

    step: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A constant without axes, of the element type of the supernode's output."""

    value: float


Slot: TypeAlias = Arg | Result | Scalar


@dataclass(frozen=True, slots=True)
class ExpandedOp:
    """One plain ONNX operator of an expansion."""

    op: str
    inputs: tuple[Slot, ...]
    attrs: Attrs = field(default_factory=dict)


def expand(op: str, attrs: Attrs, types: Sequence[ValueType | None]) -> list[ExpandedOp]:
    """A supernode stated in plain ONNX operators, in order; the output of the last step is the
    supernode's output.

    `types` are the types of its inputs, `None` where an optional one is absent. Only a FusedMatMul
    with `trans_a` or `trans_b` reads more than their presence: it must know the rank of the operand
    that it transposes.
    """
    present = [index for index, kind in enumerate(types) if kind is not None]
    plain = {name: value for name, value in attrs.items() if name not in _OWN_ATTRS}
    steps: list[ExpandedOp] = []
    if op in {"FusedConv", "FusedConvTranspose"}:
        steps.append(
            ExpandedOp(
                op.removeprefix("Fused"), tuple(Arg(index) for index in present if index < 3), plain
            )
        )
        if 3 in present:
            steps.append(ExpandedOp("Add", (Result(0), Arg(3))))
    elif op == "FusedGemm":
        steps.append(ExpandedOp("Gemm", tuple(Arg(index) for index in present), plain))
    elif op == "FusedMatMul":
        slots: list[Slot] = [Arg(0), Arg(1)]
        for index, name in enumerate(("trans_a", "trans_b")):
            if get_int(attrs, name, 0):
                kind = types[index]
                rank = kind.rank if isinstance(kind, TensorType) else None
                if rank is None or rank < 2:
                    raise UnsupportedError(
                        f"{op}: {name} needs an operand of known rank, found {kind}"
                    )
                steps.append(
                    ExpandedOp(
                        "Transpose", (Arg(index),), {"perm": (*range(rank - 2), rank - 1, rank - 2)}
                    )
                )
                slots[index] = Result(len(steps) - 1)
        steps.append(ExpandedOp("MatMul", tuple(slots)))
        alpha = get_float(attrs, "alpha", 1.0)
        if alpha != 1.0:
            steps.append(ExpandedOp("Mul", (Result(len(steps) - 1), Scalar(alpha))))
        if 2 in present:
            steps.append(ExpandedOp("Add", (Result(len(steps) - 1), Arg(2))))
    else:
        raise UnsupportedError(f"{op} is not one of whence's supernodes")
    _expand_activation(op, attrs, steps)
    return steps


def _expand_activation(op: str, attrs: Attrs, steps: list[ExpandedOp]) -> None:
    """Append the activation to `steps`."""
    name, alpha, beta = _activation(op, attrs)
    x = Result(len(steps) - 1)
    if not name:
        return
    if name == "Clip":
        steps.append(
            ExpandedOp("Clip", (x, Scalar(float(alpha or 0.0)), Scalar(float(beta or 0.0))))
        )
    elif name == "Swish":
        # In the operators that every opset has: x · sigmoid(alpha · x).
        if alpha != 1.0:
            steps.append(ExpandedOp("Mul", (x, Scalar(float(alpha or 0.0)))))
        steps.append(ExpandedOp("Sigmoid", (Result(len(steps) - 1),)))
        steps.append(ExpandedOp("Mul", (x, Result(len(steps) - 1))))
    elif name == "GeluTanh":
        steps.append(ExpandedOp("Gelu", (x,), {"approximate": "tanh"}))
    else:
        numbers = {
            key: value for key, value in (("alpha", alpha), ("beta", beta)) if value is not None
        }
        steps.append(ExpandedOp(name, (x,), numbers))


_ANCHOR = Pattern.OUT_ELEMWISE_FUSABLE
_CONV, _MATMUL = OpClass.CONV | OpClass.ACTIVATION, OpClass.MATMUL | OpClass.ACTIVATION
OPS: tuple[OpDef, ...] = (
    OpDef(
        "FusedConv",
        _ANCHOR,
        _CONV,
        _infer(infer_conv, 3),
        _reference(conv, 3),
        _flops(conv_flops),
        operands=named("X", "W", "B", "Z"),
        traits=Trait.CONVOLUTION | Trait.FUSED,
        plain="Conv",
    ),
    OpDef(
        "FusedConvTranspose",
        _ANCHOR,
        _CONV,
        _infer(infer_conv_transpose, 3),
        _reference(conv_transpose, 3),
        _flops(conv_transpose_flops),
        operands=named("X", "W", "B", "Z"),
        traits=Trait.TRANSPOSED_CONVOLUTION | Trait.FUSED,
        plain="ConvTranspose",
    ),
    OpDef(
        "FusedGemm",
        _ANCHOR,
        _MATMUL,
        _infer(infer_gemm, None),
        _reference(gemm, None),
        _flops(matmul_flops),
        operands=named("A", "B", "C"),
        traits=Trait.PRODUCT | Trait.FUSED,
        plain="Gemm",
    ),
    OpDef(
        "FusedMatMul",
        _ANCHOR,
        _MATMUL,
        _infer(_infer_matmul, 2),
        _reference(_matmul, 2),
        _flops(matmul_flops),
        operands=named("A", "B", "Z"),
        traits=Trait.PRODUCT | Trait.FUSED,
        plain="MatMul",
    ),
)

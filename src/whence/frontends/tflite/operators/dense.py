"""Products of matrices: FULLY_CONNECTED and BATCH_MATMUL."""

from __future__ import annotations

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.operators.conv import bias_scale, real_weights, weights
from whence.graph.node import Ref


def _fully_connected(call: OperatorCall) -> None:
    """x · wᵀ + b with w (out, in). Without `keep_num_dims`, the input is rows of `in`."""
    form = call.integer("weights_format")
    if form != 0:
        call.unsupported(
            f"its weights are shuffled for a particular processor (format {form}); convert the"
            " model again without that"
        )
    if call.n_outputs > 1:
        call.unsupported("its second output is only for shuffled weights")
    size = call.shape(1)
    if len(size) != 2 or min(size) < 1:
        call.fail(f"its weights are {call.type(1)}, not a matrix")
    rank = call.rank(0)
    bias = call.bias(2, bias_scale(call, 0, 1))
    if call.flag("keep_num_dims") and rank != 2:
        result = call.op("MatMul", call.real(0), weights(call, 1, (1, 0)))
        result = result if bias is None else call.op("Add", result, bias)
    else:
        x, shape = call.real(0), call.type(0).shape
        if rank != 2 or shape is None or shape[1] != size[1]:
            x = call.op("Reshape", x, call.ints(-1, size[1]))
        result = call.op("Gemm", x, real_weights(call, 1, 0), bias, transB=1)
    call.output(0, call.activate(result))


def _batch_matmul(call: OperatorCall) -> None:
    sides: list[Ref] = []
    # Circle has other words for the same flags.
    for index, options in enumerate((("adj_x", "adjoint_lhs"), ("adj_y", "adjoint_rhs"))):
        side, rank = call.real(index), call.rank(index)
        if rank < 2:
            call.fail(f"input {index} is {call.type(index)}, not a matrix")
        if any(call.flag(option) for option in options):
            side = call.op("Transpose", side, perm=(*range(rank - 2), rank - 1, rank - 2))
        sides.append(side)
    call.output(0, call.emit("MatMul", sides))


MAPPINGS: Mappings = {"BATCH_MATMUL": _batch_matmul, "FULLY_CONNECTED": _fully_connected}

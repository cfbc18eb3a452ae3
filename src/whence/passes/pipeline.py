"""The passes of `prepare`, in order.

The order matters: earlier passes reduce what later ones must recognise. Constants and shapes first,
then what is no work at all, then arithmetic on codes and the order of axes, then the patterns
exporters write out in small operators, then layout noise, then folding into weights, then
supernodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whence.errors import InputError
from whence.passes.base import Pass
from whence.passes.control.flatten_branches import FlattenBranches
from whence.passes.control.inline_branches import InlineBranches
from whence.passes.control.inline_calls import InlineCalls
from whence.passes.control.postpone_failures import PostponeFailures
from whence.passes.control.split_at_run_time_sizes import SplitAtRunTimeSizes
from whence.passes.fold.fold_batch_norm import FoldBatchNorm
from whence.passes.fold.fold_constants import FoldConstants
from whence.passes.fold.fold_matmul_transpose import FoldMatmulTranspose
from whence.passes.fold.fold_pad import FoldPad
from whence.passes.fold.fold_scale_bias import FoldScaleBias
from whence.passes.fold.fuse_matmul_bias import FuseMatmulBias
from whence.passes.layout.block_channels import BlockChannels
from whence.passes.layout.cancel_reshapes import CancelReshapes
from whence.passes.layout.cancel_transposes import CancelTransposes
from whence.passes.layout.expand_channels_last import ExpandChannelsLast
from whence.passes.layout.postpone_transposes import PostponeTransposes
from whence.passes.layout.reshape_before_product import ReshapeBeforeProduct
from whence.passes.layout.sink_transposes import SinkTransposes
from whence.passes.layout.split_product_batch import SplitProductBatch
from whence.passes.layout.to_channels_last import ToChannelsLast
from whence.passes.lower.bound_run_time_sizes import BoundRunTimeSizes
from whence.passes.lower.expand_fourier import ExpandFourier
from whence.passes.lower.expand_grouped_attention import ExpandGroupedAttention
from whence.passes.lower.expand_stft import ExpandStft
from whence.passes.lower.expand_tensor_scatter import ExpandTensorScatter
from whence.passes.lower.flatten_depth import FlattenDepth
from whence.passes.lower.fuse_activations import FuseActivations
from whence.passes.lower.split_reductions import SplitReductions
from whence.passes.lower.widen_half import WidenHalf
from whence.passes.preferences import Preferences
from whence.passes.quantised.integer_arithmetic import IntegerArithmetic
from whence.passes.quantised.move_codes import MoveCodes
from whence.passes.quantised.remove_quantise_pairs import RemoveQuantisePairs
from whence.passes.quantised.sign_codes import SignCodes
from whence.passes.recognise.recognise_attention import RecogniseAttention
from whence.passes.recognise.recognise_gelu import RecogniseGelu
from whence.passes.recognise.recognise_layer_norm import RecogniseLayerNorm
from whence.passes.recognise.recognise_rms_norm import RecogniseRmsNorm
from whence.passes.recognise.recognise_softmax import RecogniseSoftmax
from whence.passes.recognise.recognise_swish import RecogniseSwish
from whence.passes.shapes.fold_shapes import FoldShapes
from whence.passes.simplify.gather_consts import GatherConsts
from whence.passes.simplify.merge_casts import MergeCasts
from whence.passes.simplify.merge_duplicates import MergeDuplicates
from whence.passes.simplify.remove_dead_nodes import RemoveDeadNodes
from whence.passes.simplify.remove_neutral_arithmetic import RemoveNeutralArithmetic
from whence.passes.simplify.remove_no_ops import RemoveNoOps
from whence.passes.simplify.simplify_slices import SimplifySlices

_SIMPLIFY: tuple[Pass, ...] = (
    # Whether a branch is taken is often known only once constants and shapes are, and what it holds
    # then is to be folded in turn.
    FoldConstants(),
    InlineBranches(),
    FoldShapes(),
    InlineBranches(folding=FoldShapes()),
    FoldShapes(),
    FoldConstants(),
    RemoveNoOps(),
    RemoveNeutralArithmetic(),
    MergeCasts(),
    # What was removed may have stood between constants: CastLike reads its other operand's type
    # only, yet is not constant itself.
    FoldConstants(),
    RemoveDeadNodes(),
    MergeDuplicates(),
)

_LOWER: tuple[Pass, ...] = (
    # As soon as types are known, so that every pass from here on sees the operators of both
    # branches.
    FlattenBranches(),
    MoveCodes(),
    RemoveQuantisePairs(),
    IntegerArithmetic(),
    FoldConstants(dequantise=True),
    ExpandChannelsLast(),
    # Before transposes of axes of size 1 become reshapes, which do not move.
    SinkTransposes(),
    RemoveDeadNodes(),
)

_RECOGNISE: tuple[Pass, ...] = (
    RecogniseSoftmax(),
    RecogniseLayerNorm(),
    RecogniseRmsNorm(),
    RecogniseGelu(),
    RecogniseSwish(),
    # Attention is recognised by how its operands are transposed; exporters transpose them back and
    # forth.
    CancelTransposes(),
    CancelReshapes(),
    SplitProductBatch(),
    RecogniseAttention(),
    # Layers that share a mask each got their own copy of what prepares it.
    MergeDuplicates(),
)

_FOLD: tuple[Pass, ...] = (
    RemoveQuantisePairs(),
    SinkTransposes(),
    CancelTransposes(),
    CancelReshapes(),
    SimplifySlices(),
    # A scale between a convolution and its normalisation would keep the two apart; one after it
    # folds next.
    FoldScaleBias(),
    FoldBatchNorm(),
    FoldScaleBias(),
    FoldPad(),
    FoldMatmulTranspose(),
    FuseMatmulBias(),
)

_CLEAN_UP: tuple[Pass, ...] = (FoldConstants(), RemoveNoOps(), RemoveDeadNodes(), GatherConsts())

PORTABLE: Sequence[Pass] = (*_SIMPLIFY, *_RECOGNISE, *_FOLD, *_CLEAN_UP)
"""Everything that leaves the graph in operators of the ONNX standard. `whence convert` uses it."""

_FUSE: tuple[Pass, ...] = (
    ReshapeBeforeProduct(),
    CancelReshapes(),
    FuseActivations(),
    FlattenDepth(),
    BlockChannels(),
    SplitReductions(),
)

PREPARE: Sequence[Pass] = (
    InlineCalls(),
    *_SIMPLIFY,
    *_LOWER,
    BoundRunTimeSizes(),
    *_RECOGNISE,
    ExpandGroupedAttention(),
    ExpandTensorScatter(),
    ExpandStft(),
    ExpandFourier(),
    WidenHalf(),
    *_FOLD,
    *_FUSE,
    *_CLEAN_UP,
    PostponeFailures(),
    SplitAtRunTimeSizes(),
)
"""Everything, for compiling."""


def passes_for(preferences: Preferences) -> tuple[Pass, ...]:
    """`PREPARE` as a backend wants it."""
    unknown = preferences.without - {each.name for each in PREPARE}
    if unknown:
        raise InputError(f"there is no pass '{min(unknown)}' to leave out; see `whence passes`")
    return tuple(
        _preferred(each, preferences)
        for each in PREPARE
        if each.name not in preferences.without
        and not (isinstance(each, BlockChannels) and preferences.channel_block is None)
    )


def _preferred(each: Pass, preferences: Preferences) -> Pass:
    """The pass with the options that a backend wants."""
    if isinstance(each, BlockChannels) and preferences.channel_block:
        return replace(each, block=preferences.channel_block)
    if isinstance(each, SplitReductions):
        return replace(each, threads=preferences.threads)
    return each


CHANNELS_LAST: Sequence[Pass] = (
    SignCodes(),
    ToChannelsLast(),
    SinkTransposes(),
    PostponeTransposes(),
    CancelTransposes(),
    CancelReshapes(),
    RemoveDeadNodes(),
    *_CLEAN_UP,
)
"""After `PORTABLE`, for formats whose images have their channels last: TFLite and Circle."""

CHANNELS_FIRST: Sequence[Pass] = (
    InlineCalls(),
    ExpandChannelsLast(),
    SinkTransposes(),
    CancelTransposes(),
    CancelReshapes(),
    *_CLEAN_UP,
)
"""After `PORTABLE`, for ONNX, whose images have their channels first, when the graph came from a
format that has them last.
"""

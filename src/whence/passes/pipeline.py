"""The passes of `prepare`, in order.

The order matters: earlier passes reduce what later ones must recognise. Constants and shapes first,
then what is no work at all, then arithmetic on codes and the order of axes, then the patterns
exporters write out in small operators, then layout noise, then folding into weights, then
supernodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from whence.passes.base import Pass
from whence.passes.block_channels import BlockChannels
from whence.passes.cancel_reshapes import CancelReshapes
from whence.passes.cancel_transposes import CancelTransposes
from whence.passes.expand_channels_last import ExpandChannelsLast
from whence.passes.expand_stft import ExpandStft
from whence.passes.flatten_branches import FlattenBranches
from whence.passes.flatten_depth import FlattenDepth
from whence.passes.fold_batch_norm import FoldBatchNorm
from whence.passes.fold_constants import FoldConstants
from whence.passes.fold_matmul_transpose import FoldMatmulTranspose
from whence.passes.fold_pad import FoldPad
from whence.passes.fold_scale_bias import FoldScaleBias
from whence.passes.fold_shapes import FoldShapes
from whence.passes.fuse_activations import FuseActivations
from whence.passes.fuse_matmul_bias import FuseMatmulBias
from whence.passes.gather_consts import GatherConsts
from whence.passes.inline_branches import InlineBranches
from whence.passes.integer_arithmetic import IntegerArithmetic
from whence.passes.merge_casts import MergeCasts
from whence.passes.merge_duplicates import MergeDuplicates
from whence.passes.move_codes import MoveCodes
from whence.passes.postpone_failures import PostponeFailures
from whence.passes.postpone_transposes import PostponeTransposes
from whence.passes.recognise_attention import RecogniseAttention
from whence.passes.recognise_gelu import RecogniseGelu
from whence.passes.recognise_layer_norm import RecogniseLayerNorm
from whence.passes.recognise_rms_norm import RecogniseRmsNorm
from whence.passes.recognise_softmax import RecogniseSoftmax
from whence.passes.recognise_swish import RecogniseSwish
from whence.passes.remove_dead_nodes import RemoveDeadNodes
from whence.passes.remove_neutral_arithmetic import RemoveNeutralArithmetic
from whence.passes.remove_no_ops import RemoveNoOps
from whence.passes.remove_quantise_pairs import RemoveQuantisePairs
from whence.passes.reshape_before_product import ReshapeBeforeProduct
from whence.passes.sign_codes import SignCodes
from whence.passes.simplify_slices import SimplifySlices
from whence.passes.sink_transposes import SinkTransposes
from whence.passes.to_channels_last import ToChannelsLast
from whence.passes.widen_half import WidenHalf

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
    # Attention is recognised by how its operands are turned; exporters turn them back and forth.
    CancelTransposes(),
    CancelReshapes(),
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
)

PREPARE: Sequence[Pass] = (
    *_SIMPLIFY,
    *_LOWER,
    *_RECOGNISE,
    ExpandStft(),
    WidenHalf(),
    *_FOLD,
    *_FUSE,
    *_CLEAN_UP,
    PostponeFailures(),
)
"""Everything, for compiling."""

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
    ExpandChannelsLast(),
    SinkTransposes(),
    CancelTransposes(),
    CancelReshapes(),
    *_CLEAN_UP,
)
"""After `PORTABLE`, for ONNX, whose images have their channels first, when the graph came from a
format that has them last.
"""

"""The operators of `com.microsoft` that whence can say in operators of ONNX.

ONNX Runtime writes them when it saves an optimised model, and exporters write them for it. Those
used only in training (`...Grad`, `ConcatTraining`, `YieldOp`) are not here.
"""

from __future__ import annotations

from whence.frontends.onnx.microsoft.activations import ACTIVATIONS
from whence.frontends.onnx.microsoft.attention import ATTENTION
from whence.frontends.onnx.microsoft.blockwise import BLOCKWISE
from whence.frontends.onnx.microsoft.fused import FUSED
from whence.frontends.onnx.microsoft.grouped_attention import GROUPED_ATTENTION
from whence.frontends.onnx.microsoft.movement import MOVEMENT
from whence.frontends.onnx.microsoft.normalisation import NORMALISATION
from whence.frontends.onnx.microsoft.quantised import QUANTISED
from whence.frontends.onnx.microsoft.recurrent import RECURRENT
from whence.frontends.onnx.record import Adapter

CONTRIB: tuple[Adapter, ...] = (
    *ACTIVATIONS,
    *ATTENTION,
    *BLOCKWISE,
    *FUSED,
    *GROUPED_ATTENTION,
    *MOVEMENT,
    *NORMALISATION,
    *QUANTISED,
    *RECURRENT,
)

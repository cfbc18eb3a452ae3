"""Real models: read, prepared with every check on, no operator lost, and equal to ONNX Runtime or
LiteRT.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zoo.check import check

LIGHT = ("light_squeezenet", "light_resnet50", "light_inception_v2")
FETCHED = (
    "ppocrv4_det",
    "ppocrv4_rec",
    "silero_vad_16k_op15",
    "silero_vad_op18_ifless",
    "magika_v3_3",
    "mtcnn_pnet",
    "swift_f0",
    "nsnet2",
    "fsmn_vad",
    "pulsevad_int8",
    "asr_nemo128",
)
LITE = ("basic_pitch_tfl", "litert_dummy_cv", "mww_okay_nabu")


@pytest.mark.parametrize("name", [*LIGHT, *FETCHED, *LITE])
def test_a_real_model_is_prepared_and_computes_the_same(
    name: str, zoo_model: Callable[[str], Path]
) -> None:
    verdict = check(zoo_model(name))
    assert verdict.status == "ok", verdict.detail
    assert verdict.operators > 0

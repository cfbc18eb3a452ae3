"""Resizing of images."""

from __future__ import annotations

from functools import partial

import numpy as np

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.graph.node import Ref
from whence.ops.definition import Attr


def _resize(
    call: AtenCall, rank: int, mode: str, exact: bool = False, antialias: bool = False
) -> Value:
    attrs: dict[str, Attr] = {"mode": mode}
    if mode == "nearest":
        attrs["coordinate_transformation_mode"] = "half_pixel" if exact else "asymmetric"
        attrs["nearest_mode"] = "round_prefer_ceil" if exact else "floor"
    else:
        aligned = bool(call.plain("align_corners"))
        attrs["coordinate_transformation_mode"] = "align_corners" if aligned else "half_pixel"
    if mode == "cubic":
        attrs["cubic_coeff_a"] = -0.5 if antialias else -0.75
    if antialias:
        attrs["antialias"] = 1
    x = call.subject
    factors = _factors(call, rank)
    axes = tuple(range(2, 2 + rank))
    attrs["axes"] = axes
    if factors is not None:
        scales = call.const(np.array(factors, np.float32))
        return call.emit("Resize", [x, None, scales], attrs)
    sizes: Ref = call.shape_value(call.args["output_size"])
    return call.emit("Resize", [x, None, None, sizes], attrs)


def _factors(call: AtenCall, rank: int) -> list[float] | None:
    """What the image is scaled by, where that was given: positions are computed by it, whatever
    the size of the result is rounded to.
    """
    if "scale_factors" in call.args:
        given = call.plain("scale_factors")
    else:
        names = ("scales_d", "scales_h", "scales_w")[-rank:]
        given = [call.plain("scales" if rank == 1 else name) for name in names]
    if not given or any(each is None for each in given):
        return None
    return [float(each) for each in given]


MAPPINGS: Mappings = {
    **{
        f"aten::upsample_nearest{rank}d": partial(_resize, rank=rank, mode="nearest")
        for rank in (1, 2, 3)
    },
    **{
        f"aten::_upsample_nearest_exact{rank}d": partial(
            _resize, rank=rank, mode="nearest", exact=True
        )
        for rank in (1, 2, 3)
    },
    "aten::upsample_linear1d": partial(_resize, rank=1, mode="linear"),
    "aten::upsample_bilinear2d": partial(_resize, rank=2, mode="linear"),
    "aten::upsample_trilinear3d": partial(_resize, rank=3, mode="linear"),
    "aten::upsample_bicubic2d": partial(_resize, rank=2, mode="cubic"),
    "aten::_upsample_bilinear2d_aa": partial(_resize, rank=2, mode="linear", antialias=True),
    "aten::_upsample_bicubic2d_aa": partial(_resize, rank=2, mode="cubic", antialias=True),
}

"""Resizing of images. The file's operators have the image on axes 1 and 2."""

from __future__ import annotations

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.schema import Option

_NEAREST = {
    ("asymmetric", "floor"): (False, False),
    ("half_pixel", "round_prefer_ceil"): (False, True),
    ("align_corners", "round_prefer_ceil"): (True, False),
}
"""Coordinates and rounding by (align_corners, half_pixel_centers)."""
_LINEAR = {
    "asymmetric": (False, False),
    "half_pixel": (False, True),
    "pytorch_half_pixel": (False, True),
    "align_corners": (True, False),
}


def _resize(call: ExportCall) -> None:
    if call.rank(0) != 4:
        call.unsupported(f"resizing of {call.type(0)}")
    before, after = call.shape(0), call.output_shape()
    moving = [axis for axis in range(4) if before[axis] != after[axis]]
    channels_first = any(axis == 3 for axis in moving) or set(
        call.numbers("axes", (0, 1, 2, 3))
    ) == {2, 3}
    if any(axis == 0 for axis in moving) or (channels_first and 1 in moving):
        call.unsupported(
            f"resizing of {list(before)} to {list(after)}, which are more axes than those of an"
            " image"
        )
    op, options = _kind(call, before, after)
    size = after[2:] if channels_first else after[1:3]
    if not channels_first:
        call.emit(
            op,
            [call.input(0), call.ints(size)],
            options,
            version=2 if call.is_quantised or not call.type(0).dtype.is_float else 1,
        )
        return
    if call.is_quantised:
        call.unsupported("quantised, with channels before the image")
    call.emit_channels_last(op, options, [call.ints(size)], (after[0], *after[2:], after[1]))


def _kind(
    call: ExportCall, before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[str, dict[str, Option]]:
    mode = call.text("mode", "nearest")
    coordinates = call.text("coordinate_transformation_mode", "half_pixel")
    whole = all(new % old == 0 for old, new in zip(before, after, strict=True))
    if (
        call.integer("antialias")
        or call.integer("exclude_outside")
        or mode not in ("nearest", "linear")
    ):
        call.unsupported(f"resizing of mode {mode}")
    if mode == "linear":
        found = _LINEAR.get(coordinates)
        if coordinates == "pytorch_half_pixel" and any(
            new == 1 != old for old, new in zip(before, after, strict=True)
        ):
            found = None
    else:
        rounding = call.text("nearest_mode", "round_prefer_floor")
        found = _NEAREST.get((coordinates, rounding))
        if (
            found is None
            and whole
            and coordinates in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
        ):
            # By a whole factor no coordinate lies half way between two elements unless the factor
            # is even and rounding is off-centre.
            found = (False, True) if rounding.startswith("round") else None
        if found is None and whole and coordinates == "asymmetric" and rounding == "floor":
            found = (False, False)
    if found is None:
        call.unsupported(
            f"resizing with coordinates {coordinates}"
            + (f" and rounding {call.text('nearest_mode', '')}" if mode == "nearest" else "")
        )
    aligned, centred = found
    name = "RESIZE_BILINEAR" if mode == "linear" else "RESIZE_NEAREST_NEIGHBOR"
    return name, {"align_corners": aligned, "half_pixel_centers": centred}


EXPORTS: Exports = {"Resize": _resize}

"""Traits: what is true of an operator whatever its attributes. A definition names them; passes,
fusion and kernels ask for them instead of keeping lists of operators.
"""

from __future__ import annotations

import enum


class Trait(enum.Flag):
    NONE = 0

    # ---- the edges of a graph ----
    BOUNDARY = enum.auto()
    """Not an operator but an edge of the graph: inputs, constants, outputs, variables."""
    SOURCE = enum.auto()
    """Its value is there before the run begins: an input, a variable or a constant."""
    GIVEN = enum.auto()
    """A source whose value changes from run to run: an input or a variable."""

    # ---- moving elements ----
    VIEW = enum.auto()
    """The same elements in the same order, so that its result can share its input's memory."""
    RESHAPE = enum.auto()
    """A view that only states another shape."""
    STRIDED = enum.auto()
    """Its elements are those of its input at other strides: kernels can read through it."""
    PERMUTES = enum.auto()
    """Every element of its data appears once in its result."""
    SELECTS = enum.auto()
    """Every element of its result is one of the elements of its data, so that it gives the same on
    codes as on the numbers behind them.
    """
    MOVES = enum.auto()
    """It selects from one operand, by position only, and adds nothing."""
    COMPARES = enum.auto()
    """It selects by the order of the elements."""
    GATHERS = enum.auto()
    """Reads its data at computed indices."""
    SCATTERS = enum.auto()
    """Writes into a copy of its data at computed indices."""
    READS_PART = enum.auto()
    """Reads no more of its data than it writes."""
    REPEATS = enum.auto()
    """May read one element of its data for many of its result, without broadcasting."""
    GROWS = enum.auto()
    """Its result may be of any size, whatever the size of its inputs."""
    SAME_AXIS = enum.auto()
    """Works along the axis that its attribute `axis` names, and keeps the shape."""
    CONTIGUOUS_PARTS = enum.auto()
    """Joins or divides along an axis: a part may be a contiguous range of the whole."""
    CHECKS_INDICES = enum.auto()
    """Its kernels check an index before they follow it."""

    # ---- control ----
    ITERATES = enum.auto()
    """Its body runs once for each iteration of a loop."""

    # ---- types ----
    SHAPE_ONLY = enum.auto()
    """Reads the shape of its first operand, never its elements."""
    TAKES_SIZES = enum.auto()
    """Operands state sizes of its result."""
    READS_TYPE = enum.auto()
    """Its result depends on the element type that it is given, not only on the values."""
    CASTS = enum.auto()
    """Changes the element type and keeps the values, as far as the type holds them."""
    EXACT = enum.auto()
    """Its results need no rounding in the type of its operands."""

    # ---- arithmetic ----
    ADDS = enum.auto()
    """The sum of its operands."""
    SCALES = enum.auto()
    """One operand multiplied or divided by another."""
    IDEMPOTENT = enum.auto()
    """f(f(x)) = f(x)"""
    NOT_NEGATIVE = enum.auto()
    """No element of its result is less than zero."""
    SAME_SHAPE = enum.auto()
    """Its operands must have one shape: nothing is broadcast."""
    EXPONENTIAL = enum.auto()
    """An error in its operand becomes a factor in its result."""
    SUMS = enum.auto()
    """The sum or the mean of all elements along axes."""

    # ---- products ----
    CONVOLUTION = enum.auto()
    """Slides weights over spatial axes: Conv, in any layout, fused or not."""
    TRANSPOSED_CONVOLUTION = enum.auto()
    """ConvTranspose, in any layout, fused or not."""
    PRODUCT = enum.auto()
    """A matrix product of numbers, fused or not."""
    ROW_WISE = enum.auto()
    """A row of its result, along the last axis, is made of the same row of its first operand; a
    product's if the other one is a single matrix.
    """
    POOLS_WINDOWS = enum.auto()
    """Combines the elements of a window that slides over spatial axes."""
    FUSED = enum.auto()
    """A supernode: with an addend and an activation applied to its result."""
    BLOCKED = enum.auto()
    """Works on channel-blocked tensors."""
    CHANNELS_LAST = enum.auto()
    """Works on (N, spatial..., C)."""
    RELAYOUT = enum.auto()
    """Converts between the plain and the channel-blocked layout."""
    CODES = enum.auto()
    """Converts between numbers and their codes."""


FORM = Trait.FUSED | Trait.BLOCKED | Trait.CHANNELS_LAST
"""How a form of a plain operator differs from it."""

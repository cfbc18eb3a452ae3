"""The functions that expressions apply."""

from __future__ import annotations

import enum


class Fn(enum.StrEnum):
    """The scalar functions a renderer knows."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    """Division; truncating for integers."""
    REM = "rem"
    """Remainder with the sign of the dividend."""
    MOD = "mod"
    """Remainder with the sign of the divisor."""
    POW = "pow"
    MAX = "max"
    MIN = "min"
    NEG = "neg"
    ABS = "abs"
    SIGN = "sign"
    EXP = "exp"
    EXP_DOWN = "exp_down"
    """The same of a number that is not positive; what is too small for a normal number is 0."""
    EXPM1 = "expm1"
    """exp(x) - 1 without the loss of digits near 0."""
    LOG = "log"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    ERF_PLUS_1 = "erf_plus_1"
    """erf(x) + 1, off by as much as such a sum is: less than what counts near 1, whatever x is."""
    TANH_PLUS_1 = "tanh_plus_1"
    """tanh(x) + 1, likewise."""
    SIGMOID = "sigmoid"
    SOFTPLUS = "softplus"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"
    """To nearest, ties to even."""
    ISNAN = "isnan"
    ISINF = "isinf"
    LT = "lt"
    LE = "le"
    EQ = "eq"
    AND = "and"
    OR = "or"
    XOR = "xor"
    NOT = "not"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    BIT_NOT = "bit_not"
    SHIFT_LEFT = "shift_left"
    SHIFT_RIGHT = "shift_right"
    SELECT = "select"
    """`select(condition, then, else)`; only the chosen side is evaluated, so a guard makes a load
    safe.
    """
    CHOOSE = "choose"
    """The same where either side may be evaluated at any time, so that what both need is computed
    once.
    """
    ORDER = "order"
    """A 32-bit integer for a float32, in the order of the numbers; a maximum of those is found much
    faster. NaNs lie at the ends.
    """
    UNORDER = "unorder"
    """The float32 that `order` made an integer of."""
    HIGH_MUL = "high_mul"
    """(a · b + 2^30) / 2^31 of 32-bit integers, rounded down."""
    ROUND_SHIFT = "round_shift"
    """`round_shift(x, by)`: x / 2^by of 32-bit integers, to nearest, halves away from zero; `by` is
    at least 1, and |x| below the largest number.
    """
    SCALE_ONCE = "scale_once"
    """`scale_once(x, factor, by)`: x · factor / 2^by of 32-bit integers, to nearest, halves up."""
    CHECKED = "checked"
    """`checked(at, extent)`: an index into an axis, counted from its end where it is negative. One
    that is outside is noted as the fault of this run, and some index that is inside stands for it.
    """
    CAST = "cast"
    """Conversion as ONNX's Cast does it: float to integer truncates, anything to bool compares with
    zero.
    """


LIBRARY_FUNCTIONS = frozenset(
    {Fn.SIN, Fn.COS, Fn.TAN, Fn.ASIN, Fn.ACOS, Fn.ATAN}
    | {Fn.SINH, Fn.COSH, Fn.ASINH, Fn.ACOSH, Fn.ATANH, Fn.POW}
)
"""Of real numbers, by the C library."""
OWN_FUNCTIONS = frozenset(
    {Fn.EXP, Fn.EXPM1, Fn.EXP_DOWN, Fn.LOG, Fn.TANH, Fn.ERF, Fn.ERF_PLUS_1, Fn.TANH_PLUS_1}
    | {Fn.SIGMOID, Fn.SOFTPLUS}
)
"""Of real numbers, by polynomials of the prelude."""
COSTLY_FUNCTIONS = LIBRARY_FUNCTIONS | OWN_FUNCTIONS | {Fn.SQRT, Fn.RSQRT}
"""Each of them is many operations."""

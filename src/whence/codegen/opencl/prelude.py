"""The OpenCL C text that stands before generated kernels.

Expressions are written as for C (`render_c`); here is what their words mean in OpenCL. Functions
whose last digits matter are our own polynomials, the same as on the CPU, so that two engines give
the same numbers; the rest are the device's.
"""

from __future__ import annotations

from whence.codegen.prelude import BFLOATS, DOUBLE_NUMBERS, DOUBLES, NUMBERS, SINGLES

_TYPES = """
typedef char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
#define INT32_MIN INT_MIN
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define W_INLINE static inline

/* An index counted from the end where it is negative. For one that is outside, the nearest that is inside is taken and the number of the step
   noted; the first that is noted stays. */
W_INLINE int64_t w_inside(int64_t at, int64_t extent, volatile __global int *fault, int step) {
  const int64_t from_start = at < 0 ? at + extent : at;
  if (from_start < 0 || from_start >= extent) atomic_cmpxchg(fault, 0, step);
  return from_start < 0 ? 0 : from_start < extent ? from_start : extent - 1;
}
#define w_checked(at, extent, outside) w_inside(at, extent, w_fault, w_step)

W_INLINE uint32_t w_bits(float x) { return as_uint(x); }
W_INLINE float w_float(uint32_t u) { return as_float(u); }

""".lstrip()

_SINGLE_NAMES = ("sqrt", "floor", "ceil", "rint", "fabs", "fmod", "pow", "copysign", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
                 "asinh", "acosh", "atanh")  # fmt: skip
_DOUBLE_NAMES = (*_SINGLE_NAMES, "exp", "expm1", "log", "log1p", "tanh", "erf")

_WORDS = "".join(f"#define __builtin_{name}f {name}\n" for name in _SINGLE_NAMES) + (
    '#define __builtin_inff() as_float(0x7f800000u)\n#define __builtin_nanf(text) nan(0u)\n'
    "#define __builtin_elementwise_maximum(a, b) w_larger(a, b)\n"
    "#define __builtin_elementwise_minimum(a, b) w_smaller(a, b)\n"
    "W_INLINE float __attribute__((overloadable)) w_larger(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }\n"
    "W_INLINE float __attribute__((overloadable)) w_smaller(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }\n\n"
)  # fmt: skip

_DOUBLE_WORDS = "".join(f"#define __builtin_{name} {name}\n" for name in _DOUBLE_NAMES) + (
    '#define __builtin_inf() as_double(0x7ff0000000000000ul)\n#define __builtin_nan(text) nan(0ul)\n'
    "W_INLINE double __attribute__((overloadable)) w_larger(double a, double b) { return a != a ? a : b != b ? b : a > b ? a : b; }\n"
    "W_INLINE double __attribute__((overloadable)) w_smaller(double a, double b) { return a != a ? a : b != b ? b : a < b ? a : b; }\n\n"
)  # fmt: skip


def prelude(*, doubles: bool) -> str:
    """What stands before kernels on a device with or without double precision."""
    text = _TYPES + _WORDS + SINGLES + NUMBERS + BFLOATS
    if doubles:
        text = (
            "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
            + text
            + _DOUBLE_WORDS
            + DOUBLES
            + DOUBLE_NUMBERS
        )
    return "#pragma OPENCL FP_CONTRACT ON\n" + text

"""Sums of products of bytes whose unsigned side is small, for weights of a few bits. Stands after
the vectors of integer kernels.

`w_small_dot_i32xN(sum, codes, x)` adds, in each of N lanes, the four products of that lane's bytes
of `codes` (0 to 127) and of `x` (-127 to 127). A sum is in the machine's own form. It begins as
`w_small_begin_i32xN(total)`, and `w_small_end_i32xN(sum, total)` is that total, in int32 lanes,
with all products added. With VNNI or NEON's dot product it is int32 all along and begins as the
total. Without, x86 adds pairs in 16 bits, one instruction less a step: their largest, steps · 2 ·
code · 127, must stay below 32768.
"""

from __future__ import annotations

from whence.codegen.integer_vectors import by_instructions


def _function(lanes: int, dot: str, begin: str = "total", end: str = "sum") -> str:
    kind = f"w_i32x{lanes}"
    return (
        f"W_INLINE {kind} w_small_dot_i32x{lanes}({kind} sum, {kind} codes, {kind} x)"
        f" {{ return {dot}; }}\n"
    ) + _ends(lanes, begin, end)


def _ends(lanes: int, begin: str = "total", end: str = "sum") -> str:
    kind = f"w_i32x{lanes}"
    return (
        f"W_INLINE {kind} w_small_begin_i32x{lanes}({kind} total) {{ return {begin}; }}\n"
        f"W_INLINE {kind} w_small_end_i32x{lanes}({kind} sum, {kind} total)"
        f" {{ (void)total; return {end}; }}\n"
    )


def _at_once(lanes: int) -> str:
    size, product = 4 * lanes, f"__builtin_ia32_vpdpbusd{32 * lanes}"
    return _function(
        lanes, f"(w_i32x{lanes}){product}((m{size}_i32)sum, (m{size}_u8)codes, (m{size}_i8)x)"
    )


def _in_pairs(lanes: int) -> str:
    size, words = 4 * lanes, f"w_i16x{2 * lanes}"
    pairs, fold = (f"__builtin_ia32_{name}{32 * lanes}" for name in ("pmaddubsw", "pmaddwd"))
    return _function(
        lanes,
        f"(w_i32x{lanes})(({words})sum + ({words}){pairs}((m{size}_i8)codes, (m{size}_i8)x))",
        f"(w_i32x{lanes}){{0}}",
        f"total + (w_i32x{lanes}){fold}((m{size}_i16)sum, (m{size}_i16)(({words})(1)))",
    )


def _plain(lanes: int) -> str:
    terms = " + ".join(
        f"((codes >> {8 * byte}) & 127) * ((x << {24 - 8 * byte}) >> 24)" for byte in range(4)
    )
    return _function(lanes, f"sum + {terms}")


_NEON = _function(4, "(w_i32x4)vdotq_s32((int32x4_t)sum, (int8x16_t)codes, (int8x16_t)x)")
_NEON_PAIRS = """W_INLINE w_i32x4 w_small_dot_i32x4(w_i32x4 sum, w_i32x4 codes, w_i32x4 x) {
  const int8x16_t a = (int8x16_t)codes, b = (int8x16_t)x;
  const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
  return (w_i32x4)vpadalq_s16((int32x4_t)sum, vpaddq_s16(low, high));
}
""" + _ends(4)

PACKED_VECTORS = by_instructions(
    _at_once,
    _in_pairs,
    _plain,
    "__SSSE3__",
    ("defined(__ARM_FEATURE_DOTPROD)", _NEON),
    ("defined(__aarch64__)", _NEON_PAIRS),
)

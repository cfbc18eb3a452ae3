"""Vectors of every element type for integer kernels, and what they do with them: sums of products
of bytes, fixed-point scaling.

Stands after the prelude. Which instructions serve is decided when it is compiled, so kernels are
the same text for every machine:

- `w_dot_xN(sum, a, b)` adds to each of N int32 lanes the four products of that lane's unsigned
  bytes of `a` and signed bytes of `b`, exactly:
  one instruction with VNNI or i8mm; two of 16-bit products without, which unlike the 8-bit ones of
  old never saturate.
- `w_quads_xN(a, b, c, d, order)` puts the bytes of four vectors side by side: lane i holds byte i
  of each. `order` is `w_quad_order_xN()`.
- `w_look_up_xN(table, codes)` reads a table of 256 bytes that `w_table_of` has made ready.
- `w_high_mul_xN` and `w_round_shift_xN` are the two halves of gemmlowp's fixed-point scaling,
  `w_scale_once_xN` its form that rounds once.
"""

from __future__ import annotations

from collections.abc import Callable

_LANES = (4, 8, 16)


def _machine_types(lanes: int) -> str:
    """The types that the compiler's builtins take."""
    size = 4 * lanes
    return "".join(
        f"typedef {c} m{size}_{name} __attribute__((vector_size({size})));\n"
        for name, c in (
            ("i8", "signed char"),
            ("u8", "unsigned char"),
            ("i16", "short"),
            ("i32", "int"),
        )
    )


def _dot_by_words(lanes: int) -> str:
    """Even and odd bytes widened to 16 bits, whose products are added in pairs."""
    size, words, product = 4 * lanes, f"w_i16x{2 * lanes}", f"__builtin_ia32_pmaddwd{32 * lanes}"
    return f"""W_INLINE w_i32x{lanes} w_dot_x{lanes}(w_i32x{lanes} sum, w_i32x{lanes} a, w_i32x{lanes} b) {{
  const {words} a0 = ({words})(a & 0x00ff00ff), a1 = ({words})((w_u16x{2 * lanes})a >> 8);
  const {words} b0 = (({words})b << 8) >> 8, b1 = ({words})b >> 8;
  return sum + (w_i32x{lanes}){product}((m{size}_i16)a0, (m{size}_i16)b0) + (w_i32x{lanes}){product}((m{size}_i16)a1, (m{size}_i16)b1);
}}
"""


def _dot_at_once(lanes: int) -> str:
    size, product = 4 * lanes, f"__builtin_ia32_vpdpbusd{32 * lanes}"
    return f"""W_INLINE w_i32x{lanes} w_dot_x{lanes}(w_i32x{lanes} sum, w_i32x{lanes} a, w_i32x{lanes} b) {{
  return (w_i32x{lanes}){product}((m{size}_i32)sum, (m{size}_u8)a, (m{size}_i8)b);
}}
"""


def _dot_plain(lanes: int) -> str:
    terms = " + ".join(
        f"((a >> {8 * byte}) & 255) * ((b << {24 - 8 * byte}) >> 24)" for byte in range(4)
    )
    return (
        f"W_INLINE w_i32x{lanes} w_dot_x{lanes}(w_i32x{lanes} sum, w_i32x{lanes} a, w_i32x{lanes} b) {{"
        f" return sum + {terms}; }}\n"
    )


# Signed bytes are all that this instruction multiplies: a = (a - 128) + 64 + 64.
_NEON_DOT = """W_INLINE w_i32x4 w_dot_x4(w_i32x4 sum, w_i32x4 a, w_i32x4 b) {
  const int8x16_t turned = (int8x16_t)(a ^ (w_i32x4)(int32_t)0x80808080), half = vdupq_n_s8(64);
  const int32x4_t base = vdotq_s32(vdotq_s32(vdupq_n_s32(0), half, (int8x16_t)b), half, (int8x16_t)b);
  return (w_i32x4)vdotq_s32((int32x4_t)sum, turned, (int8x16_t)b) + (w_i32x4)base;
}
"""
_NEON_MIXED_DOT = """W_INLINE w_i32x4 w_dot_x4(w_i32x4 sum, w_i32x4 a, w_i32x4 b) {
  return (w_i32x4)vusdotq_s32((int32x4_t)sum, (uint8x16_t)a, (int8x16_t)b);
}
"""


def choose(*cases: tuple[str, str]) -> str:
    """The first text whose condition holds; the last one's condition is empty."""
    lines = [
        f"#{'el' if number else ''}if {condition}\n{text}" if condition else f"#else\n{text}"
        for number, (condition, text) in enumerate(cases)
    ]
    return "".join(lines) + "#endif\n"


def by_instructions(
    at_once: Callable[[int], str],
    in_pairs: Callable[[int], str],
    plain: Callable[[int], str],
    smallest: str,
    *neon: tuple[str, str],
) -> str:
    """Sums of products of bytes for vectors of every length, by what the machine has: one
    instruction (VNNI), pairs of 16 bits (for the shortest vectors, where `smallest` is defined), or
    neither.
    """
    vnni = "defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))"
    return "".join(
        choose((first, at_once(lanes)), (second, in_pairs(lanes)), *others, ("", plain(lanes)))
        for lanes, first, second, others in (
            (16, "defined(__AVX512VNNI__)", "defined(__AVX512BW__)", ()),
            (8, vnni, "defined(__AVX2__)", ()),
            (4, vnni, f"defined({smallest})", neon),
        )
    )


_DOTS = by_instructions(
    _dot_at_once,
    _dot_by_words,
    _dot_plain,
    "__SSE2__",
    ("defined(__ARM_FEATURE_MATMUL_INT8)", _NEON_MIXED_DOT),
    ("defined(__ARM_FEATURE_DOTPROD)", _NEON_DOT),
)


def _quads(lanes: int) -> str:
    """Widened, shifted into place and joined; where one instruction can put 64 bytes in any order,
    it does.

    The order is hidden from the compiler, which would make a dozen simpler shuffles of a known one.
    It is asked for once, outside the loops.
    """
    vec = f"w_i32x{lanes}"
    joined = " | ".join(
        f"(__builtin_convertvector({name}, w_i32x{lanes}) << {8 * byte})"
        for byte, name in enumerate("abcd")
    )
    head = (
        f"{vec} w_quads_x{lanes}(w_u8x{lanes} a, w_u8x{lanes} b, w_u8x{lanes} c, w_u8x{lanes} d, {vec}"
        " order)"
    )
    plain = (
        f"W_INLINE {vec} w_quad_order_x{lanes}(void) {{ return ({vec})(0); }}\nW_INLINE {head} {{"
        f" (void)order; return {joined}; }}\n"
    )
    if lanes != 16:
        return plain
    two = ", ".join(str(j) for j in range(32))
    four = ", ".join(str(j) for j in range(64))
    places = ", ".join(str(j % 4 * 16 + j // 4) for j in range(64))
    quick = f"""W_INLINE {vec} w_quad_order_x16(void) {{
  w_u8x64 order = {{{places}}};
  __asm__("" : "+v"(order));
  return ({vec})order;
}}
W_INLINE {head} {{
  const w_u8x64 all = __builtin_shufflevector(__builtin_shufflevector(a, b, {two}), __builtin_shufflevector(c, d, {two}), {four});
  return ({vec})__builtin_ia32_permvarqi512((m64_i8)all, (m64_i8)order);
}}
"""
    return choose(("defined(__AVX512VBMI__)", quick), ("", plain))


def _fixed_point(lanes: int) -> str:
    """Products of 64 bits, those of even lanes apart from those of odd ones: the results then lie
    where they belong.
    """
    pairs = lanes // 2
    wide, vec = (
        (f"w_i64x{pairs}", f"w_i32x{lanes}") if pairs >= 4 else ("w_i64x2", f"w_i32x{lanes}")
    )
    mixed = ", ".join(str(j if j % 2 == 0 else lanes + j) for j in range(lanes))
    return f"""W_INLINE {vec} w_high_mul_x{lanes}({vec} a, {vec} b) {{
  const {wide} a2 = ({wide})a, b2 = ({wide})b;
  const {wide} even = (((a2 << 32) >> 32) * ((b2 << 32) >> 32) + (1 << 30)) >> 31;
  {wide} odd = (a2 >> 32) * (b2 >> 32);
  W_OPAQUE_x{lanes}(odd); /* Or the compiler doubles the factor instead, which then has 33 bits and takes a slow multiplication. */
  odd = (odd + (1 << 30)) << 1;
  return __builtin_shufflevector(({vec})even, ({vec})odd, {mixed});
}}
W_INLINE {vec} w_round_shift_x{lanes}({vec} x, {vec} by) {{ return (((x + (x >> 31)) >> (by - 1)) + 1) >> 1; }}
W_INLINE {vec} w_scale_once_x{lanes}({vec} x, {vec} factor, {vec} by) {{
  const {wide} x2 = ({wide})x, f2 = ({wide})factor, b2 = ({wide})by, one = ({wide})(1);
  const {wide} low = (b2 << 32) >> 32, high = b2 >> 32;
  const {wide} even = (((x2 << 32) >> 32) * ((f2 << 32) >> 32) + (one << (low - 1))) >> low;
  const {wide} odd = (((x2 >> 32) * (f2 >> 32) + (one << (high - 1))) >> high) << 32;
  return __builtin_shufflevector(({vec})even, ({vec})odd, {mixed});
}}
"""


def _tables() -> str:
    """Tables of 256 bytes: in four registers where one instruction looks up in two of them, else in
    memory.
    """
    quick, plain = [], []
    for lanes in _LANES:
        head = f"W_INLINE w_u8x{lanes} w_look_up_x{lanes}(w_table table, w_u8x{lanes} code)"
        widened = ", ".join(str(j) if j < lanes else "-1" for j in range(64))
        narrowed = ", ".join(str(j) for j in range(lanes))
        quick.append(f"""{head} {{
  const w_i8x64 wide = (w_i8x64)__builtin_shufflevector(code, code, {widened});
  const w_i8x64 low = (w_i8x64)__builtin_ia32_vpermi2varqi512(table.part[0], (m64_i8)wide, table.part[1]);
  const w_i8x64 high = (w_i8x64)__builtin_ia32_vpermi2varqi512(table.part[2], (m64_i8)wide, table.part[3]);
  return (w_u8x{lanes})__builtin_shufflevector(wide < 0 ? high : low, low, {narrowed});
}}
""")
        plain.append(f"""{head} {{
  w_u8x{lanes} found;
  _Pragma("clang loop unroll(full)") for (int j = 0; j < {lanes}; j++) found[j] = table.at[code[j]];
  return found;
}}
""")
    load = """typedef struct { m64_i8 part[4]; } w_table;
W_INLINE w_table w_table_of(const void *at) { w_table table; __builtin_memcpy(&table, at, 256); return table; }
"""
    point = """typedef struct { const uint8_t *at; } w_table;
W_INLINE w_table w_table_of(const void *at) { return (w_table){at}; }
"""
    return choose(("defined(__AVX512VBMI__)", load + "".join(quick)), ("", point + "".join(plain)))


_WORDS = """#define W_OPAQUE_x4(x) (void)0
#define W_OPAQUE_x8(x) (void)0
#define W_OPAQUE_x16(x) (void)0
#if defined(__SSE2__)
#undef W_OPAQUE_x4
#define W_OPAQUE_x4(x) __asm__("" : "+x"(x))
#elif defined(__aarch64__)
#undef W_OPAQUE_x4
#define W_OPAQUE_x4(x) __asm__("" : "+w"(x))
#endif
#if defined(__AVX2__)
#undef W_OPAQUE_x8
#define W_OPAQUE_x8(x) __asm__("" : "+x"(x))
#endif
#if defined(__AVX512F__)
#undef W_OPAQUE_x16
#define W_OPAQUE_x16(x) __asm__("" : "+v"(x))
#endif
typedef int32_t w_i32x1 __attribute__((ext_vector_type(1)));
typedef int64_t w_i64x2 __attribute__((ext_vector_type(2), aligned(8), may_alias));
"""

INTEGER_VECTORS = (
    "#if defined(__ARM_NEON)\n#include <arm_neon.h>\n#endif\n"
    + _WORDS
    + "".join(_machine_types(lanes) for lanes in _LANES)
    + _DOTS
    + "".join(_quads(lanes) + _fixed_point(lanes) for lanes in _LANES)
    + _tables()
)

"""Vector types for micro-kernels and what they do with whole vectors, in the compiler's portable
vector extension. Stands after the prelude.
"""

from __future__ import annotations

from whence.codegen.integer_vectors import INTEGER_VECTORS
from whence.codegen.packed_vectors import PACKED_VECTORS

_BYTES = (("i8", "int8_t", 1), ("u8", "uint8_t", 1))
_WORDS = (("i16", "int16_t", 2), ("u16", "uint16_t", 2))
_WIDER = (("i32", "int32_t", 4), ("u32", "uint32_t", 4), ("i64", "int64_t", 8),
          ("u64", "uint64_t", 8), ("f32", "float", 4), ("f16", "_Float16", 2))  # fmt: skip


def _types(lanes: int) -> str:
    """Vectors that are read where any element may lie, and whatever the type of what lies there:
    bytes hold packed words. Only bytes fill the largest registers.
    """
    elements = (*_BYTES, *(_WORDS if lanes <= 32 else ()), *(_WIDER if lanes <= 16 else ()))
    return "".join(
        f"typedef {c} w_{name}x{lanes} __attribute__((ext_vector_type({lanes}), aligned({size}),"
        " may_alias));\n"
        for name, c, size in elements
    )


def _vector(lanes: int) -> str:
    return f"W_INLINE w_f32x{lanes} w_splat_f32x{lanes}(float x) {{ return (w_f32x{lanes})(x); }}\n"


def _folds(lanes: int) -> str:
    """The sum and the largest of a vector's elements, by halves."""
    lines = []
    for name, combine in (("sum", "x + y"), ("top", "x > y ? x : y")):
        lines.append(f"W_INLINE float w_{name}_f32x{lanes}(w_f32x{lanes} x) {{")
        lines.append(f"  w_f32x{lanes} y;")
        step = lanes // 2
        while step:
            order = ", ".join(str((j + step) % lanes) for j in range(lanes))
            lines.append(f"  y = __builtin_shufflevector(x, x, {order}), x = {combine};")
            step //= 2
        lines.append("  return x[0];\n}")
    return "\n".join(lines) + "\n"


def _exp(lanes: int) -> str:
    """As `w_expf` of the prelude, but for arguments that are not positive, where one factor of 2^n
    is enough; tiny results are 0.
    """
    return f"""W_INLINE w_f32x{lanes} w_exp_down_f32x{lanes}(w_f32x{lanes} x) {{
  const w_f32x{lanes} low = (w_f32x{lanes})(-87.0f), c = x > low ? x : low;
  const w_f32x{lanes} t = c * 0x1.715476p+0f + 0x1.8p+23f, n = t - 0x1.8p+23f;
  const w_f32x{lanes} r = (c - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  w_f32x{lanes} p = (w_f32x{lanes})(0x1.6a2436p-10f);
  p = p * r + 0x1.1239ep-7f;
  p = p * r + 0x1.5558f2p-5f;
  p = p * r + 0x1.555492p-3f;
  p = p * r + 0x1.fffffcp-2f;
  p = p * r * r + r + 1.0f;
  w_i32x{lanes} k;
  __builtin_memcpy(&k, &t, sizeof k);
  k = (k + (127 - 0x4b400000)) << 23;
  w_f32x{lanes} power;
  __builtin_memcpy(&power, &k, sizeof k);
  return x < low ? (w_f32x{lanes})(0.0f) : x == x ? p * power : x;
}}
"""


def _sigmoid(lanes: int) -> str:
    """1 / (1 + exp(-x)), the exponential as 2^n times a polynomial of what is left, as in the
    prelude. Beyond the bounds the result is 1 or next to nothing, and 2^n a normal number before
    it.

    What is left is x + n ln 2, and the polynomial one of its negative, so that nothing is negated.
    One product makes it: float32 has ln 2 with an error of 2e-9, and n is less than 30 wherever the
    result is more than 1e-9.
    """
    vector = f"w_f32x{lanes}"
    return f"""W_INLINE {vector} w_sigmoid_f32x{lanes}({vector} x) {{
  {vector} e = ({vector})(-87.0f) > x ? ({vector})(-87.0f) : x;
  e = ({vector})(87.0f) < e ? ({vector})(87.0f) : e;
  const {vector} t = e * -0x1.715476p+0f + 0x1.8p+23f, n = t - 0x1.8p+23f;
  e = e + n * 0x1.62e43p-1f;
  {vector} p = ({vector})(-0x1.6a23cap-10f);
  p = p * e + 0x1.1239e8p-7f;
  p = p * e - 0x1.5558f2p-5f;
  p = p * e + 0x1.555492p-3f;
  p = p * e - 0x1.fffffcp-2f;
  p = p * e + 1.0f;
  p = 1.0f - p * e;
  return ({vector})(1.0f) / (({vector})((w_i32x{lanes})p + ((w_i32x{lanes})t << 23)) + 1.0f);
}}
"""


def _transpose(lanes: int) -> str:
    """A square of vectors transposed in registers: each stage swaps one bit of the row's number
    with the column's.
    """
    lines = [
        f"W_INLINE void w_transpose_f32x{lanes}(w_f32x{lanes} *r) {{",
        f"  w_f32x{lanes} a, b;",
    ]
    step = 1
    while step < lanes:
        upper = ", ".join(str(j if not j & step else lanes + j - step) for j in range(lanes))
        lower = ", ".join(str(j + step if not j & step else lanes + j) for j in range(lanes))
        for i in range(lanes):
            if not i & step:
                lines.append(f"  a = r[{i}], b = r[{i + step}];")
                lines.append(
                    f"  r[{i}] = __builtin_shufflevector(a, b, {upper}), r[{i + step}] ="
                    f" __builtin_shufflevector(a, b, {lower});"
                )
        step *= 2
    return "\n".join([*lines, "}"]) + "\n"


_BF16 = """#ifdef __AVX512BF16__
typedef __bf16 w_bf16x16 __attribute__((ext_vector_type(16), aligned(2)));
#endif
"""

VECTORS = (
    "/* Loads and stores need no more alignment than an element has. */\n"
    + "".join(_types(lanes) for lanes in (4, 8, 16, 32, 64))
    + "".join(
        _vector(lanes) + _transpose(lanes) + _folds(lanes) + _exp(lanes) + _sigmoid(lanes)
        for lanes in (4, 8, 16)
    )
    + _BF16
    + INTEGER_VECTORS
    + PACKED_VECTORS
)

"""The C text that stands before generated kernels: what arithmetic means, and functions that loops
over them vectorise.

What a kernel's author may rely on:

- float32 `exp`, `expm1`, `log`, `tanh`, `erf`, `sigmoid` and `softplus` are within 3 units in the
  last place for every input, down to subnormal inputs and results; NaN gives NaN, infinities give
  the limits. They have no branches and call nothing. `erf_plus_1` and `tanh_plus_1` are off by as
  much as a sum of such a function and 1 may be. Coefficients are from `tools/fit_prelude.py`.
- float64 versions are the C library's.
- `max` and `min` of floats give NaN if either side is NaN. Which zero they give for zeros of both
  signs is left open.
- `mod` has the sign of the divisor, `rem` that of the dividend; `sign` of NaN is NaN.
- Integer division by zero gives 0, as does the remainder; the most negative number divided by -1
  wraps to itself.
- Float to integer truncates. What does not fit behaves as on an x86 CPU, on every CPU: conversion
  goes through int32 (8-, 16- and 32-bit signed, 8- and 16-bit unsigned) or int64 (uint32, int64,
  uint64) and keeps the low bits; NaN and what even those cannot hold become their most negative
  number. So -1.0 is 255 as uint8 and 300.0 is 44. uint64 holds all of its own range, and what is
  above it becomes 0.
- bfloat16 is a struct, so that storing a number without `w_to_bf16` does not compile.
"""

from __future__ import annotations

_C_HEAD = r"""
#include <stddef.h>
#include <stdint.h>

#define W_INLINE static inline __attribute__((always_inline, unused))

/* Workers that do one kernel together; see whence_runtime.h. */
typedef struct w_gang {
  void *shared;
  int64_t members;
  void (*meet)(struct w_gang *);
  int64_t fault;
  int64_t taken, done;
  void (*await)(struct w_gang *, int64_t);
} w_gang;

/* Parts of a loop that the workers of a kernel share: each takes the next one until there is none, and goes on when all are done. */
W_INLINE int64_t w_take_part(w_gang *gang) { return __atomic_fetch_add(&gang->taken, 1, __ATOMIC_RELAXED); }
W_INLINE void w_part_done(w_gang *gang) { __atomic_fetch_add(&gang->done, 1, __ATOMIC_RELEASE); }
W_INLINE void w_await_parts(w_gang *gang, int64_t parts) { if (__atomic_load_n(&gang->done, __ATOMIC_ACQUIRE) < parts) gang->await(gang, parts); }

/* Several workers may note it at once. */
W_INLINE void w_note_fault(void *header) { __atomic_store_n(&(*(w_gang **)header)->fault, 1, __ATOMIC_RELAXED); }

/* An index counted from the end where it is negative. One that is outside is noted, and 0 stands for it. */
W_INLINE int64_t w_checked(int64_t at, int64_t extent, int64_t *outside) {
  const int64_t from_start = at < 0 ? (int64_t)((uint64_t)at + (uint64_t)extent) : at;
  const int64_t is_inside = (uint64_t)from_start < (uint64_t)extent;
  *outside |= !is_inside;
  return is_inside ? from_start : 0;
}

W_INLINE uint32_t w_bits(float x) { uint32_t u; __builtin_memcpy(&u, &x, 4); return u; }
W_INLINE float w_float(uint32_t u) { float x; __builtin_memcpy(&x, &u, 4); return x; }

""".lstrip()

SINGLES = r"""/* Integers in the order of the numbers: sign and magnitude as two's complement. */
W_INLINE int32_t w_order(float x) { const int32_t i = (int32_t)w_bits(x); return i ^ (int32_t)((uint32_t)(i >> 31) >> 1); }
W_INLINE float w_unorder(int32_t i) { return w_float((uint32_t)(i ^ (int32_t)((uint32_t)(i >> 31) >> 1))); }

/* ---- float32 functions ---- */

/* e^x = (result) * 2^k, the result near 1, for |x| up to a few thousand */
W_INLINE float w_exp_scaledf(float x, int32_t *k) {
  const float t = x * 0x1.715476p+0f + 0x1.8p+23f; /* a sum whose last place counts ones: its low bits are n = round(x / ln 2) */
  const float n = t - 0x1.8p+23f;
  const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 0x1.6a23cap-10f;
  p = p * r + 0x1.1239e8p-7f;
  p = p * r + 0x1.5558f2p-5f;
  p = p * r + 0x1.555492p-3f;
  p = p * r + 0x1.fffffcp-2f;
  *k = (int32_t)(w_bits(t) - 0x4b400000u);
  return p * r * r + r + 1.0f;
}

W_INLINE float w_power_of_2f(int32_t k) { return w_float((uint32_t)(k + 127) << 23); }

W_INLINE float w_expf(float x) {
  float c = x < -104.0f ? -104.0f : x; /* beyond these the result is 0, or infinite */
  c = c > 89.0f ? 89.0f : c;
  int32_t k;
  const float p = w_exp_scaledf(c, &k);
  const int32_t part = k >> 1;
  return p * w_power_of_2f(part) * w_power_of_2f(k - part); /* in two steps, each a normal number */
}

/* exp(x) - 1 = 2^k p + (2^k - 1) with p = exp(r) - 1, to which no 1 was ever added: near 0, where k is 0, no digit is lost */
W_INLINE float w_expm1f(float x) {
  const float c = x < -18.0f ? -18.0f : x > 89.0f ? 89.0f : x; /* beyond these the result is -1, or infinite */
  const float t = c * 0x1.715476p+0f + 0x1.8p+23f;
  const float n = t - 0x1.8p+23f;
  const float r = (c - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 0x1.6a23cap-10f;
  p = p * r + 0x1.1239e8p-7f;
  p = p * r + 0x1.5558f2p-5f;
  p = p * r + 0x1.555492p-3f;
  p = p * r + 0x1.fffffcp-2f;
  p = p * r * r + r;
  const int32_t k = (int32_t)(w_bits(t) - 0x4b400000u), part = k >> 1;
  const float scale = w_power_of_2f(part); /* the rest of 2^k comes last, since 2^128 is no float32 */
  return (p * scale + (scale - w_power_of_2f(part - k))) * w_power_of_2f(k - part);
}

/* exp of a number that is not positive, for sums of such: below the normal numbers it is 0. */
W_INLINE float w_exp_downf(float x) {
  const float c = x < -87.0f ? -87.0f : x;
  const float t = c * 0x1.715476p+0f + 0x1.8p+23f;
  const float n = t - 0x1.8p+23f;
  const float r = (c - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 0x1.6a2436p-10f;
  p = p * r + 0x1.1239ep-7f;
  p = p * r + 0x1.5558f2p-5f;
  p = p * r + 0x1.555492p-3f;
  p = p * r + 0x1.fffffcp-2f;
  p = p * r * r + r + 1.0f;
  p *= w_float((w_bits(t) + (127u - 0x4b400000u)) << 23);
  return x < -87.0f ? 0.0f : x == x ? p : x;
}

/* log of a positive normal number, plus `extra` times ln 2 */
W_INLINE float w_log_normalf(float x, float extra) {
  const int32_t e = (int32_t)(w_bits(x) - 0x3f3504f3u) >> 23; /* x = 2^e (1 + f) with 1 + f between sqrt(1/2) and sqrt(2) */
  const float f = w_float(w_bits(x) - ((uint32_t)e << 23)) - 1.0f;
  const float n = (float)e + extra, z = f * f;
  float p = -0x1.38b4cap-4f;
  p = p * f + 0x1.055bb4p-3f;
  p = p * f - 0x1.0d858cp-3f;
  p = p * f + 0x1.22da1ap-3f;
  p = p * f - 0x1.54723cp-3f;
  p = p * f + 0x1.99a008p-3f;
  p = p * f - 0x1.000228p-2f;
  p = p * f + 0x1.555554p-2f;
  return n * 0x1.62e4p-1f + (f + (p * f * z + (n * 0x1.7f7d1cp-20f - 0.5f * z)));
}

W_INLINE float w_logf(float x) {
  const int small = x < 0x1p-126f;
  const float y = w_log_normalf(small ? x * 0x1p+23f : x, small ? -23.0f : 0.0f);
  const float special = x == 0.0f ? -__builtin_inff() : __builtin_nanf("");
  return x < __builtin_inff() ? (x > 0.0f ? y : special) : x;
}

W_INLINE float w_tanhf(float x) {
  const float a = __builtin_fabsf(x), t = x * x;
  float p = -0x1.81d91ep-8f;
  p = p * t + 0x1.549f72p-6f;
  p = p * t - 0x1.b8957ap-5f;
  p = p * t + 0x1.110998p-3f;
  p = p * t - 0x1.55553ep-2f;
  const float small = p * t * a + a;
  int32_t k;
  const float e = w_exp_scaledf(a > 10.0f ? 20.0f : 2.0f * a, &k) * w_power_of_2f(k);
  const float large = 1.0f - 2.0f / (e + 1.0f);
  return __builtin_copysignf(a < 0.6f ? small : large, x);
}

W_INLINE float w_erff(float x) {
  const float a = __builtin_fabsf(x), t = x * x;
  float p = 0x1.4925d4p-14f;
  p = p * t - 0x1.a3df66p-11f;
  p = p * t + 0x1.5402aap-8f;
  p = p * t - 0x1.b7f8b2p-6f;
  p = p * t + 0x1.ce2cf2p-4f;
  p = p * t - 0x1.81273ep-2f;
  p = p * t + 0x1.06eba8p-3f;
  const float small = p * a + a;
  const float d = (a > 3.925f ? 3.925f : a) - 2.4f;
  float q = 0x1.2f9d0cp-17f;
  q = q * d - 0x1.0c01a4p-15f;
  q = q * d - 0x1.0ea644p-15f;
  q = q * d + 0x1.56e2a2p-12f;
  q = q * d - 0x1.26e518p-11f;
  q = q * d - 0x1.ea299ep-13f;
  q = q * d + 0x1.981ca8p-9f;
  q = q * d - 0x1.02affep-7f;
  q = q * d + 0x1.8cb6f4p-7f;
  q = q * d - 0x1.988b42p-7f;
  q = q * d + 0x1.17acbcp-7f;
  q = q * d - 0x1.d20d8ap-9f;
  q = q * d + 0x1.68f68ep-11f;
  return __builtin_copysignf(a < 1.0f ? small : 1.0f - q, x);
}

/* 1 + erf x, with the error of such a sum: x P(x^2) / Q(x^2) up to where erf rounds to 1 */
W_INLINE float w_erf_plus_1f(float x) {
  const float s = x * x, t = s > 15.4f ? 15.4f : s;
  float p = 0x1.129c86p-19f, q = 0x1.3f2adcp-15f;
  p = p * t + 0x1.2aae88p-12f, q = q * t + 0x1.311a56p-10f;
  p = p * t + 0x1.ee7c3p-9f, q = q * t + 0x1.eaf964p-7f;
  p = p * t + 0x1.b049b6p-5f, q = q * t + 0x1.d3b1fep-4f;
  p = p * t + 0x1.8656e6p-3f, q = q * t + 0x1.01261p-1f;
  p = p * t + 0x1.20dd74p+0f, q = q * t + 1.0f;
  const float y = x * p / q, z = y > 1.0f ? 1.0f : y;
  return (z < -1.0f ? -1.0f : z) + 1.0f;
}

/* 1 + tanh x = 2 / (1 + exp(-2x)) */
W_INLINE float w_tanh_plus_1f(float x) {
  float c = x < -43.0f ? -43.0f : x; /* beyond these the result is next to nothing, or 2 */
  c = c > 43.0f ? 43.0f : c;
  int32_t k;
  const float p = w_exp_scaledf(-2.0f * c, &k);
  return 2.0f / (p * w_power_of_2f(k) + 1.0f);
}

W_INLINE float w_sigmoidf(float x) {
  const float z = w_expf(-__builtin_fabsf(x)), s = 1.0f / (1.0f + z);
  return x < 0.0f ? z * s : s;
}

W_INLINE float w_softplusf(float x) {
  const float z = w_expf(-__builtin_fabsf(x)), u = 1.0f + z;
  const float rest = (z - (u - 1.0f)) * ((0.5f * z - 1.0f) * z + 1.0f); /* what rounding took from u, times about 1/u */
  return (x > 0.0f ? x : 0.0f) + (w_log_normalf(u, 0.0f) + rest);
}

"""
"""float32 functions."""

DOUBLES = r"""/* ---- float64 functions ---- */

W_INLINE double w_expd(double x) { return __builtin_exp(x); }
W_INLINE double w_exp_downd(double x) { return __builtin_exp(x); }
W_INLINE double w_expm1d(double x) { return __builtin_expm1(x); }
W_INLINE double w_logd(double x) { return __builtin_log(x); }
W_INLINE double w_tanhd(double x) { return __builtin_tanh(x); }
W_INLINE double w_erfd(double x) { return __builtin_erf(x); }

W_INLINE double w_erf_plus_1d(double x) { return __builtin_erf(x) + 1.0; }
W_INLINE double w_tanh_plus_1d(double x) { return __builtin_tanh(x) + 1.0; }

W_INLINE double w_sigmoidd(double x) {
  const double z = __builtin_exp(-__builtin_fabs(x)), s = 1.0 / (1.0 + z);
  return x < 0.0 ? z * s : s;
}

W_INLINE double w_softplusd(double x) {
  return (x > 0.0 ? x : 0.0) + __builtin_log1p(__builtin_exp(-__builtin_fabs(x)));
}

"""
"""float64 functions."""

NUMBERS = r"""/* ---- for every floating type ---- */

#define W_FLOATING(T, FMOD) \
  W_INLINE T w_max_##T(T a, T b) { return __builtin_elementwise_maximum(a, b); } \
  W_INLINE T w_min_##T(T a, T b) { return __builtin_elementwise_minimum(a, b); } \
  W_INLINE T w_sign_##T(T a) { return a > (T)0 ? (T)1 : a < (T)0 ? (T)-1 : a; } \
  W_INLINE T w_div_##T(T a, T b) { return a / b; } \
  W_INLINE T w_rem_##T(T a, T b) { return (T)FMOD(a, b); } \
  W_INLINE T w_mod_##T(T a, T b) { \
    const T r = (T)FMOD(a, b); \
    return r != (T)0 && (r < (T)0) != (b < (T)0) ? r + b : r; \
  }

W_FLOATING(float, __builtin_fmodf)

/* A number that the compiler is not to know. */
W_INLINE float w_hidden(float x) { volatile float hidden = x; return hidden; }

/* ---- for every integer type ---- */

#define W_INTEGER(T) \
  W_INLINE T w_max_##T(T a, T b) { return a > b ? a : b; } \
  W_INLINE T w_min_##T(T a, T b) { return a < b ? a : b; } \
  W_INLINE T w_sign_##T(T a) { return (T)((a > 0) - (a < 0)); }

/* The division always happens, by 1 where it must not: so there is no branch to keep a loop from being vectorised. */
#define W_SIGNED(T, U) \
  W_INTEGER(T) \
  W_INLINE T w_div_##T(T a, T b) { \
    const T q = (T)(a / (b == 0 || b == -1 ? 1 : b)); \
    return b == 0 ? 0 : b == -1 ? (T)((U)0 - (U)a) : q; \
  } \
  W_INLINE T w_rem_##T(T a, T b) { return (T)(a % (b == 0 || b == -1 ? 1 : b)); } \
  W_INLINE T w_mod_##T(T a, T b) { \
    const T r = w_rem_##T(a, b); \
    return r != 0 && (r ^ b) < 0 ? (T)(r + b) : r; \
  }

#define W_UNSIGNED(T) \
  W_INTEGER(T) \
  W_INLINE T w_div_##T(T a, T b) { const T q = (T)(a / (b == 0 ? 1 : b)); return b == 0 ? 0 : q; } \
  W_INLINE T w_rem_##T(T a, T b) { return (T)(a % (b == 0 ? 1 : b)); } \
  W_INLINE T w_mod_##T(T a, T b) { return w_rem_##T(a, b); }

W_SIGNED(int8_t, uint8_t)
W_SIGNED(int16_t, uint16_t)
W_SIGNED(int32_t, uint32_t)
W_SIGNED(int64_t, uint64_t)
W_UNSIGNED(uint8_t)
W_UNSIGNED(uint16_t)
W_UNSIGNED(uint32_t)
W_UNSIGNED(uint64_t)

/* ---- fixed point ---- */

/* (a * b + 2^30) / 2^31, rounded down */
W_INLINE int32_t w_high_mul(int32_t a, int32_t b) { return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31); }
/* x / 2^by to nearest, halves away from zero, for a positive `by` and an x that can be one more or less */
W_INLINE int32_t w_round_shift(int32_t x, int32_t by) { return (((x + (x >> 31)) >> (by - 1)) + 1) >> 1; }
W_INLINE int32_t w_scale_once(int32_t x, int32_t factor, int32_t by) {
  return (int32_t)(((int64_t)x * factor + ((int64_t)1 << (by - 1))) >> by);
}

/* Division of an index, rounding down; `by` is positive. */
W_INLINE int64_t w_floordiv(int64_t a, int64_t by) { return a / by - (a % by < 0); }
W_INLINE int64_t w_floormod(int64_t a, int64_t by) { const int64_t r = a % by; return r < 0 ? r + by : r; }

/* ---- float to integer ---- */

/* BELOW is the greatest number of the type that truncates to less than -2^31. */
#define W_TO_INTEGERS(P, T, BELOW) \
  W_INLINE int32_t w_##P##_to_int32_t(T x) { return x > BELOW && x < (T)0x1p+31 ? (int32_t)x : INT32_MIN; } \
  W_INLINE int64_t w_##P##_to_int64_t(T x) { return x >= (T)-0x1p+63 && x < (T)0x1p+63 ? (int64_t)x : INT64_MIN; } \
  W_INLINE int8_t w_##P##_to_int8_t(T x) { return (int8_t)w_##P##_to_int32_t(x); } \
  W_INLINE uint8_t w_##P##_to_uint8_t(T x) { return (uint8_t)w_##P##_to_int32_t(x); } \
  W_INLINE int16_t w_##P##_to_int16_t(T x) { return (int16_t)w_##P##_to_int32_t(x); } \
  W_INLINE uint16_t w_##P##_to_uint16_t(T x) { return (uint16_t)w_##P##_to_int32_t(x); } \
  W_INLINE uint32_t w_##P##_to_uint32_t(T x) { return (uint32_t)w_##P##_to_int64_t(x); } \
  W_INLINE uint64_t w_##P##_to_uint64_t(T x) { \
    const uint64_t large = x < (T)0x1p+64 ? (uint64_t)x : 0; \
    return x >= (T)0x1p+63 ? large : (uint64_t)w_##P##_to_int64_t(x); \
  }

W_TO_INTEGERS(f, float, -0x1.000002p+31f)

"""
"""What arithmetic means, for float32 and integers; the macros are for other types too."""

DOUBLE_NUMBERS = r"""W_FLOATING(double, __builtin_fmod)
W_TO_INTEGERS(d, double, -0x1.00000002p+31)

"""

BFLOATS = r"""/* ---- bfloat16 ---- */

typedef struct { uint16_t bits; } w_bf16;

W_INLINE float w_bf16_value(w_bf16 x) { return w_float((uint32_t)x.bits << 16); }

W_INLINE w_bf16 w_to_bf16(float x) { /* to nearest, ties to even; a NaN keeps its sign and upper bits */
  const uint32_t u = w_bits(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
  return (w_bf16){(uint16_t)(x != x ? quiet : rounded)};
}

"""
"""bfloat16 is in memory only."""

_HALVES = r"""/* ---- half precision ---- */

W_FLOATING(_Float16, __builtin_fmodf)

#if defined(__x86_64__) && !defined(__AVX512FP16__)
/* The compiler calls these for conversions that the CPU has no instruction for, and expects them in a library that is not linked. */
#define W_SUPPORT __attribute__((weak, visibility("hidden")))

W_SUPPORT _Float16 __truncdfhf2(double x) {
  uint64_t u;
  __builtin_memcpy(&u, &x, 8);
  const uint64_t a = u & INT64_MAX;
  const double tiny = __builtin_fabs(x) * 0x1p+24 + 0x1.8p+52; /* as a multiple of the smallest half, in the low bits */
  uint64_t h;
  if (a > 0x7ff0000000000000u) h = 0x7e00 | (a >> 42 & 0x1ff);
  else if (a >= 0x40effe0000000000u) h = 0x7c00; /* from 65520 up it rounds to infinity */
  else if (a >= 0x3f10000000000000u) h = ((a + 0x1ffffffffffu + (a >> 42 & 1)) >> 42) - (1008u << 10);
  else __builtin_memcpy(&h, &tiny, 8);
  const uint16_t bits = (uint16_t)((h & 0x7fff) | (u >> 48 & 0x8000));
  _Float16 result;
  __builtin_memcpy(&result, &bits, 2);
  return result;
}

W_SUPPORT _Float16 __truncsfhf2(float x) { return __truncdfhf2(x); }

W_SUPPORT float __extendhfsf2(_Float16 x) {
  uint16_t h;
  __builtin_memcpy(&h, &x, 2);
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, a = h & 0x7fff;
  const uint32_t special = 0x7f800000u | a << 13 | (a > 0x7c00 ? 0x400000u : 0u);
  return w_float(sign | (a >= 0x7c00 ? special : w_bits(w_float(a << 13) * 0x1p+112f)));
}
#endif
"""

PRELUDE = _C_HEAD + SINGLES + DOUBLES + NUMBERS + DOUBLE_NUMBERS + BFLOATS + _HALVES

"""Matrix units in plain C, for machines that have none: what the kernels' instructions do, one
number after the other.
"""

from __future__ import annotations

EMULATED_TILES = r"""
#if defined(__x86_64__) && !defined(__AMX_BF16__)
#ifndef __AVX512BF16__
typedef __bf16 w_bf16x16 __attribute__((ext_vector_type(16), aligned(2)));

/* The compiler calls this to round a float, and expects it in a library that is not linked. */
__attribute__((weak, visibility("hidden"))) __bf16 __truncsfbf2(float x) {
  const w_bf16 rounded = w_to_bf16(x);
  __bf16 result;
  __builtin_memcpy(&result, &rounded, 2);
  return result;
}
#endif

static uint8_t emulated[8][16][64];

W_INLINE void emulated_load(int tile, const void *from, int64_t stride) {
  for (int r = 0; r < 16; r++) __builtin_memcpy(emulated[tile][r], (const char *)from + r * stride, 64);
}
W_INLINE void emulated_store(int tile, void *to, int64_t stride) {
  for (int r = 0; r < 16; r++) __builtin_memcpy((char *)to + r * stride, emulated[tile][r], 64);
}
static void emulated_multiply(int sums, int left, int right) {
  for (int m = 0; m < 16; m++) {
    float *total = (float *)emulated[sums][m];
    const w_bf16 *a = (const w_bf16 *)emulated[left][m];
    for (int k = 0; k < 16; k++) {
      const w_bf16 *b = (const w_bf16 *)emulated[right][k];
      for (int n = 0; n < 16; n++)
        for (int pair = 0; pair < 2; pair++)
          total[n] += w_bf16_value(a[2 * k + pair]) * w_bf16_value(b[2 * n + pair]);
    }
  }
}

#define __builtin_ia32_tile_loadconfig(shapes) ((void)(shapes))
#define __builtin_ia32_tilerelease() __builtin_memset(emulated, 0x7f, sizeof emulated)
#define __builtin_ia32_tilezero(tile) __builtin_memset(emulated[tile], 0, 1024)
#define __builtin_ia32_tileloadd64(tile, from, stride) emulated_load(tile, from, stride)
#define __builtin_ia32_tilestored64(tile, to, stride) emulated_store(tile, to, stride)
#define __builtin_ia32_tdpbf16ps(sums, left, right) emulated_multiply(sums, left, right)
#endif
"""

/* What a machine does at most, as kernels of the run-time library: work items [begin, end), one for each
   thread. buf[0] holds an item's count of rounds and of bytes. Before this text stand the kernels' prelude, and
   LANES, ROWS, COLUMNS (the register tile that products use on this machine), dots and DOT (a vector of int32,
   and what adds to each the products of four bytes). */

typedef float vec __attribute__((ext_vector_type(LANES), aligned(4)));
/* Operands are read again in every round, as a product reads them. */
#define READ_AGAIN() __asm__ volatile("" ::: "memory")

static int64_t rounds_of(void *const *buf) { return ((const int64_t *)buf[0])[0]; }
static int64_t bytes_of(void *const *buf) { return ((const int64_t *)buf[0])[1]; }

void wc_nothing(void *const *buf, int64_t begin, int64_t end, void *scratch) {}

/* A chain of additions, each of which takes a cycle: 64 in a round. */
void wc_cycles(void *const *buf, int64_t begin, int64_t end, void *scratch) {
  uint64_t sum = (uint64_t)begin;
  for (int64_t r = rounds_of(buf); r > 0; r--) {
#pragma clang loop unroll(full)
    for (int i = 0; i < 64; i++) {
      sum += (uint64_t)r;
      __asm__ volatile("" : "+r"(sum));
    }
  }
  ((volatile uint64_t *)buf[2])[0] = sum;
}

void wc_f32(void *const *buf, int64_t begin, int64_t end, void *scratch) {
  const float *from = buf[1];
  for (int64_t item = begin; item < end; item++) {
    vec sum[ROWS][COLUMNS];
    for (int i = 0; i < ROWS; i++)
      for (int j = 0; j < COLUMNS; j++) sum[i][j] = (vec)(0.0f);
    for (int64_t r = rounds_of(buf); r > 0; r--) {
      vec right[COLUMNS];
      for (int j = 0; j < COLUMNS; j++) right[j] = *(const vec *)(from + ROWS + j * LANES);
#pragma clang loop unroll(full)
      for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) sum[i][j] += from[i] * right[j];
      READ_AGAIN();
    }
    vec all = (vec)(0.0f);
    for (int i = 0; i < ROWS; i++)
      for (int j = 0; j < COLUMNS; j++) all += sum[i][j];
    ((volatile float *)buf[2])[item * 16] = all[0];
  }
}

void wc_int8(void *const *buf, int64_t begin, int64_t end, void *scratch) {
  const int32_t *from = buf[1];
  for (int64_t item = begin; item < end; item++) {
    dots sum[ROWS][COLUMNS];
    for (int i = 0; i < ROWS; i++)
      for (int j = 0; j < COLUMNS; j++) sum[i][j] = (dots)(0);
    for (int64_t r = rounds_of(buf); r > 0; r--) {
      dots right[COLUMNS];
      for (int j = 0; j < COLUMNS; j++) right[j] = *(const dots *)(from + ROWS + j * LANES);
#pragma clang loop unroll(full)
      for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) sum[i][j] = DOT(sum[i][j], (dots)(from[i]), right[j]);
      READ_AGAIN();
    }
    dots all = (dots)(0);
    for (int i = 0; i < ROWS; i++)
      for (int j = 0; j < COLUMNS; j++) all += sum[i][j];
    ((volatile int32_t *)buf[2])[item * 16] = all[0];
  }
}

#ifdef __AMX_BF16__
/* Four sums of 16 x 16, in each of which a round adds 32 products: all eight tile registers. */
void wc_bf16(void *const *buf, int64_t begin, int64_t end, void *scratch) {
  static const _Alignas(64) uint8_t shapes[64] = {
      1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0,
      0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0};
  const char *from = buf[1];
  for (int64_t item = begin; item < end; item++) {
    __builtin_ia32_tile_loadconfig(shapes);
    __builtin_ia32_tilezero(0);
    __builtin_ia32_tilezero(1);
    __builtin_ia32_tilezero(2);
    __builtin_ia32_tilezero(3);
    for (int64_t r = rounds_of(buf); r > 0; r--) {
      __builtin_ia32_tileloadd64(4, from, 64);
      __builtin_ia32_tileloadd64(6, from + 1024, 64);
      __builtin_ia32_tdpbf16ps(0, 4, 6);
      __builtin_ia32_tileloadd64(7, from + 2048, 64);
      __builtin_ia32_tdpbf16ps(1, 4, 7);
      __builtin_ia32_tileloadd64(5, from + 3072, 64);
      __builtin_ia32_tdpbf16ps(2, 5, 6);
      __builtin_ia32_tdpbf16ps(3, 5, 7);
    }
    _Alignas(64) float sums[256];
    __builtin_ia32_tilestored64(0, sums, 64);
    __builtin_ia32_tilerelease();
    ((volatile float *)buf[2])[item * 16] = sums[0];
  }
}
#endif

/* Each item reads its own part of buf[1]. */
void wc_read(void *const *buf, int64_t begin, int64_t end, void *scratch) {
  const int64_t count = bytes_of(buf) / 4;
  for (int64_t item = begin; item < end; item++) {
    const float *from = (const float *)buf[1] + item * count;
    vec sum[8];
    for (int i = 0; i < 8; i++) sum[i] = (vec)(0.0f);
    for (int64_t r = rounds_of(buf); r > 0; r--) {
      for (int64_t at = 0; at + 8 * LANES <= count; at += 8 * LANES) {
#pragma clang loop unroll(full)
        for (int i = 0; i < 8; i++) sum[i] += *(const vec *)(from + at + i * LANES);
      }
      READ_AGAIN();
    }
    for (int i = 1; i < 8; i++) sum[0] += sum[i];
    ((volatile float *)buf[2])[item * 16] = sum[0][0];
  }
}

/* The first half of an item's part of buf[1] to the second: as many bytes read and written. */
void wc_copy(void *const *buf, int64_t begin, int64_t end, void *scratch) {
  const int64_t count = bytes_of(buf) / 4, half = count / 2;
  for (int64_t item = begin; item < end; item++) {
    float *from = (float *)buf[1] + item * count;
    for (int64_t r = rounds_of(buf); r > 0; r--) {
      for (int64_t at = 0; at + 4 * LANES <= half; at += 4 * LANES) {
#pragma clang loop unroll(full)
        for (int i = 0; i < 4; i++) *(vec *)(from + half + at + i * LANES) = *(const vec *)(from + at + i * LANES);
      }
      READ_AGAIN();
    }
  }
}

/* The iterations of a loop whose body is a plan of steps, all of them in native code. */
#ifndef WHENCE_LOOP_H
#define WHENCE_LOOP_H

#include "whence_runtime.h"

/* A value that each iteration hands to the next: an output of the body, and the input that it is in the next iteration. Iterations write the two
   buffers in turns, because an iteration may read what it was given until it ends. */
typedef struct {
  int32_t input;
  int32_t output;
  void *buffers[2];
} wh_carried;

/* What lies in rows, one for each iteration. */
typedef struct {
  char *first;
  int64_t stride;
  int32_t is_output; /* made by the body, else given to it; */
  int32_t index;     /* which of them */
} wh_rows;

typedef struct {
  const wh_plan *body;
  const wh_memory *memory;
  void **inputs; /* those of `memory`, which iterations change */
  void **outputs;
  const wh_carried *carried;
  const wh_rows *rows;
  const wh_copy *copies;
  int64_t n_carried;
  int64_t n_rows;
  int64_t n_copies;
  int64_t condition; /* the output that says whether there is another iteration; -1: none does */
  int64_t iteration; /* how many iterations are done, where the body reads its number from as well */
} wh_loop;

enum { WH_LOOP_GOES_ON = 0, WH_LOOP_IS_OVER = 1 };

/* Runs iterations until `last` of them are done, the condition says that it is over, or the time `until` of the monotonic clock has come. Returns
   one of the above, or what wh_run returned that did not get to the end of the body. The caller comes back for more iterations: between, it may
   give rows more room, and be interrupted. */
int64_t wh_run_iterations(wh_loop *loop, int64_t last, uint64_t until, wh_pool *pool, wh_profiler *profiler);

#endif

#include "whence_loop.h"

/* Where the body finds what it is given in this iteration, and puts what it makes. */
static void begin_iteration(const wh_loop *loop) {
  for (int64_t i = 0; i < loop->n_carried; i++) loop->outputs[loop->carried[i].output] = loop->carried[i].buffers[loop->iteration & 1];
  for (int64_t i = 0; i < loop->n_rows; i++) {
    const wh_rows *rows = &loop->rows[i];
    (rows->is_output ? loop->outputs : loop->inputs)[rows->index] = rows->first + loop->iteration * rows->stride;
  }
}

static void end_iteration(const wh_loop *loop) {
  wh_copy_outputs(loop->copies, loop->n_copies, loop->memory);
  /* After all copies: some are of what this iteration was given. */
  for (int64_t i = 0; i < loop->n_carried; i++) loop->inputs[loop->carried[i].input] = loop->outputs[loop->carried[i].output];
}

int64_t wh_run_iterations(wh_loop *loop, int64_t last, uint64_t until, wh_pool *pool, wh_profiler *profiler) {
  while (loop->iteration < last) {
    begin_iteration(loop);
    const int64_t reached = wh_run(loop->body, 0, pool, loop->memory, profiler);
    if (reached != loop->body->n_steps) return reached;
    end_iteration(loop);
    loop->iteration++;
    if (loop->condition >= 0 && !*(const uint8_t *)loop->outputs[loop->condition]) return WH_LOOP_IS_OVER;
    if (wh_now() >= until) break;
  }
  return WH_LOOP_GOES_ON;
}

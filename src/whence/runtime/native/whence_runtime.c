#ifdef __linux__
#define _GNU_SOURCE /* for clock_gettime */
#endif
#include "whence_runtime.h"

#include <string.h>
#include <time.h>

#include "whence_pool.h"

uint64_t wh_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void *wh_address(const wh_slot *slot, const wh_memory *memory) {
  char *base = slot->region == WH_ARENA     ? memory->arena
               : slot->region == WH_WEIGHTS ? (char *)memory->weights
               : slot->region == WH_INPUT   ? memory->inputs[slot->index]
               : slot->region == WH_OUTPUT  ? memory->outputs[slot->index]
               : slot->region == WH_STATE   ? memory->state[slot->index]
                                            : memory->next[slot->index];
  return base + slot->offset;
}

void wh_copy_outputs(const wh_copy *copies, int64_t n_copies, const wh_memory *memory) {
  for (const wh_copy *copy = copies; copy < copies + n_copies; copy++)
    if (copy->bytes) memcpy(memory->outputs[copy->output], wh_address(&copy->from, memory), (size_t)copy->bytes);
}

static void note(wh_profiler *profiler, uint64_t begin, uint64_t end, int64_t step, uint64_t waited) {
  uint64_t execution = profiler->execution;
  profiler->samples[profiler->written % profiler->capacity] = (wh_sample){begin, end, (uint32_t)execution, (uint32_t)step, waited};
  profiler->written++;
  if (execution >= profiler->times_capacity) return;
  if (!profiler->times[2 * execution]) profiler->times[2 * execution] = begin;
  profiler->times[2 * execution + 1] = end;
}

/* The least of many tries, each of several steps: the clock itself ticks in nanoseconds. */
uint64_t wh_noting_ns(void) {
  enum { STEPS = 64, TRIES = 64 };
  wh_sample samples[STEPS];
  wh_profiler profiler = {.samples = samples, .capacity = STEPS};
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < TRIES; i++) {
    const uint64_t began = wh_now();
    uint64_t mark = began;
    for (int step = 0; step < STEPS; step++) {
      const uint64_t now = wh_now();
      note(&profiler, mark, now, step, 0);
      mark = now;
    }
    const uint64_t spent = (mark - began + STEPS / 2) / STEPS;
    if (spent < least) least = spent;
  }
  return least;
}

/* Where workers note when they worked at the next sample, empty; NULL when nobody wants to know. */
static wh_busy *next_busy(const wh_profiler *profiler, const wh_pool *pool) {
  if (!profiler || !profiler->busy || profiler->workers < (uint64_t)wh_pool_threads(pool)) return NULL;
  wh_busy *busy = profiler->busy + profiler->written % profiler->capacity * profiler->workers;
  memset(busy, 0, profiler->workers * sizeof *busy);
  return busy;
}

/* Conditions are asked in order: one that is computed under another is there only if that holds. */
static int is_wanted(const wh_step *step, void *const *buf) {
  for (int32_t i = 0; i < step->n_guards; i++)
    if ((*(const uint8_t *)buf[step->n_slots + i] != 0) != (step->wanted >> i & 1)) return 0;
  return 1;
}

/* A chain, slice by slice. Each of its steps is noted as if all its work items had followed each other. */
static uint64_t run_chain(const wh_plan *plan, const wh_chain *chain, const wh_session *session, void *const *pointers, wh_profiler *profiler,
                          uint64_t mark) {
  uint64_t spent[WH_LONGEST_CHAIN] = {0}, now = mark;
  for (const wh_range *range = plan->ranges + chain->first_range, *end = range + chain->n_ranges; range < end; range++) {
    const wh_step *step = &plan->steps[range->step];
    wh_pool_do_part(session, step, pointers + step->first_slot, range->begin, range->end);
    if (!profiler) continue;
    const uint64_t since = now;
    now = wh_now();
    spent[range->step - chain->first] += now - since;
  }
  for (int64_t i = chain->first; profiler && i <= chain->last; i++) {
    wh_busy *busy = next_busy(profiler, session->pool);
    const uint64_t begin = mark;
    mark += spent[i - chain->first];
    if (busy) busy[0] = (wh_busy){begin, mark};
    note(profiler, begin, mark, (int64_t)profiler->first_step + plan->first_step + i, 0);
  }
  return mark;
}

int64_t wh_run(const wh_plan *plan, int64_t first, wh_pool *pool, const wh_memory *memory, wh_profiler *profiler) {
  void **pointers = memory->pointers;
  for (int64_t i = 0; i < plan->n_slots && !first; i++) pointers[i] = wh_address(&plan->slots[i], memory);
  wh_session session;
  if (wh_pool_enter(pool, plan->scratch_bytes, &session)) return WH_NO_MEMORY;
  uint64_t mark = profiler ? wh_now() : 0;
  int64_t i = first;
  const wh_chain *chain = plan->chains, *last = chain + (wh_pool_is_alone(&session, memory->threads) ? plan->n_chains : 0);
  for (; i < plan->n_steps; i++) {
    while (chain < last && chain->first < i) chain++;
    if (chain < last && chain->first == i) {
      mark = run_chain(plan, chain, &session, pointers, profiler, mark);
      i = chain->last;
      continue;
    }
    const wh_step *step = &plan->steps[i];
    if (step->tasks < 1) continue; /* empty tensors: nothing runs, and the profile does not say that something did */
    void *const *buf = pointers + step->first_slot;
    if (!is_wanted(step, buf)) continue;
    if (!step->kernel) break;
    wh_busy *busy = next_busy(profiler, pool);
    const uint64_t since = wh_pool_do(&session, step, buf, memory->threads, profiler != NULL, busy);
    if (profiler) {
      uint64_t now = wh_now();
      note(profiler, mark, now, (int64_t)profiler->first_step + plan->first_step + i, since ? now - since : 0);
      mark = now;
    }
    if (session.gang->fault) {
      i = WH_FAULT - i;
      break;
    }
  }
  wh_pool_leave(&session);
  return i;
}

#ifdef __linux__
#define _GNU_SOURCE /* for sched_getaffinity */
#endif
#include "whence_runtime.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

/* How long an idle worker spins before it sleeps. Kernels follow each other within microseconds; a model's runs do not. */
#define SPIN_NS 60000
/* How often the caller looks whether the workers are done before it lets others have the core. */
#define SPIN_LOOKS 20000
/* The same for workers that meet, who all must have a core: one that waits long waits for a worker that has none. */
#define MEET_LOOKS 2000

enum { MAX_THREADS = 256 };

typedef struct {
  pthread_t thread;
  wh_pool *pool;
  int32_t number;
  void *scratch;
} worker;

/* A worker's own stretch of the work items, on a cache line of its own: the first in the low half, the one behind the last in the high half. */
typedef struct {
  _Alignas(WH_LINE) atomic_uint_least64_t span;
} stretch;

/* Those who meet, and how often they have. */
typedef struct {
  wh_gang face;
  _Alignas(WH_LINE) atomic_int arrived;
  _Alignas(WH_LINE) atomic_uint round;
} gang;

struct wh_pool {
  int32_t threads; /* workers plus the caller */
  int32_t cores;   /* on which they may run at the same time */
  gang gang;
  worker workers[MAX_THREADS];
  stretch stretches[MAX_THREADS];
  atomic_int_least64_t scratch_bytes; /* what every worker has at least */
  pthread_mutex_t owner;              /* whoever holds it may use the workers */
  pid_t process;                      /* where the workers are: a forked process has a copy of the pool, but no workers */

  /* The job at hand. Written by the caller before `generation` moves, read by workers after they see it move. */
  wh_kernel kernel;
  void *const *buf;
  int64_t tasks;
  int64_t unit;  /* Stretches count in so many work items, */
  int64_t grain; /* and this many of those are worth handing out; WH_TOGETHER: each worker does its own stretch, once. */
  _Alignas(WH_LINE) atomic_uint generation;
  _Alignas(WH_LINE) atomic_int busy;
  _Alignas(WH_LINE) atomic_int sleepers;
  atomic_int stop;
#ifndef __linux__
  pthread_mutex_t bed;
  pthread_cond_t alarm;
#endif
};

uint64_t wh_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Until `generation` is not `seen` any more, or a little less. */
static void sleep_while(wh_pool *pool, unsigned seen) {
#ifdef __linux__
  syscall(SYS_futex, (unsigned *)&pool->generation, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
#else
  pthread_mutex_lock(&pool->bed);
  while (atomic_load(&pool->generation) == seen) pthread_cond_wait(&pool->alarm, &pool->bed);
  pthread_mutex_unlock(&pool->bed);
#endif
}

/* After `generation` moved. */
static void wake_all(wh_pool *pool) {
#ifdef __linux__
  syscall(SYS_futex, (unsigned *)&pool->generation, FUTEX_WAKE_PRIVATE, MAX_THREADS, NULL, NULL, 0);
#else
  pthread_mutex_lock(&pool->bed);
  pthread_cond_broadcast(&pool->alarm);
  pthread_mutex_unlock(&pool->bed);
#endif
}

/* Half of what is left of a stretch: its owner takes from the front, others from the back. Returns 0 when nothing is left. */
static int take(wh_pool *pool, int32_t whose, int is_own, int64_t *begin, int64_t *end) {
  atomic_uint_least64_t *span = &pool->stretches[whose].span;
  uint64_t seen = atomic_load_explicit(span, memory_order_relaxed);
  for (;;) {
    const int64_t first = (int64_t)(seen & UINT32_MAX), last = (int64_t)(seen >> 32), left = last - first;
    if (left <= 0) return 0;
    const int64_t half = (left + 1) / 2, least = pool->grain < left ? pool->grain : left, part = half > least ? half : least;
    const int64_t from = is_own ? first + part : first, to = is_own ? last : last - part;
    if (!atomic_compare_exchange_weak_explicit(span, &seen, (uint64_t)to << 32 | (uint64_t)from, memory_order_relaxed, memory_order_relaxed)) continue;
    *begin = (is_own ? first : last - part) * pool->unit;
    *end = (is_own ? first + part : last) * pool->unit;
    if (*end > pool->tasks) *end = pool->tasks;
    return 1;
  }
}

static void meet(wh_gang *face) {
  gang *all = (gang *)face;
  if (face->members < 2) return;
  const unsigned round = atomic_load_explicit(&all->round, memory_order_acquire);
  if (atomic_fetch_add_explicit(&all->arrived, 1, memory_order_acq_rel) + 1 == face->members) {
    atomic_store_explicit(&all->arrived, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&all->round, 1, memory_order_release);
    return;
  }
  for (int looks = 0; atomic_load_explicit(&all->round, memory_order_acquire) == round; looks++) {
    if (looks < MEET_LOOKS)
      relax();
    else
      sched_yield();
  }
}

/* Scratch memory for one worker, the header before it. */
static void *make_scratch(int64_t bytes, wh_gang *face) {
  void *block = NULL;
  if (posix_memalign(&block, WH_LINE, (size_t)bytes + WH_HEADER + WH_LINE)) return NULL;
  *(wh_gang **)block = face;
  return (char *)block + WH_HEADER;
}

static void free_scratch(void *scratch) {
  if (scratch) free((char *)scratch - WH_HEADER);
}

/* A worker's own stretch first: what it made of the last kernel's is still in its cache. Then whatever the others have not begun. */
static void work(wh_pool *pool, int32_t number, void *scratch) {
  int64_t begin, end;
  if (pool->grain == WH_TOGETHER) {
    const uint64_t span = atomic_load_explicit(&pool->stretches[number].span, memory_order_relaxed);
    pool->kernel(pool->buf, (int64_t)(span & UINT32_MAX), (int64_t)(span >> 32), scratch);
    return;
  }
  for (int32_t step = 0; step < pool->threads; step++) {
    const int32_t whose = (number + step) % pool->threads;
    while (take(pool, whose, step == 0, &begin, &end)) pool->kernel(pool->buf, begin, end, scratch);
  }
}

static void *worker_main(void *argument) {
  worker *self = argument;
  wh_pool *pool = self->pool;
#ifdef __linux__
  prctl(PR_SET_NAME, "whence-worker"); /* for whoever looks at the process from outside */
#endif
  unsigned seen = 0;
  for (;;) {
    unsigned now = atomic_load_explicit(&pool->generation, memory_order_acquire);
    if (now == seen) {
      uint64_t until = wh_now() + SPIN_NS;
      while ((now = atomic_load_explicit(&pool->generation, memory_order_acquire)) == seen) {
        for (int i = 0; i < 64; i++) relax();
        if (wh_now() < until) continue;
        atomic_fetch_add(&pool->sleepers, 1);
        sleep_while(pool, seen);
        atomic_fetch_sub(&pool->sleepers, 1);
      }
    }
    seen = now;
    if (atomic_load(&pool->stop)) return NULL;
    work(pool, self->number, self->scratch);
    atomic_fetch_sub_explicit(&pool->busy, 1, memory_order_release);
  }
}

int wh_pool_reserve(wh_pool *pool, int64_t scratch_bytes) {
  /* A run that finds too little scratch memory brings its own, so a forked process need not touch a lock that may be held for ever. */
  if (scratch_bytes <= pool->scratch_bytes || getpid() != pool->process) return 0;
  pthread_mutex_lock(&pool->owner);
  int failed = 0;
  /* Somebody else may have reserved more while we waited for the lock: what is there is never made smaller. */
  for (int32_t i = 0; i < pool->threads && scratch_bytes > pool->scratch_bytes; i++) {
    void *fresh = make_scratch(scratch_bytes, &pool->gang.face);
    if (!fresh) {
      failed = 1;
      break;
    }
    free_scratch(pool->workers[i].scratch);
    pool->workers[i].scratch = fresh;
  }
  if (!failed && scratch_bytes > pool->scratch_bytes) pool->scratch_bytes = scratch_bytes;
  pthread_mutex_unlock(&pool->owner);
  return failed;
}

static int32_t usable_cores(void) {
#ifdef __linux__
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return (int32_t)CPU_COUNT(&allowed);
#endif
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores > 0 ? (int32_t)cores : 1;
}

/* Linux gives a process the matrix units' registers only when it asks. Kernels that use them are made only where this succeeds. */
static void ask_for_matrix_tiles(void) {
#if defined(__linux__) && defined(__x86_64__)
  enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 };
  syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA);
#endif
}

wh_pool *wh_pool_create(int32_t threads, int64_t scratch_bytes) {
  ask_for_matrix_tiles();
  if (threads < 1) threads = 1;
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  void *memory = NULL;
  if (posix_memalign(&memory, WH_LINE, sizeof(wh_pool))) return NULL;
  wh_pool *pool = memory;
  memset(pool, 0, sizeof *pool);
  pool->threads = threads;
  pool->cores = usable_cores();
  pool->gang.face.meet = meet;
  pool->process = getpid();
  pthread_mutex_init(&pool->owner, NULL);
#ifndef __linux__
  pthread_mutex_init(&pool->bed, NULL);
  pthread_cond_init(&pool->alarm, NULL);
#endif
  if (wh_pool_reserve(pool, scratch_bytes > 0 ? scratch_bytes : 1)) {
    for (int32_t i = 0; i < threads; i++) free_scratch(pool->workers[i].scratch);
    free(pool);
    return NULL;
  }
  for (int32_t i = 0; i < threads; i++) {
    pool->workers[i].pool = pool;
    pool->workers[i].number = i;
    /* Number 0 is the caller of wh_run itself. */
    if (i && pthread_create(&pool->workers[i].thread, NULL, worker_main, &pool->workers[i])) {
      for (int32_t rest = i; rest < threads; rest++) free_scratch(pool->workers[rest].scratch);
      pool->threads = i;
      break;
    }
  }
  return pool;
}

void wh_pool_destroy(wh_pool *pool) {
  if (!pool) return;
  if (getpid() == pool->process) {
    atomic_store(&pool->stop, 1);
    atomic_fetch_add(&pool->generation, 1);
    wake_all(pool);
    for (int32_t i = 1; i < pool->threads; i++) pthread_join(pool->workers[i].thread, NULL);
  }
  for (int32_t i = 0; i < pool->threads; i++) free_scratch(pool->workers[i].scratch);
  pthread_mutex_destroy(&pool->owner);
  free(pool);
}

int32_t wh_pool_threads(const wh_pool *pool) { return pool->threads; }

/* One kernel on all workers, which take ever smaller pieces, so that they end together and one held up by the system does not hold up the rest.
   Returns when the caller had nothing left to do and began to wait for the others, or 0 when it did not have to; the time is taken only if `timed`. */
static uint64_t parallel(wh_pool *pool, const wh_step *step, void *const *buf, int timed) {
  int64_t workers = pool->threads;
  const int together = step->grain == WH_TOGETHER;
  int64_t grain = step->grain > 0 ? step->grain : 1;
  pool->gang.face.shared = pool->workers[0].scratch;
  if (workers < 2 || step->tasks < 2 * grain || (together && workers > pool->cores) || step->tasks > INT32_MAX * (together ? 1ll : INT32_MAX)) {
    pool->gang.face.members = 1;
    step->kernel(buf, 0, step->tasks, pool->workers[0].scratch);
    return 0;
  }
  pool->kernel = step->kernel;
  pool->buf = buf;
  pool->tasks = step->tasks;
  pool->unit = step->tasks / INT32_MAX + 1;
  pool->grain = together ? WH_TOGETHER : (grain + pool->unit - 1) / pool->unit;
  pool->gang.face.members = workers;
  const int64_t units = (step->tasks + pool->unit - 1) / pool->unit;
  for (int64_t i = 0; i < workers; i++) {
    const uint64_t first = (uint64_t)(i * units / workers), last = (uint64_t)((i + 1) * units / workers);
    atomic_store_explicit(&pool->stretches[i].span, last << 32 | first, memory_order_relaxed);
  }
  atomic_store_explicit(&pool->busy, (int)workers - 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&pool->generation, 1, memory_order_seq_cst);
  if (atomic_load(&pool->sleepers)) wake_all(pool);
  work(pool, 0, pool->workers[0].scratch);
  if (!atomic_load_explicit(&pool->busy, memory_order_acquire)) return 0;
  uint64_t since = timed ? wh_now() : 0;
  for (int looks = 0; atomic_load_explicit(&pool->busy, memory_order_acquire); looks++) {
    if (looks < SPIN_LOOKS)
      relax();
    else
      sched_yield();
  }
  return since;
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

static void note(wh_profiler *profiler, uint64_t begin, uint64_t end, int64_t step, uint64_t waited) {
  uint64_t execution = profiler->execution;
  profiler->samples[profiler->written % profiler->capacity] = (wh_sample){begin, end, (uint32_t)execution, (uint32_t)step, waited};
  profiler->written++;
  if (execution >= profiler->times_capacity) return;
  if (!profiler->times[2 * execution]) profiler->times[2 * execution] = begin;
  profiler->times[2 * execution + 1] = end;
}

/* Conditions are asked in order: one that is computed under another is there only if that holds. */
static int is_wanted(const wh_step *step, void *const *buf) {
  for (int32_t i = 0; i < step->n_guards; i++)
    if ((*(const uint8_t *)buf[step->n_slots + i] != 0) != (step->wanted >> i & 1)) return 0;
  return 1;
}

int64_t wh_run(const wh_plan *plan, int64_t first, wh_pool *pool, const wh_memory *memory, wh_profiler *profiler) {
  void **pointers = memory->pointers;
  for (int64_t i = 0; i < plan->n_slots && !first; i++) pointers[i] = wh_address(&plan->slots[i], memory);
  /* Two runs at once on one pool: the second does its work alone instead of waiting. So does a forked process. */
  int shared = getpid() == pool->process && pthread_mutex_trylock(&pool->owner) == 0;
  if (shared && plan->scratch_bytes > pool->scratch_bytes) {
    pthread_mutex_unlock(&pool->owner);
    shared = 0;
  }
  wh_gang alone = {NULL, 1, meet, 0};
  void *own_scratch = NULL;
  if (!shared && !(alone.shared = own_scratch = make_scratch(plan->scratch_bytes, &alone))) return WH_NO_MEMORY;
  wh_gang *face = shared ? &pool->gang.face : &alone;
  face->fault = 0;

  uint64_t mark = profiler ? wh_now() : 0;
  int64_t i = first;
  for (; i < plan->n_steps; i++) {
    const wh_step *step = &plan->steps[i];
    if (step->tasks < 1) continue; /* empty tensors: nothing runs, and the profile does not say that something did */
    void *const *buf = pointers + step->first_slot;
    if (!is_wanted(step, buf)) continue;
    if (!step->kernel) break;
    uint64_t since = 0;
    if (shared) {
      since = parallel(pool, step, buf, profiler != NULL);
    } else {
      step->kernel(buf, 0, step->tasks, own_scratch);
    }
    if (profiler) {
      uint64_t now = wh_now();
      note(profiler, mark, now, plan->first_step + i, since ? now - since : 0);
      mark = now;
    }
    if (face->fault) {
      i = WH_FAULT - i;
      break;
    }
  }
  if (shared) pthread_mutex_unlock(&pool->owner);
  free_scratch(own_scratch);
  return i;
}

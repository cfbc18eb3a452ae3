#ifdef __linux__
#define _GNU_SOURCE /* for syscall */
#endif
#include "whence_pool.h"

#include "whence_cores.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

/* How long an idle worker spins before it sleeps: after a run, and within one, where the next kernel
   that has work for it is near. */
#define SPIN_NS 60000
#define SPIN_IN_RUN_NS 1000000
/* How often the caller looks whether a worker is done before it lets others have the core. */
#define SPIN_LOOKS 4000
/* The same for workers that meet, who all must have a core: one that waits long waits for a worker
   that has none. */
#define MEET_LOOKS 2000

/* A job is announced in one word, so that a worker reads all of it at once: its number in the upper
   bits, and in the lower ones the highest worker that it is for. */
enum { MAX_THREADS = 256, WORKER_BITS = 8, WORKER_MASK = MAX_THREADS - 1 };

/* What became of a job for one worker. A worker that has not joined when all work items are taken is
   not waited for: the caller closes the job for it. */
enum { JOINED = 1, DONE = 2, CLOSED = 3, PHASE_BITS = 2 };

typedef struct {
  pthread_t thread;
  wh_pool *pool;
  int32_t number;
  void *scratch;
} worker;

/* A worker's own range of the work items, on a cache line of its own: the first in the low half, the
   one behind the last in the high half. */
typedef struct {
  _Alignas(WH_LINE) atomic_uint_least64_t span;
} range;

/* How far a worker is: the number of a job and one of the phases above; and whether it sleeps. */
typedef struct {
  _Alignas(WH_LINE) atomic_uint state;
  atomic_uint asleep;
} progress;

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
  range ranges[MAX_THREADS];
  progress progress[MAX_THREADS];
  atomic_int_least64_t scratch_bytes; /* what every worker has at least */
  pthread_mutex_t owner;              /* whoever holds it may use the workers */
  pthread_mutex_t spare_lock;
  struct spare *spares;               /* scratch memory of runs that do their work alone */
  pid_t process;                      /* where the workers are: a forked process has a copy of the pool, but no workers */

  /* The job at hand. Written by the caller before `order` changes, read by workers that joined it. */
  wh_kernel kernel;
  void *const *buf;
  int64_t tasks;
  int64_t unit;    /* Ranges count in so many work items, */
  int64_t grain;   /* and this many of those are worth handing out; WH_GANG: each worker does its own range, once. */
  int32_t members; /* workers that it is for, the caller among them */
  wh_busy *busy;   /* where each notes when it worked, by its number; or NULL */
  _Alignas(WH_LINE) atomic_uint order;
  _Alignas(WH_LINE) atomic_int running; /* is there a run, so that more jobs are near? */
  atomic_int stop;
#ifndef __linux__
  pthread_mutex_t bed;
  pthread_cond_t alarm;
#endif
};

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Between two looks at what others are to change. */
static void pass_time(int keeps_core) {
  if (keeps_core)
    relax();
  else
    sched_yield();
}

/* Until somebody wakes this worker, or a little less. */
static void sleep_until_woken(wh_pool *pool, progress *own) {
#ifdef __linux__
  (void)pool;
  syscall(SYS_futex, (unsigned *)&own->asleep, FUTEX_WAIT_PRIVATE, 1u, NULL, NULL, 0);
#else
  pthread_mutex_lock(&pool->bed);
  while (atomic_load(&own->asleep)) pthread_cond_wait(&pool->alarm, &pool->bed);
  pthread_mutex_unlock(&pool->bed);
#endif
}

/* After `order` changed. */
static void wake(wh_pool *pool, int32_t number) {
  progress *other = &pool->progress[number];
  if (!atomic_load(&other->asleep) || !atomic_exchange(&other->asleep, 0)) return;
#ifdef __linux__
  syscall(SYS_futex, (unsigned *)&other->asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
#else
  pthread_mutex_lock(&pool->bed);
  pthread_cond_broadcast(&pool->alarm);
  pthread_mutex_unlock(&pool->bed);
#endif
}

/* Waking a thread takes longer than starting on its work, so each wakes two others: all are awake
   after as many steps as a tree has levels. */
static void wake_below(wh_pool *pool, int32_t number, int32_t last) {
  for (int32_t below = 2 * number + 1; below <= 2 * number + 2 && below <= last; below++) wake(pool, below);
}

/* Half of what is left of a range: its owner takes from the front, others from the back. Returns 0 when nothing is left. */
static int take(wh_pool *pool, int32_t whose, int is_own, int64_t *begin, int64_t *end) {
  atomic_uint_least64_t *span = &pool->ranges[whose].span;
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
  for (int looks = 0; atomic_load_explicit(&all->round, memory_order_acquire) == round; looks++) pass_time(looks < MEET_LOOKS);
}

static void await_parts(wh_gang *face, int64_t parts) {
  for (int looks = 0; __atomic_load_n(&face->done, __ATOMIC_ACQUIRE) < parts; looks++) pass_time(looks < MEET_LOOKS);
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

/* Scratch memory of a run that does its work alone. Kept for the next one: fresh memory is slow to touch. */
typedef struct spare {
  struct spare *next;
  int64_t bytes;
  void *scratch;
  wh_gang alone;
} spare;

static void free_spare(spare *one) {
  if (one) free_scratch(one->scratch);
  free(one);
}

static spare *make_spare(int64_t bytes) {
  spare *one = malloc(sizeof *one);
  if (!one) return NULL;
  *one = (spare){NULL, bytes, make_scratch(bytes, &one->alone), {.members = 1, .meet = meet, .await = await_parts}};
  one->alone.shared = one->scratch;
  if (one->scratch) return one;
  free(one);
  return NULL;
}

/* One that is large enough, or a new one. A forked process has a copy of the lock, which may be held for ever. */
static spare *take_spare(wh_pool *pool, int64_t bytes) {
  spare *found = NULL;
  if (getpid() == pool->process) {
    pthread_mutex_lock(&pool->spare_lock);
    found = pool->spares;
    if (found) pool->spares = found->next;
    pthread_mutex_unlock(&pool->spare_lock);
  }
  if (found && found->bytes >= bytes) return found;
  free_spare(found);
  return make_spare(bytes);
}

static void give_spare(wh_pool *pool, spare *one) {
  if (!one) return;
  if (getpid() != pool->process) {
    free_spare(one);
    return;
  }
  pthread_mutex_lock(&pool->spare_lock);
  one->next = pool->spares;
  pool->spares = one;
  pthread_mutex_unlock(&pool->spare_lock);
}

/* A worker's own range first: what it made of the last kernel's is still in its cache. Then whatever the others have not begun. */
static void work(wh_pool *pool, int32_t number, void *scratch) {
  int64_t begin, end;
  if (pool->grain == WH_GANG) {
    const uint64_t span = atomic_load_explicit(&pool->ranges[number].span, memory_order_relaxed);
    pool->kernel(pool->buf, (int64_t)(span & UINT32_MAX), (int64_t)(span >> 32), scratch);
    return;
  }
  for (int32_t step = 0; step < pool->members; step++) {
    const int32_t whose = (number + step) % pool->members;
    while (take(pool, whose, step == 0, &begin, &end)) pool->kernel(pool->buf, begin, end, scratch);
  }
}

/* The same, noted if somebody wants to know. Read by the caller after the worker is done. */
static void work_and_note(wh_pool *pool, int32_t number, void *scratch) {
  wh_busy *busy = pool->busy;
  if (busy) busy[number].begin = wh_now();
  work(pool, number, scratch);
  if (busy) busy[number].end = wh_now();
}

static unsigned phase_of(unsigned order, unsigned phase) { return (order >> WORKER_BITS) << PHASE_BITS | phase; }

/* The next order after `seen`: spins for a while, then sleeps. */
static unsigned next_order(wh_pool *pool, progress *own, unsigned seen) {
  uint64_t since = 0;
  for (unsigned looks = 1;; looks++) {
    const unsigned now = atomic_load_explicit(&pool->order, memory_order_acquire);
    if (now != seen) return now;
    relax();
    if (looks % 64) continue;
    const uint64_t at = wh_now();
    if (!since) since = at;
    if (at - since < (uint64_t)(atomic_load_explicit(&pool->running, memory_order_relaxed) ? SPIN_IN_RUN_NS : SPIN_NS)) continue;
    atomic_store(&own->asleep, 1);
    while (atomic_load(&own->asleep) && atomic_load(&pool->order) == seen) sleep_until_woken(pool, own);
    atomic_store(&own->asleep, 0);
    since = 0;
  }
}

static void *worker_main(void *argument) {
  worker *self = argument;
  wh_pool *pool = self->pool;
  progress *own = &pool->progress[self->number];
#ifdef __linux__
  prctl(PR_SET_NAME, "whence-worker"); /* for whoever looks at the process from outside */
#endif
  unsigned seen = 0, state = 0;
  for (;;) {
    const unsigned order = next_order(pool, own, seen);
    if (atomic_load(&pool->stop)) return NULL;
    const int32_t last = (int32_t)(order & WORKER_MASK);
    if (self->number > last || state == phase_of(order, CLOSED)) {
      seen = order;
      continue;
    }
    /* Whoever closed an earlier job for this worker changed its state, and `order` is to be read again after that. */
    if (!atomic_compare_exchange_strong(&own->state, &state, phase_of(order, JOINED))) continue;
    wake_below(pool, self->number, last);
    work_and_note(pool, self->number, self->scratch);
    seen = order;
    state = phase_of(order, DONE);
    atomic_store_explicit(&own->state, state, memory_order_release);
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
  pool->cores = wh_usable_cores();
  pool->gang.face.meet = meet;
  pool->gang.face.await = await_parts;
  pool->process = getpid();
  pthread_mutex_init(&pool->owner, NULL);
  pthread_mutex_init(&pool->spare_lock, NULL);
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
    atomic_fetch_add(&pool->order, 1u << WORKER_BITS);
    for (int32_t i = 1; i < pool->threads; i++) wake(pool, i);
    for (int32_t i = 1; i < pool->threads; i++) pthread_join(pool->workers[i].thread, NULL);
  }
  for (int32_t i = 0; i < pool->threads; i++) free_scratch(pool->workers[i].scratch);
  while (pool->spares) {
    spare *one = pool->spares;
    pool->spares = one->next;
    free_spare(one);
  }
  pthread_mutex_destroy(&pool->spare_lock);
  pthread_mutex_destroy(&pool->owner);
  free(pool);
}

int32_t wh_pool_threads(const wh_pool *pool) { return pool->threads; }

/* Before the workers of a step begin. */
static void reset_parts(wh_gang *face) { face->taken = face->done = 0; }

/* One kernel on the calling thread. */
static void alone(const wh_step *step, void *const *buf, void *scratch, wh_busy *busy) {
  reset_parts(*(wh_gang **)((char *)scratch - WH_HEADER));
  if (busy) busy[0].begin = wh_now();
  step->kernel(buf, 0, step->tasks, scratch);
  if (busy) busy[0].end = wh_now();
}

/* One kernel on the workers that it has work for, which take ever smaller pieces, so that they end together and one held up by the system does
   not hold up the rest. Returns when the caller had nothing left to do and began to wait for the others, or 0 when it did not have to; the time is
   taken only if `timed`. */
static uint64_t parallel(wh_pool *pool, const wh_step *step, void *const *buf, int64_t threads, int timed, wh_busy *busy) {
  const int gang = step->grain == WH_GANG;
  const int64_t grain = step->grain > 0 ? step->grain : 1, pieces = step->tasks / grain;
  /* More workers than cores would only take turns. */
  int64_t members = pool->threads < pool->cores ? pool->threads : pool->cores;
  if (gang && pool->threads > pool->cores) members = 1;
  if (threads > 0 && threads < members) members = threads;
  if (!gang && pieces < members) members = pieces;
  pool->gang.face.shared = pool->workers[0].scratch;
  if (members < 2 || (gang && pieces < 2) || step->tasks > INT32_MAX * (gang ? 1ll : INT32_MAX)) {
    pool->gang.face.members = 1;
    alone(step, buf, pool->workers[0].scratch, busy);
    return 0;
  }
  pool->kernel = step->kernel;
  pool->buf = buf;
  pool->tasks = step->tasks;
  pool->unit = step->tasks / INT32_MAX + 1;
  pool->grain = gang ? WH_GANG : (grain + pool->unit - 1) / pool->unit;
  pool->members = (int32_t)members;
  pool->busy = busy;
  pool->gang.face.members = members;
  reset_parts(&pool->gang.face);
  const int64_t units = (step->tasks + pool->unit - 1) / pool->unit;
  for (int64_t i = 0; i < members; i++) {
    const uint64_t first = (uint64_t)(i * units / members), last = (uint64_t)((i + 1) * units / members);
    atomic_store_explicit(&pool->ranges[i].span, last << 32 | first, memory_order_relaxed);
  }
  const unsigned number = (atomic_load_explicit(&pool->order, memory_order_relaxed) >> WORKER_BITS) + 1;
  const unsigned order = number << WORKER_BITS | (unsigned)(members - 1);
  atomic_store(&pool->order, order);
  wake_below(pool, 0, (int32_t)members - 1);
  work_and_note(pool, 0, pool->workers[0].scratch);
  const unsigned done = phase_of(order, DONE), joined = phase_of(order, JOINED);
  uint64_t since = 0;
  for (int64_t i = 1; i < members; i++) {
    atomic_uint *state = &pool->progress[i].state;
    unsigned found = atomic_load_explicit(state, memory_order_acquire);
    if (found == done) continue;
    /* All work items are taken: a worker that comes now would find none. Those who meet need each other. */
    if (found != joined && !gang && atomic_compare_exchange_strong(state, &found, phase_of(order, CLOSED))) continue;
    if (timed && !since) since = wh_now();
    for (int looks = 0; atomic_load_explicit(state, memory_order_acquire) != done; looks++) pass_time(looks < SPIN_LOOKS);
  }
  return since;
}

int wh_pool_enter(wh_pool *pool, int64_t scratch_bytes, wh_session *session) {
  /* Two runs at once on one pool: the second does its work alone instead of waiting. So does a forked process. */
  int shared = getpid() == pool->process && pthread_mutex_trylock(&pool->owner) == 0;
  if (shared && scratch_bytes > pool->scratch_bytes) {
    pthread_mutex_unlock(&pool->owner);
    shared = 0;
  }
  spare *own = shared ? NULL : take_spare(pool, scratch_bytes);
  if (!shared && !own) return WH_NO_MEMORY;
  *session = (wh_session){pool, own, shared ? &pool->gang.face : &own->alone};
  session->gang->fault = 0;
  if (shared) atomic_store_explicit(&pool->running, 1, memory_order_relaxed);
  return 0;
}

uint64_t wh_pool_do(const wh_session *session, const wh_step *step, void *const *buf, int64_t threads, int timed, wh_busy *busy) {
  if (!session->own) return parallel(session->pool, step, buf, threads, timed, busy);
  alone(step, buf, session->own->scratch, busy);
  return 0;
}

int wh_pool_is_alone(const wh_session *session, int64_t threads) {
  return session->own || session->pool->threads == 1 || session->pool->cores == 1 || threads == 1;
}

void wh_pool_do_part(const wh_session *session, const wh_step *step, void *const *buf, int64_t begin, int64_t end) {
  step->kernel(buf, begin, end, session->own ? session->own->scratch : session->pool->workers[0].scratch);
}

void wh_pool_leave(const wh_session *session) {
  wh_pool *pool = session->pool;
  if (session->own) {
    give_spare(pool, session->own);
    return;
  }
  atomic_store_explicit(&pool->running, 0, memory_order_relaxed);
  pthread_mutex_unlock(&pool->owner);
}

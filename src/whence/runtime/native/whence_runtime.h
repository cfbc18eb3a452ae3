/* The run-time part of a compiled model: a thread pool, a plan of steps, and a profiler that notes when each step ran. */
#ifndef WHENCE_RUNTIME_H
#define WHENCE_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

/* Workers that do one kernel together. A pointer to it stands WH_HEADER bytes before every worker's scratch memory. */
typedef struct wh_gang {
  void *shared;                   /* the scratch memory of one of them, for what all of them read */
  int64_t members;
  void (*meet)(struct wh_gang *); /* returns when all members have called it */
  int64_t fault;                  /* set by a kernel that read an index outside its axis; several may set it at once, to the same value */
  int64_t taken, done;            /* parts of a step's shared loop: how often one was asked for, and how many are done */
  void (*await)(struct wh_gang *, int64_t parts); /* returns when so many are done */
} wh_gang;

/* Bytes in a cache line. What stands before scratch memory fills one, so that both begin on a line. */
enum { WH_LINE = 64, WH_HEADER = WH_LINE, WH_GANG = -1 };

/* Work items [begin, end) of one kernel. `buf` holds its parameters in order; `scratch` is private to the worker. */
typedef void (*wh_kernel)(void *const *buf, int64_t begin, int64_t end, void *scratch);

enum wh_region { WH_ARENA = 0, WH_WEIGHTS = 1, WH_INPUT = 2, WH_OUTPUT = 3, WH_STATE = 5, WH_NEXT = 6 };

/* Where a kernel parameter lies: `offset` bytes into a region, or into input, output or variable number `index`. WH_STATE is the value of
   a variable when the run begins, WH_NEXT the one it gets, which may be the same memory. */
typedef struct {
  int32_t region;
  int32_t index;
  int64_t offset;
} wh_slot;

typedef struct {
  wh_kernel kernel;     /* NULL: the caller of wh_run does it */
  int64_t tasks;        /* independent work items */
  int64_t grain;        /* do not give a worker fewer items than this; WH_GANG: one range for each worker, all at the same time */
  int32_t first_slot;
  int32_t n_slots;
  int32_t n_guards;     /* The slots after its parameters are conditions, asked in order: */
  uint32_t wanted;      /* the step runs only if each has the value of its bit, the first the lowest. */
} wh_step;

/* Steps first to last, interleaved where one thread runs them, so that what one makes is still in the cache when the next one reads it. */
typedef struct {
  int64_t first, last;
  int64_t first_range, n_ranges;
} wh_chain;

/* Work items [begin, end) of a step. */
typedef struct {
  int64_t step, begin, end;
} wh_range;

enum { WH_LONGEST_CHAIN = 6 }; /* steps */

typedef struct {
  const wh_step *steps;
  const wh_slot *slots;
  int64_t n_steps;
  int64_t n_slots;
  int64_t scratch_bytes; /* per worker */
  int64_t first_step;    /* the number of steps[0] in the whole model, for the profile */
  const wh_chain *chains; /* in order; steps of a chain have no conditions and check no indices */
  const wh_range *ranges;
  int64_t n_chains;
} wh_plan;

/* When one step ran, in nanoseconds of the monotonic clock. `execution` counts runs on the profiler since its reset. */
typedef struct {
  uint64_t begin;
  uint64_t end;
  uint32_t execution;
  uint32_t step;
  uint64_t waited; /* how much of it the caller spent waiting for other threads to finish */
} wh_sample;

/* When one worker worked at a step. Zeros: it had no part in it. */
typedef struct {
  uint64_t begin;
  uint64_t end;
} wh_busy;

/* Filled by runs, read by whoever waits for them. `samples` is a ring of `capacity`; `written` counts all samples ever, so
   `written - capacity` of them are gone when it is larger. `times` holds the earliest begin and the latest end of each execution. */
typedef struct {
  wh_sample *samples;
  uint64_t capacity;
  uint64_t written;
  uint64_t *times;
  uint64_t times_capacity;
  uint64_t execution; /* the one that runs now */
  wh_busy *busy;      /* for each sample of the ring, `workers` of them; NULL when nobody wants to know, which costs nothing */
  uint64_t workers;   /* at least as many as the pool has threads */
  uint64_t first_step; /* added to the numbers of steps: where those of the program that runs begin */
} wh_profiler;

typedef struct wh_pool wh_pool;

wh_pool *wh_pool_create(int32_t threads, int64_t scratch_bytes);
void wh_pool_destroy(wh_pool *pool);
int32_t wh_pool_threads(const wh_pool *pool);
int wh_pool_reserve(wh_pool *pool, int64_t scratch_bytes);

/* What a run works on. */
typedef struct {
  void *arena;
  const void *weights;
  void *const *inputs;
  void *const *outputs;
  void *const *state; /* of each variable; may be NULL when there are none */
  void *const *next;
  void **pointers; /* room for n_slots addresses, which a run that goes on must find as it left them */
  int64_t threads; /* use at most so many threads of the pool; 0: all that have a core */
} wh_memory;

void *wh_address(const wh_slot *slot, const wh_memory *memory);

/* An output that no step writes in place: an input or a constant handed through, or a second name for another output. */
typedef struct {
  wh_slot from;
  int32_t output;
  int64_t bytes;
} wh_copy;

/* After a run: copies these outputs. */
void wh_copy_outputs(const wh_copy *copies, int64_t n_copies, const wh_memory *memory);

enum { WH_NO_MEMORY = -1, WH_FAULT = -2 };

/* Runs the steps from number `first` on. `profiler` may be NULL. Returns the number of the step that the caller has to do before it goes on behind it,
   n_steps when all is done, WH_NO_MEMORY when memory ran out, or WH_FAULT - i when step i read an index outside its axis: the run ends behind it. */
int64_t wh_run(const wh_plan *plan, int64_t first, wh_pool *pool, const wh_memory *memory, wh_profiler *profiler);

uint64_t wh_now(void);

/* What it takes to note one step: reading the clock and writing a sample, in nanoseconds. */
uint64_t wh_noting_ns(void);

#endif

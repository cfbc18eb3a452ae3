/* Models and streams on the processor. */
#include "whence.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "whence_state.h"
#include "whence_stream.h"

typedef struct {
  struct whence_model base;
  wh_pool *pool;
  void *weights;
} cpu_model;

/* An execution that was submitted: the addresses of its inputs, then of its outputs. */
typedef struct job {
  struct job *next;
  void *addresses[];
} job;

/* Jobs are done in order, one at a time: by the stream's own thread, or by one that waits for them and finds that nobody does them yet, which
   saves it the time that another thread takes to wake up. `running` says that somebody does. */
typedef struct {
  struct whence_stream base;
  void *arena;
  void **state; /* as wh_state_create makes it */
  void **pointers;
  pthread_cond_t more; /* for the stream's own thread: there are jobs that nobody does, or it has to end */
  pthread_cond_t less; /* for those who wait: a job is done */
  pthread_t thread;
  pid_t process; /* where the thread is: a forked process has a copy of the stream, but not its thread */
  int started;
  int ending;
  int running;
  job *first;
  job *last;
  uint64_t done;
  whence_status_t failure; /* the first since the last wait */
} cpu_stream;

static const wh_engine_functions cpu;

whence_status_t whence_model_create(whence_model_t *model, const whence_description_t *description, const char *weights_file, int threads) {
  if (!model || !description || !weights_file || threads < 0 || !description->plan) return whence_invalid_arguments;
  cpu_model *made = calloc(1, sizeof *made);
  if (!made) return whence_out_of_memory;
  made->base = (struct whence_model){&cpu, description};
  const whence_status_t status = wh_map_weights(description, weights_file, &made->weights);
  if (status) {
    free(made);
    return status;
  }
  made->pool = wh_pool_create(threads ? threads : 1, description->plan->scratch_bytes);
  if (!made->pool) {
    whence_model_destroy(&made->base);
    return whence_out_of_memory;
  }
  *model = &made->base;
  return whence_success;
}

static void destroy_model(whence_model_t model) {
  cpu_model *self = (cpu_model *)model;
  wh_pool_destroy(self->pool);
  wh_unmap_weights(model->description, self->weights);
  free(self);
}

/* One execution, on the memory of the stream. */
static whence_status_t run(cpu_stream *self, const job *work) {
  whence_stream_t stream = &self->base;
  const cpu_model *model = (const cpu_model *)stream->model;
  const whence_description_t *description = model->base.description;
  if (stream->profiling && wh_profile_begin(stream)) return whence_out_of_memory;
  wh_profiler *profiler = stream->profiling ? &stream->profiler : NULL;
  const uint64_t first = profiler ? profiler->written : 0;
  void *const *inputs = work->addresses, *const *outputs = work->addresses + description->n_inputs;
  const wh_memory memory = {self->arena, model->weights, inputs, outputs, self->state, self->state + description->n_variables,
                            self->pointers, 0};
  const int64_t reached = wh_run(description->plan, 0, model->pool, &memory, profiler);
  if (profiler) wh_profile_end(stream, first); /* An execution that fails is one, too: the next has a number of its own. */
  if (reached < 0) return reached == WH_NO_MEMORY ? whence_out_of_memory : whence_runtime_error;
  wh_copy_outputs(description->copies, description->n_copies, &memory);
  wh_state_advance(description, self->state);
  return whence_success;
}

/* Does jobs until so many are done in all, or none is left. The caller holds the lock, which is free while a job runs. */
static void do_jobs(cpu_stream *self, uint64_t until) {
  self->running = 1;
  while (self->done < until && self->first) {
    job *work = self->first;
    self->first = work->next;
    pthread_mutex_unlock(&self->base.lock);
    const whence_status_t status = run(self, work);
    free(work);
    pthread_mutex_lock(&self->base.lock);
    self->done++;
    if (!self->failure) self->failure = status;
    pthread_cond_broadcast(&self->less);
  }
  self->running = 0;
  if (self->first) pthread_cond_signal(&self->more);
}

static void *stream_main(void *argument) {
  cpu_stream *self = argument;
  pthread_mutex_lock(&self->base.lock);
  for (;;) {
    if (self->first && !self->running)
      do_jobs(self, UINT64_MAX);
    else if (self->ending)
      break;
    else
      pthread_cond_wait(&self->more, &self->base.lock);
  }
  pthread_mutex_unlock(&self->base.lock);
  return NULL;
}

static whence_status_t create_stream(whence_stream_t *stream, whence_model_t model, unsigned flags, void *queue) {
  if (queue) return whence_invalid_arguments;
  cpu_stream *made = calloc(1, sizeof *made);
  if (!made) return whence_out_of_memory;
  const whence_description_t *description = model->description;
  whence_status_t status = wh_stream_init(&made->base, &cpu, model, (flags & whence_stream_profiling) != 0);
  pthread_cond_init(&made->more, NULL);
  pthread_cond_init(&made->less, NULL);
  made->process = getpid();
  made->arena = wh_block(description->arena_bytes);
  made->pointers = calloc((size_t)description->plan->n_slots + 1, sizeof *made->pointers);
  made->state = wh_state_create(description);
  if (made->state) wh_state_reset(description, made->state, ((const cpu_model *)model)->weights);
  if (!status && made->arena && made->pointers && made->state) made->started = pthread_create(&made->thread, NULL, stream_main, made) == 0;
  if (!made->started) {
    whence_stream_destroy(&made->base);
    return whence_out_of_memory;
  }
  *stream = &made->base;
  return whence_success;
}

static void destroy_stream(whence_stream_t stream) {
  cpu_stream *self = (cpu_stream *)stream;
  if (self->started) whence_stream_wait(stream);
  if (self->started && getpid() == self->process) {
    pthread_mutex_lock(&stream->lock);
    self->ending = 1;
    pthread_cond_signal(&self->more);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(self->thread, NULL);
    pthread_cond_destroy(&self->more);
    pthread_cond_destroy(&self->less);
  }
  free(self->arena);
  wh_state_free(stream->model->description, self->state);
  free(self->pointers);
  wh_stream_free(stream);
}

static whence_status_t execute(whence_stream_t stream, const void *const *inputs, void *const *outputs, int on_device) {
  if (on_device) return whence_invalid_arguments;
  cpu_stream *self = (cpu_stream *)stream;
  const whence_description_t *description = stream->model->description;
  const size_t given = (size_t)description->n_inputs, taken = (size_t)description->n_outputs;
  job *work = malloc(sizeof *work + (given + taken) * sizeof *work->addresses);
  if (!work) return whence_out_of_memory;
  work->next = NULL;
  if (given) memcpy(work->addresses, inputs, given * sizeof *inputs);
  if (taken) memcpy(work->addresses + given, outputs, taken * sizeof *outputs);
  pthread_mutex_lock(&stream->lock);
  if (self->first)
    self->last->next = work;
  else
    self->first = work;
  self->last = work;
  stream->submitted++;
  if (!self->running) pthread_cond_signal(&self->more);
  pthread_mutex_unlock(&stream->lock);
  return whence_success;
}

/* Takes the lock when all is done that was submitted before the call, and with `at_rest` nothing else runs. Jobs that nobody does are done here.
   Returns how many were submitted. */
static uint64_t lock_when_done(cpu_stream *self, int at_rest) {
  pthread_mutex_lock(&self->base.lock);
  const uint64_t awaited = self->base.submitted;
  while (self->done < awaited || (at_rest && self->running)) {
    if (!self->running)
      do_jobs(self, awaited);
    else
      pthread_cond_wait(&self->less, &self->base.lock);
  }
  return awaited;
}

static whence_status_t wait_for_all(whence_stream_t stream) {
  cpu_stream *self = (cpu_stream *)stream;
  const uint64_t awaited = lock_when_done(self, 0);
  if (stream->waited < awaited) stream->waited = awaited;
  const whence_status_t failure = self->failure;
  self->failure = whence_success;
  pthread_mutex_unlock(&stream->lock);
  return failure;
}

static whence_status_t reset_state(whence_stream_t stream) {
  cpu_stream *self = (cpu_stream *)stream;
  lock_when_done(self, 1);
  /* No job begins while the lock is held. */
  wh_state_reset(stream->model->description, self->state, ((const cpu_model *)stream->model)->weights);
  pthread_mutex_unlock(&stream->lock);
  return whence_success;
}

static void *no_queue(whence_stream_t stream) { return (void)stream, NULL; }

static const wh_engine_functions cpu = {destroy_model, create_stream, destroy_stream, execute, wait_for_all, reset_state, no_queue};

#include "whence.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "whence_description.h"

enum { RING = 1 << 16 };

struct whence_model {
  const whence_description_t *description;
  wh_pool *pool;
  void *weights;
};

struct whence_stream {
  whence_model_t model;
  void *arena;
  void **pointers;
  int profiling;
  int running; /* submitted and not waited for */
  wh_profiler profiler;
  uint64_t *calls;
  uint64_t *nanoseconds;
};

static void *block(int64_t bytes) {
  void *memory = NULL;
  return posix_memalign(&memory, WH_LINE, (size_t)(bytes > 0 ? bytes : 1)) ? NULL : memory;
}

whence_status_t whence_model_create(whence_model_t *model, const whence_description_t *description, const char *weights_file, int threads) {
  if (!model || !description || !weights_file || threads < 0) return whence_invalid_arguments;
  whence_model_t made = calloc(1, sizeof *made);
  if (!made) return whence_out_of_memory;
  made->description = description;
  if (description->weights_bytes > 0) {
    struct stat status;
    int file = open(weights_file, O_RDONLY | O_CLOEXEC);
    int fits = file >= 0 && fstat(file, &status) == 0 && status.st_size == description->weights_bytes;
    made->weights = fits ? mmap(NULL, (size_t)description->weights_bytes, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    if (file >= 0) close(file);
    if (made->weights == MAP_FAILED) {
      free(made);
      return whence_invalid_arguments;
    }
  }
  made->pool = wh_pool_create(threads ? threads : 1, description->plan.scratch_bytes);
  if (!made->pool) {
    whence_model_destroy(made);
    return whence_out_of_memory;
  }
  *model = made;
  return whence_success;
}

void whence_model_destroy(whence_model_t model) {
  if (!model) return;
  wh_pool_destroy(model->pool);
  if (model->weights) munmap(model->weights, (size_t)model->description->weights_bytes);
  free(model);
}

whence_status_t whence_stream_create(whence_stream_t *stream, whence_model_t model, unsigned flags) {
  if (!stream || !model || (flags & ~(unsigned)(whence_stream_default | whence_stream_profiling))) return whence_invalid_arguments;
  whence_stream_t made = calloc(1, sizeof *made);
  if (!made) return whence_out_of_memory;
  const whence_description_t *description = model->description;
  made->model = model;
  made->arena = block(description->arena_bytes);
  made->pointers = calloc((size_t)description->plan.n_slots + 1, sizeof *made->pointers);
  int failed = !made->arena || !made->pointers;
  made->profiling = (flags & whence_stream_profiling) != 0;
  if (made->profiling) {
    made->profiler = (wh_profiler){calloc(RING, sizeof(wh_sample)), RING, 0, calloc(128, sizeof(uint64_t)), 64, 0};
    made->calls = calloc((size_t)description->plan.n_steps + 1, sizeof(uint64_t));
    made->nanoseconds = calloc((size_t)description->plan.n_steps + 1, sizeof(uint64_t));
    failed = failed || !made->profiler.samples || !made->profiler.times || !made->calls || !made->nanoseconds;
  }
  if (failed) {
    whence_stream_destroy(made);
    return whence_out_of_memory;
  }
  *stream = made;
  return whence_success;
}

void whence_stream_destroy(whence_stream_t stream) {
  if (!stream) return;
  free(stream->arena);
  free(stream->pointers);
  free(stream->profiler.samples);
  free(stream->profiler.times);
  free(stream->calls);
  free(stream->nanoseconds);
  free(stream);
}

/* Room for one more execution. The data grows until it is reset. */
static int grow(wh_profiler *profiler) {
  if (profiler->execution < profiler->times_capacity) return 0;
  uint64_t *larger = realloc(profiler->times, 4 * profiler->times_capacity * sizeof(uint64_t));
  if (!larger) return 1;
  memset(larger + 2 * profiler->times_capacity, 0, 2 * profiler->times_capacity * sizeof(uint64_t));
  profiler->times = larger;
  profiler->times_capacity *= 2;
  return 0;
}

whence_status_t whence_execute(whence_stream_t stream, const void *const *inputs, void *const *outputs) {
  if (!stream) return whence_invalid_arguments;
  const whence_description_t *description = stream->model->description;
  if ((description->n_inputs && !inputs) || (description->n_outputs && !outputs)) return whence_invalid_arguments;
  for (int i = 0; i < description->n_inputs; i++)
    if (description->input_bytes[i] && !inputs[i]) return whence_invalid_arguments;
  for (int i = 0; i < description->n_outputs; i++)
    if (description->output_bytes[i] && !outputs[i]) return whence_invalid_arguments;
  if (stream->profiling && grow(&stream->profiler)) return whence_out_of_memory;
  wh_profiler *profiler = stream->profiling ? &stream->profiler : NULL;
  uint64_t first = profiler ? profiler->written : 0;
  const wh_memory memory = {stream->arena, stream->model->weights, (void *const *)inputs, outputs, stream->pointers};
  if (wh_run(&description->plan, 0, stream->model->pool, &memory, profiler) < 0) return whence_out_of_memory;
  for (int64_t i = 0; i < description->n_copies; i++) {
    const wh_copy *copy = &description->copies[i];
    memcpy(outputs[copy->output], wh_address(&copy->from, &memory), (size_t)copy->bytes);
  }
  stream->running = 1;
  if (profiler) {
    for (uint64_t i = first; i < profiler->written; i++) {
      const wh_sample *sample = &profiler->samples[i % profiler->capacity];
      stream->calls[sample->step]++;
      stream->nanoseconds[sample->step] += sample->end - sample->begin;
    }
    profiler->execution++;
  }
  return whence_success;
}

whence_status_t whence_stream_wait(whence_stream_t stream) {
  if (!stream) return whence_invalid_arguments;
  stream->running = 0;
  return whence_success;
}

whence_status_t whence_reset_profiling(whence_stream_t stream) {
  if (!stream || !stream->profiling) return whence_invalid_arguments;
  if (stream->running) return whence_runtime_error;
  memset(stream->profiler.times, 0, 2 * stream->profiler.times_capacity * sizeof(uint64_t));
  memset(stream->calls, 0, (size_t)stream->model->description->plan.n_steps * sizeof(uint64_t));
  memset(stream->nanoseconds, 0, (size_t)stream->model->description->plan.n_steps * sizeof(uint64_t));
  stream->profiler.execution = 0;
  stream->profiler.written = 0;
  return whence_success;
}

whence_status_t whence_query_profiling_data(whence_stream_t stream, whence_profiling_data_kind_t kind, int *num_entries, uint64_t *data) {
  if (!stream || !stream->profiling || !num_entries) return whence_invalid_arguments;
  if (stream->running) return whence_runtime_error;
  int count = 0;
  for (uint64_t i = 0; i < stream->profiler.execution; i++) count += stream->profiler.times[2 * i] != 0;
  if (!data) {
    *num_entries = count;
    return whence_success;
  }
  if (kind != whence_profiling_data_kind_time) return whence_invalid_arguments;
  for (uint64_t i = 0; i < stream->profiler.execution; i++)
    if (stream->profiler.times[2 * i]) *data++ = stream->profiler.times[2 * i + 1] - stream->profiler.times[2 * i];
  return whence_success;
}

int whence_input_count(whence_model_t model) { return model ? model->description->n_inputs : 0; }

int whence_output_count(whence_model_t model) { return model ? model->description->n_outputs : 0; }

int64_t whence_input_bytes(whence_model_t model, int index) {
  return model && index >= 0 && index < model->description->n_inputs ? model->description->input_bytes[index] : -1;
}

int64_t whence_output_bytes(whence_model_t model, int index) {
  return model && index >= 0 && index < model->description->n_outputs ? model->description->output_bytes[index] : -1;
}

int whence_step_count(whence_model_t model) { return model ? (int)model->description->plan.n_steps : 0; }

const char *whence_step_name(whence_model_t model, int step) {
  return model && step >= 0 && step < model->description->plan.n_steps ? model->description->step_names[step] : NULL;
}

whence_status_t whence_query_step(whence_stream_t stream, int step, uint64_t *calls, uint64_t *nanoseconds) {
  if (!stream || !stream->profiling || !calls || !nanoseconds || step < 0 || step >= stream->model->description->plan.n_steps)
    return whence_invalid_arguments;
  if (stream->running) return whence_runtime_error;
  *calls = stream->calls[step];
  *nanoseconds = stream->nanoseconds[step];
  return whence_success;
}

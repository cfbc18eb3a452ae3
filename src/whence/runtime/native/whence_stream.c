#include "whence_stream.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RING = 1 << 16 };

/* ---- what engines share ---- */

whence_status_t wh_stream_init(whence_stream_t stream, const wh_engine_functions *engine, whence_model_t model, int profiling) {
  const size_t steps = (size_t)model->description->n_steps + 1;
  stream->engine = engine;
  stream->model = model;
  pthread_mutex_init(&stream->lock, NULL);
  stream->profiling = profiling;
  if (!profiling) return whence_success;
  stream->profiler = (wh_profiler){calloc(RING, sizeof(wh_sample)), RING, 0, calloc(128, sizeof(uint64_t)), 64, 0, NULL, 0, 0};
  stream->calls = calloc(steps, sizeof(uint64_t));
  stream->nanoseconds = calloc(steps, sizeof(uint64_t));
  return stream->profiler.samples && stream->profiler.times && stream->calls && stream->nanoseconds ? whence_success : whence_out_of_memory;
}

void wh_stream_free(whence_stream_t stream) {
  pthread_mutex_destroy(&stream->lock);
  free(stream->profiler.samples);
  free(stream->profiler.times);
  free(stream->calls);
  free(stream->nanoseconds);
  free(stream);
}

whence_status_t wh_map_weights(const whence_description_t *description, const char *file, void **weights) {
  *weights = NULL;
  if (description->weights_bytes < 1) return whence_success;
  struct stat status;
  const int opened = open(file, O_RDONLY | O_CLOEXEC);
  const int fits = opened >= 0 && fstat(opened, &status) == 0 && status.st_size == description->weights_bytes;
  void *mapped = fits ? mmap(NULL, (size_t)description->weights_bytes, PROT_READ, MAP_PRIVATE, opened, 0) : MAP_FAILED;
  if (opened >= 0) close(opened);
  if (mapped == MAP_FAILED) return whence_invalid_arguments;
  *weights = mapped;
  return whence_success;
}

void wh_unmap_weights(const whence_description_t *description, void *weights) {
  if (weights) munmap(weights, (size_t)description->weights_bytes);
}

/* The data grows until it is reset. */
int wh_profile_begin(whence_stream_t stream) {
  wh_profiler *profiler = &stream->profiler;
  if (profiler->execution < profiler->times_capacity) return 0;
  uint64_t *larger = realloc(profiler->times, 4 * profiler->times_capacity * sizeof(uint64_t));
  if (!larger) return 1;
  memset(larger + 2 * profiler->times_capacity, 0, 2 * profiler->times_capacity * sizeof(uint64_t));
  profiler->times = larger;
  profiler->times_capacity *= 2;
  return 0;
}

void wh_profile_end(whence_stream_t stream, uint64_t first) {
  wh_profiler *profiler = &stream->profiler;
  for (uint64_t i = first; i < profiler->written; i++) {
    const wh_sample *sample = &profiler->samples[i % profiler->capacity];
    stream->calls[sample->step]++;
    stream->nanoseconds[sample->step] += sample->end - sample->begin;
  }
  profiler->execution++;
}

void wh_profile_note(whence_stream_t stream, uint64_t execution, int64_t step, uint64_t begin, uint64_t end, int is_kernel) {
  wh_profiler *profiler = &stream->profiler;
  profiler->samples[profiler->written % profiler->capacity] = (wh_sample){begin, end, (uint32_t)execution, (uint32_t)step, 0};
  profiler->written++;
  stream->calls[step]++;
  stream->nanoseconds[step] += end - begin;
  if (!is_kernel) return;
  uint64_t *times = &profiler->times[2 * execution];
  if (!times[0] || begin < times[0]) times[0] = begin;
  if (end > times[1]) times[1] = end;
}

/* ---- whence.h ---- */

void whence_model_destroy(whence_model_t model) {
  if (model) model->engine->destroy_model(model);
}

whence_status_t whence_stream_create(whence_stream_t *stream, whence_model_t model, unsigned flags) {
  if (!stream || !model || (flags & ~(unsigned)(whence_stream_default | whence_stream_profiling))) return whence_invalid_arguments;
  return model->engine->create_stream(stream, model, flags, NULL);
}

void whence_stream_destroy(whence_stream_t stream) {
  if (stream) stream->engine->destroy_stream(stream);
}

whence_status_t wh_execute(whence_stream_t stream, const void *const *inputs, void *const *outputs, int on_device) {
  if (!stream) return whence_invalid_arguments;
  const whence_description_t *description = stream->model->description;
  if ((description->n_inputs && !inputs) || (description->n_outputs && !outputs)) return whence_invalid_arguments;
  for (int i = 0; i < description->n_inputs; i++)
    if (description->input_bytes[i] && !inputs[i]) return whence_invalid_arguments;
  for (int i = 0; i < description->n_outputs; i++)
    if (description->output_bytes[i] && !outputs[i]) return whence_invalid_arguments;
  return stream->engine->execute(stream, inputs, outputs, on_device);
}

whence_status_t whence_execute(whence_stream_t stream, const void *const *inputs, void *const *outputs) { return wh_execute(stream, inputs, outputs, 0); }

whence_status_t whence_reset_state(whence_stream_t stream) { return stream ? stream->engine->reset_state(stream) : whence_invalid_arguments; }

whence_status_t whence_stream_wait(whence_stream_t stream) { return stream ? stream->engine->wait(stream) : whence_invalid_arguments; }

/* Takes the lock of a stream whose profile may be read: nothing runs as long as it is held. */
static whence_status_t at_rest(whence_stream_t stream) {
  if (!stream || !stream->profiling) return whence_invalid_arguments;
  pthread_mutex_lock(&stream->lock);
  if (stream->waited == stream->submitted) return whence_success;
  pthread_mutex_unlock(&stream->lock);
  return whence_runtime_error;
}

static whence_status_t done(whence_stream_t stream) {
  pthread_mutex_unlock(&stream->lock);
  return whence_success;
}

whence_status_t whence_reset_profiling(whence_stream_t stream) {
  const whence_status_t status = at_rest(stream);
  if (status) return status;
  const size_t steps = (size_t)stream->model->description->n_steps;
  memset(stream->profiler.times, 0, 2 * stream->profiler.times_capacity * sizeof(uint64_t));
  memset(stream->calls, 0, steps * sizeof(uint64_t));
  memset(stream->nanoseconds, 0, steps * sizeof(uint64_t));
  stream->profiler.execution = 0;
  stream->profiler.written = 0;
  return done(stream);
}

whence_status_t whence_query_profiling_data(whence_stream_t stream, whence_profiling_data_kind_t kind, int *num_entries, uint64_t *data) {
  if (!num_entries) return whence_invalid_arguments;
  const whence_status_t status = at_rest(stream);
  if (status) return status;
  const wh_profiler *profiler = &stream->profiler;
  if (data && kind != whence_profiling_data_kind_time) {
    pthread_mutex_unlock(&stream->lock);
    return whence_invalid_arguments;
  }
  int count = 0;
  for (uint64_t i = 0; i < profiler->execution; i++) {
    if (!profiler->times[2 * i]) continue;
    if (data) data[count] = profiler->times[2 * i + 1] - profiler->times[2 * i];
    count++;
  }
  if (!data) *num_entries = count;
  return done(stream);
}

whence_status_t whence_query_step(whence_stream_t stream, int step, uint64_t *calls, uint64_t *nanoseconds) {
  if (!stream || !calls || !nanoseconds || step < 0 || step >= stream->model->description->n_steps) return whence_invalid_arguments;
  const whence_status_t status = at_rest(stream);
  if (status) return status;
  *calls = stream->calls[step];
  *nanoseconds = stream->nanoseconds[step];
  return done(stream);
}

whence_status_t whence_query_samples(whence_stream_t stream, int *num_samples, whence_sample_t *samples) {
  if (!num_samples) return whence_invalid_arguments;
  const whence_status_t status = at_rest(stream);
  if (status) return status;
  const wh_profiler *profiler = &stream->profiler;
  const uint64_t first = profiler->written > profiler->capacity ? profiler->written - profiler->capacity : 0;
  if (!samples) *num_samples = (int)(profiler->written - first);
  for (uint64_t i = first; samples && i < profiler->written; i++) {
    const wh_sample *sample = &profiler->samples[i % profiler->capacity];
    *samples++ = (whence_sample_t){sample->begin, sample->end, sample->execution, sample->step};
  }
  return done(stream);
}

int whence_input_count(whence_model_t model) { return model ? model->description->n_inputs : 0; }

int whence_output_count(whence_model_t model) { return model ? model->description->n_outputs : 0; }

int64_t whence_input_bytes(whence_model_t model, int index) {
  return model && index >= 0 && index < model->description->n_inputs ? model->description->input_bytes[index] : -1;
}

int64_t whence_output_bytes(whence_model_t model, int index) {
  return model && index >= 0 && index < model->description->n_outputs ? model->description->output_bytes[index] : -1;
}

int whence_step_count(whence_model_t model) { return model ? (int)model->description->n_steps : 0; }

const char *whence_step_name(whence_model_t model, int step) {
  return model && step >= 0 && step < model->description->n_steps ? model->description->step_names[step] : NULL;
}

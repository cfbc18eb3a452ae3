/* What streams of every engine have in common. Written for whence*.c, not for applications. */
#ifndef WHENCE_STREAM_H
#define WHENCE_STREAM_H

#include <pthread.h>

#include "whence.h"
#include "whence_description.h"

/* What an engine does its own way. An application may hold models of several engines, and each comes with a copy of the functions of whence.h: a
   model or a stream says by itself whose it is. */
typedef struct {
  void (*destroy_model)(whence_model_t model);
  whence_status_t (*create_stream)(whence_stream_t *stream, whence_model_t model, unsigned flags, void *queue);
  void (*destroy_stream)(whence_stream_t stream);
  whence_status_t (*execute)(whence_stream_t stream, const void *const *inputs, void *const *outputs, int on_device);
  whence_status_t (*wait)(whence_stream_t stream);
  whence_status_t (*reset_state)(whence_stream_t stream);
  void *(*queue)(whence_stream_t stream);
} wh_engine_functions;

/* The first member of an engine's own model. */
struct whence_model {
  const wh_engine_functions *engine;
  const whence_description_t *description;
};

/* The first member of an engine's own stream. */
struct whence_stream {
  const wh_engine_functions *engine;
  whence_model_t model;
  pthread_mutex_t lock; /* guards all that follows */
  uint64_t submitted;
  uint64_t waited; /* how many of those submitted were waited for */
  int profiling;
  wh_profiler profiler;
  uint64_t *calls; /* of each step since the last reset */
  uint64_t *nanoseconds;
};

whence_status_t wh_stream_init(whence_stream_t stream, const wh_engine_functions *engine, whence_model_t model, int profiling);
void wh_stream_free(whence_stream_t stream);

/* whence_execute, on memory of the host or of the device. */
whence_status_t wh_execute(whence_stream_t stream, const void *const *inputs, void *const *outputs, int on_device);

/* The weights that were written beside the library, mapped; NULL when the model has none. */
whence_status_t wh_map_weights(const whence_description_t *description, const char *file, void **weights);
void wh_unmap_weights(const whence_description_t *description, void *weights);

/* Before an execution: room for it. Nonzero when there is none. */
int wh_profile_begin(whence_stream_t stream);
/* After it: its samples, from number `first` on, become part of the sums by step. */
void wh_profile_end(whence_stream_t stream, uint64_t first);
/* A step that ran on a device. What is no kernel has samples, and does not count for the time of its execution. */
void wh_profile_note(whence_stream_t stream, uint64_t execution, int64_t step, uint64_t begin, uint64_t end, int is_kernel);

#endif

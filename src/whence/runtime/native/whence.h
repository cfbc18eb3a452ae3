/* Running a compiled model from C. Statuses, flags and the profiling calls follow oneDNN's conventions.

     whence_model_t model;
     whence_stream_t stream;
     whence_model_create(&model, resnet50_description(), "resnet50.weights", 2);
     whence_stream_create(&stream, model, whence_stream_profiling);
     whence_execute(stream, inputs, outputs);
     whence_stream_wait(stream);
     whence_query_profiling_data(stream, whence_profiling_data_kind_time, &count, NULL);
*/
#ifndef WHENCE_H
#define WHENCE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  whence_success = 0,
  whence_out_of_memory = 1,
  whence_invalid_arguments = 2,
  whence_unimplemented = 3,
  whence_runtime_error = 5,
} whence_status_t;

typedef enum {
  whence_stream_default = 0x1,
  whence_stream_profiling = 0x4, /* the stream keeps the time of every execution */
} whence_stream_flags_t;

typedef enum {
  whence_profiling_data_kind_undef = 0,
  whence_profiling_data_kind_time = 1, /* nanoseconds of each execution */
} whence_profiling_data_kind_t;

typedef struct whence_model *whence_model_t;
typedef struct whence_stream *whence_stream_t;

/* What the compiler knows of a model; each compiled model has a function that returns its own. */
typedef struct whence_description whence_description_t;

/* `weights_file` is the file that was written beside the library. `threads` counts the caller; 0 means one. */
whence_status_t whence_model_create(whence_model_t *model, const whence_description_t *description, const char *weights_file, int threads);
void whence_model_destroy(whence_model_t model);

/* What a run takes and gives: how many tensors, and the size of each in bytes, -1 for one that does not exist. */
int whence_input_count(whence_model_t model);
int whence_output_count(whence_model_t model);
int64_t whence_input_bytes(whence_model_t model, int index);
int64_t whence_output_bytes(whence_model_t model, int index);

/* A stream has memory and a thread of its own, so a model may run on several streams at the same time. Any number of threads may use one stream: its
   executions happen one after the other, in the order in which they were submitted. Destroying a stream waits for them; streams go before their model. */
whence_status_t whence_stream_create(whence_stream_t *stream, whence_model_t model, unsigned flags);
void whence_stream_destroy(whence_stream_t stream);

/* Submits an execution and returns, asynchronously as in oneDNN. Inputs and outputs are dense, in the order the model's header lists them. Their memory
   is read and written until a wait has returned; the two arrays of pointers are not needed any more. */
whence_status_t whence_execute(whence_stream_t stream, const void *const *inputs, void *const *outputs);

/* Returns when everything is done that was submitted before the call, with the status of the first execution that failed since the last wait. The calling
   thread takes part in the work. An input with an index outside the axis that it leads into is a whence_runtime_error; what its execution wrote to the
   outputs means nothing. */
whence_status_t whence_stream_wait(whence_stream_t stream);

/* A model with state (variables that outlive an execution; its header lists them) keeps it in the stream: each stream is a sequence of
   executions of its own, and streams of one model never see each other's. A new stream begins with the initial values; this gives them to it
   again, after everything that was submitted before the call. */
whence_status_t whence_reset_state(whence_stream_t stream);

/* Profiling. Every call here is whence_invalid_arguments on a stream without the profiling flag, and whence_runtime_error while executions
   have not been waited for. Data is kept until it is reset. */

/* Forgets all executions. */
whence_status_t whence_reset_profiling(whence_stream_t stream);

/* With `data` NULL, sets `num_entries` to the number of executions since the last reset that ran at least one step, whatever the kind.
   Otherwise writes that many numbers to `data`, in the order of submission, and leaves `num_entries` alone. */
whence_status_t whence_query_profiling_data(whence_stream_t stream, whence_profiling_data_kind_t kind, int *num_entries, uint64_t *data);

/* The steps of a model are its kernels, in the order in which they run. Step number `step` is the row of table `kernel` with that id in the debug
   database NAME_debug.xml or NAME_debug.duckdb, and in table `queue` the command at offset 4 x `step`: from there to the operators of the source file. */

/* The name of a step, and how often and how long it ran since the last reset. */
int whence_step_count(whence_model_t model);
const char *whence_step_name(whence_model_t model, int step);
whence_status_t whence_query_step(whence_stream_t stream, int step, uint64_t *calls, uint64_t *nanoseconds);

/* When one step of one execution ran, in nanoseconds. Executions count from 0 at the last reset. */
typedef struct {
  uint64_t begin;
  uint64_t end;
  uint32_t execution;
  uint32_t step;
} whence_sample_t;

/* With `samples` NULL, sets `num_samples` to how many there are: of every step that ran since the last reset, the newest 65,536. Otherwise writes them to
   `samples`, oldest first, and leaves `num_samples` alone. */
whence_status_t whence_query_samples(whence_stream_t stream, int *num_samples, whence_sample_t *samples);

#ifdef __cplusplus
}
#endif
#endif

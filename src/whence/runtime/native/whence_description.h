/* The tables a compiled model consists of. Written by the compiler, read by whence.c. */
#ifndef WHENCE_DESCRIPTION_H
#define WHENCE_DESCRIPTION_H

#include "whence_runtime.h"

/* An output that no step writes in place: an input or a constant handed through, or a second name for another output. */
typedef struct {
  wh_slot from;
  int32_t output;
  int64_t bytes;
} wh_copy;

/* A value that outlives an execution. It begins with `initial_bytes` bytes of the weights, repeated, or with zeros if there are none.
   One that is not written in place has a second block for its next value; the two change places after an execution. */
typedef struct {
  int64_t bytes;
  int64_t initial_offset;
  int64_t initial_bytes;
  int in_place;
} wh_variable;

struct whence_description {
  const wh_plan *plan; /* NULL: not for the processor */
  const char *const *step_names;
  int64_t n_steps;
  const wh_copy *copies;
  int64_t n_copies;
  const int64_t *input_bytes;
  const int64_t *output_bytes;
  int64_t arena_bytes;
  int64_t weights_bytes;
  int n_inputs;
  int n_outputs;
  const wh_variable *variables;
  int n_variables;
};

#endif

/* The tables a compiled model consists of. Written by the compiler, read by whence.c. */
#ifndef WHENCE_DESCRIPTION_H
#define WHENCE_DESCRIPTION_H

#include "whence_runtime.h"

/* A value that outlives an execution. It begins with `initial_bytes` bytes of the weights, repeated, or with zeros if there are none.
   One that is not written in place has a second block for its next value; the two change places after an execution. */
typedef struct {
  int64_t bytes;
  int64_t initial_offset;
  int64_t initial_bytes;
  int in_place;
} wh_variable;

/* A kernel to start on an OpenCL device, and where its parameters lie. */
typedef struct {
  const char *kernel;
  int32_t dimensions;
  size_t items[3]; /* work items in each dimension, */
  size_t group[3]; /* and how many of them make a group */
  int32_t first_slot;
  int32_t n_slots;
  int32_t n_guards; /* as in wh_step */
  uint32_t wanted;
  int32_t has_scratch; /* Does it want the stream's scratch memory as its next argument? */
  int32_t checks;      /* Does it note indices outside their axis? Where to, and its number, are then the last arguments. */
} wh_launch;

/* The steps of a model on an OpenCL device. After them, two more are numbered: copies to the device, and copies from it. */
typedef struct {
  const wh_launch *launches;
  const wh_slot *slots;
  int64_t n_launches;
  int64_t scratch_bytes;
  int64_t group_size; /* of the largest work group */
  int needs_doubles;
  int checks; /* Does any launch? */
} wh_launch_plan;

struct whence_description {
  const wh_plan *plan;               /* NULL: not for the processor */
  const wh_launch_plan *launch_plan; /* NULL: not for OpenCL */
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

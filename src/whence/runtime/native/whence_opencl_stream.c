/* Streams on an OpenCL device. */
#include <stdlib.h>

#include "whence_opencl_stream.h"
#include "whence_state.h"

/* A command that was given to the queue and not waited for. */
typedef struct {
  cl_event event;
  uint64_t execution;
  int64_t step;
} command;

typedef struct {
  struct whence_stream base;
  pthread_mutex_t settling; /* whoever holds it turns commands into samples; taken before the stream's lock */
  cl_command_queue queue;
  cl_mem arena;
  cl_mem scratch;
  cl_mem fault; /* the number of a step, from 1, that read an index outside its axis; 0 while there is none */
  void **state; /* buffers of the variables as they are, then of what they will be */
  cl_mem *inputs; /* of our own, for memory of the host; made when first needed */
  cl_mem *outputs;
  cl_kernel *kernels; /* One for each launch: a kernel object holds its arguments, and most are set once. */
  command *commands;
  size_t n_commands;
  size_t commands_capacity;
} cl_stream;

static cl_mem buffer(const cl_stream *self, int64_t bytes, int32_t *error) {
  const cl_model *model = (const cl_model *)self->base.model;
  return clCreateBuffer(model->engine->context, CL_MEM_READ_WRITE, (size_t)(bytes > 0 ? bytes : 1), NULL, error);
}

/* The arguments of a kernel are, for each parameter, a buffer and where in it the parameter begins; then scratch memory if it wants any; then where to note
   an index outside its axis, and as which number, if it checks them. */
static int32_t set_argument(cl_kernel kernel, int32_t number, cl_mem memory, int64_t offset) {
  const int32_t error = clSetKernelArg(kernel, 2 * (uint32_t)number, sizeof memory, &memory);
  return error ? error : clSetKernelArg(kernel, 2 * (uint32_t)number + 1, sizeof offset, &offset);
}

static int32_t make_kernels(cl_stream *self) {
  const cl_model *model = (const cl_model *)self->base.model;
  const wh_launch_plan *plan = model->base.description->launch_plan;
  int32_t error = CL_SUCCESS;
  for (int64_t i = 0; i < plan->n_launches && !error; i++) {
    const wh_launch *launch = &plan->launches[i];
    self->kernels[i] = clCreateKernel(model->program, launch->kernel, &error);
    for (int32_t n = 0; n < launch->n_slots && !error; n++) {
      const wh_slot *slot = &plan->slots[launch->first_slot + n];
      if (slot->region == WH_ARENA || slot->region == WH_WEIGHTS)
        error = set_argument(self->kernels[i], n, slot->region == WH_ARENA ? self->arena : model->weights, slot->offset);
    }
    uint32_t next = 2 * (uint32_t)launch->n_slots;
    if (launch->has_scratch && !error) error = clSetKernelArg(self->kernels[i], next++, sizeof self->scratch, &self->scratch);
    const int32_t number = (int32_t)i + 1;
    if (launch->checks && !error) error = clSetKernelArg(self->kernels[i], next++, sizeof self->fault, &self->fault);
    if (launch->checks && !error) error = clSetKernelArg(self->kernels[i], next, sizeof number, &number);
  }
  return error;
}

static void release(void **memory, int count) {
  for (int i = 0; memory && i < count; i++)
    if (memory[i]) clReleaseMemObject(memory[i]);
  free(memory);
}

static int32_t make_state(cl_stream *self) {
  const whence_description_t *description = self->base.model->description;
  const int n = description->n_variables;
  int32_t error = CL_SUCCESS;
  for (int i = 0; i < n && !error; i++) {
    self->state[i] = buffer(self, description->variables[i].bytes, &error);
    if (!error) self->state[n + i] = description->variables[i].in_place ? self->state[i] : buffer(self, description->variables[i].bytes, &error);
  }
  return error;
}

static int32_t clear_fault(cl_stream *self) {
  const int32_t none = 0;
  return clEnqueueWriteBuffer(self->queue, self->fault, 1, 0, sizeof none, &none, 0, NULL, NULL);
}

/* Everything submitted is done: did a kernel read an index outside its axis? */
static whence_status_t check_fault(cl_stream *self) {
  int32_t step = 0;
  if (!self->fault) return whence_success;
  const int32_t error = clEnqueueReadBuffer(self->queue, self->fault, 1, 0, sizeof step, &step, 0, NULL, NULL);
  if (error || !step) return wh_cl_status(error);
  (void)clear_fault(self);
  return whence_runtime_error;
}

/* Writes the initial values, after everything that was submitted before. */
static int32_t fill_state(cl_stream *self) {
  const cl_model *model = (const cl_model *)self->base.model;
  const whence_description_t *description = model->base.description;
  if (!description->n_variables) return CL_SUCCESS;
  void **values = wh_state_create(description);
  if (!values) return CL_OUT_OF_HOST_MEMORY;
  wh_state_reset(description, values, model->initial);
  int32_t error = CL_SUCCESS;
  for (int i = 0; i < description->n_variables && !error; i++)
    if (description->variables[i].bytes)
      error = clEnqueueWriteBuffer(self->queue, self->state[i], 1, 0, (size_t)description->variables[i].bytes, values[i], 0, NULL, NULL);
  wh_state_free(description, values);
  return error;
}

static whence_status_t reset_state(whence_stream_t stream) {
  pthread_mutex_lock(&stream->lock);
  const int32_t error = fill_state((cl_stream *)stream);
  pthread_mutex_unlock(&stream->lock);
  return wh_cl_status(error);
}

static whence_status_t create_stream(whence_stream_t *stream, whence_model_t model, unsigned flags, void *given) {
  const whence_description_t *description = model->description;
  const whence_engine_t engine = ((cl_model *)model)->engine;
  cl_command_queue queue = given;
  int32_t error = CL_SUCCESS;
  uint64_t properties = flags & whence_stream_profiling ? CL_QUEUE_PROFILING_ENABLE : 0;
  if (given) {
    cl_context context = NULL;
    cl_device_id device = NULL;
    if (clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL) || clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL) ||
        clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL))
      return whence_invalid_arguments;
    if (context != engine->context || device != engine->device || properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) return whence_invalid_arguments;
    error = clRetainCommandQueue(queue);
  } else {
    queue = clCreateCommandQueue(engine->context, engine->device, properties, &error);
  }
  if (error) return wh_cl_status(error);
  cl_stream *made = calloc(1, sizeof *made);
  if (!made) {
    clReleaseCommandQueue(queue);
    return whence_out_of_memory;
  }
  whence_status_t status = wh_stream_init(&made->base, &wh_cl_functions, model, (properties & CL_QUEUE_PROFILING_ENABLE) != 0);
  pthread_mutex_init(&made->settling, NULL);
  made->queue = queue;
  made->inputs = calloc((size_t)description->n_inputs + 1, sizeof *made->inputs);
  made->outputs = calloc((size_t)description->n_outputs + 1, sizeof *made->outputs);
  made->kernels = calloc((size_t)description->launch_plan->n_launches + 1, sizeof *made->kernels);
  made->state = calloc(2 * (size_t)description->n_variables + 1, sizeof *made->state);
  if (!status && !(made->inputs && made->outputs && made->kernels && made->state)) status = whence_out_of_memory;
  if (!status) made->arena = buffer(made, description->arena_bytes, &error);
  if (!status && !error && description->launch_plan->scratch_bytes) made->scratch = buffer(made, description->launch_plan->scratch_bytes, &error);
  if (!status && !error && description->launch_plan->checks) made->fault = buffer(made, sizeof(int32_t), &error);
  if (made->fault && !error) error = clear_fault(made);
  if (!status && !error) error = make_state(made);
  if (!status && !error) error = fill_state(made);
  if (!status && !error) error = make_kernels(made);
  if (!status) status = wh_cl_status(error);
  if (status) {
    whence_stream_destroy(&made->base);
    return status;
  }
  *stream = &made->base;
  return whence_success;
}

whence_status_t whence_opencl_stream_create(whence_stream_t *stream, whence_model_t model, struct _cl_command_queue *queue) {
  if (!stream || !model || !queue) return whence_invalid_arguments;
  return model->engine->create_stream(stream, model, 0, queue);
}

static void *queue_of(whence_stream_t stream) { return ((cl_stream *)stream)->queue; }

struct _cl_command_queue *whence_opencl_get_command_queue(whence_stream_t stream) { return stream ? stream->engine->queue(stream) : NULL; }

static void destroy_stream(whence_stream_t stream) {
  cl_stream *self = (cl_stream *)stream;
  const whence_description_t *description = stream->model->description;
  whence_stream_wait(stream);
  for (int64_t i = 0; self->kernels && i < description->launch_plan->n_launches; i++)
    if (self->kernels[i]) clReleaseKernel(self->kernels[i]);
  free(self->kernels);
  release((void **)self->inputs, description->n_inputs);
  release((void **)self->outputs, description->n_outputs);
  const int n = description->n_variables;
  for (int i = 0; self->state && i < n; i++)
    if (self->state[n + i] == self->state[i]) self->state[n + i] = NULL;
  release(self->state, 2 * n);
  if (self->arena) clReleaseMemObject(self->arena);
  if (self->scratch) clReleaseMemObject(self->scratch);
  if (self->fault) clReleaseMemObject(self->fault);
  clReleaseCommandQueue(self->queue);
  free(self->commands);
  pthread_mutex_destroy(&self->settling);
  wh_stream_free(stream);
}

/* ---- executions ---- */

/* One execution as it is submitted: where its inputs and outputs lie on the device. */
typedef struct {
  cl_stream *stream;
  cl_mem *inputs;
  cl_mem *outputs;
} execution;

static cl_mem memory_of(const execution *run, const wh_slot *slot) {
  const cl_model *model = (const cl_model *)run->stream->base.model;
  return slot->region == WH_ARENA     ? run->stream->arena
         : slot->region == WH_WEIGHTS ? model->weights
         : slot->region == WH_INPUT   ? run->inputs[slot->index]
         : slot->region == WH_OUTPUT  ? run->outputs[slot->index]
         : slot->region == WH_STATE   ? run->stream->state[slot->index]
                                      : run->stream->state[model->base.description->n_variables + slot->index];
}

/* Where a command's event goes, NULL for nowhere: there is room for one more. */
static cl_event *event_of(cl_stream *self, int64_t step, int32_t *error) {
  if (!self->base.profiling || *error) return NULL;
  if (self->n_commands == self->commands_capacity) {
    const size_t capacity = self->commands_capacity ? 2 * self->commands_capacity : 256;
    command *larger = realloc(self->commands, capacity * sizeof *larger);
    if (!larger) {
      *error = CL_OUT_OF_HOST_MEMORY;
      return NULL;
    }
    self->commands = larger;
    self->commands_capacity = capacity;
  }
  self->commands[self->n_commands] = (command){NULL, self->base.profiler.execution, step};
  return &self->commands[self->n_commands].event;
}

/* The command that the event is of was submitted, or not. */
static int32_t noted(cl_stream *self, int32_t error) {
  if (self->base.profiling && !error) self->n_commands++;
  return error;
}

/* Conditions are asked in order: one that is computed under another is there only if that holds. */
static int is_wanted(const execution *run, const wh_launch *launch, int32_t *error) {
  const whence_description_t *description = run->stream->base.model->description;
  for (int32_t i = 0; i < launch->n_guards && !*error; i++) {
    const wh_slot *slot = &description->launch_plan->slots[launch->first_slot + launch->n_slots + i];
    uint8_t condition = 0;
    cl_event *event = event_of(run->stream, description->n_steps - 1, error);
    if (!*error) *error = noted(run->stream, clEnqueueReadBuffer(run->stream->queue, memory_of(run, slot), 1, (size_t)slot->offset, 1, &condition, 0, NULL, event));
    if ((condition != 0) != (launch->wanted >> i & 1)) return 0;
  }
  return !*error;
}

static int32_t start(const execution *run, int64_t number) {
  cl_stream *self = run->stream;
  const wh_launch_plan *plan = self->base.model->description->launch_plan;
  const wh_launch *launch = &plan->launches[number];
  int32_t error = CL_SUCCESS;
  for (int32_t i = 0; i < launch->dimensions; i++)
    if (!launch->items[i]) return CL_SUCCESS; /* empty tensors: nothing runs, and the profile does not say that something did */
  if (!is_wanted(run, launch, &error)) return error;
  for (int32_t n = 0; n < launch->n_slots && !error; n++) {
    const wh_slot *slot = &plan->slots[launch->first_slot + n];
    if (slot->region != WH_ARENA && slot->region != WH_WEIGHTS) error = set_argument(self->kernels[number], n, memory_of(run, slot), slot->offset);
  }
  cl_event *event = event_of(self, number, &error);
  if (error) return error;
  return noted(self, clEnqueueNDRangeKernel(self->queue, self->kernels[number], (uint32_t)launch->dimensions, NULL, launch->items, launch->group, 0, NULL, event));
}

/* An output that lies in `slot`, or with the kernel that wrote it, to where the caller wants it. */
static int32_t deliver(const execution *run, const wh_slot *slot, int output, int64_t bytes, void *host) {
  cl_stream *self = run->stream;
  int32_t error = CL_SUCCESS;
  cl_event *event = event_of(self, self->base.model->description->n_steps - 1, &error);
  if (error || !bytes) return error;
  const cl_mem from = memory_of(run, slot);
  if (host) return noted(self, clEnqueueReadBuffer(self->queue, from, 0, (size_t)slot->offset, (size_t)bytes, host, 0, NULL, event));
  return noted(self, clEnqueueCopyBuffer(self->queue, from, run->outputs[output], (size_t)slot->offset, 0, (size_t)bytes, 0, NULL, event));
}

static int32_t submit(const execution *run, const void *const *host_inputs, void *const *host_outputs) {
  cl_stream *self = run->stream;
  const whence_description_t *description = self->base.model->description;
  int32_t error = CL_SUCCESS;
  for (int i = 0; host_inputs && i < description->n_inputs && !error; i++) {
    if (!description->input_bytes[i]) continue;
    cl_event *event = event_of(self, description->n_steps - 2, &error);
    if (!error)
      error = noted(self, clEnqueueWriteBuffer(self->queue, run->inputs[i], 0, 0, (size_t)description->input_bytes[i], host_inputs[i], 0, NULL, event));
  }
  for (int64_t i = 0; i < description->launch_plan->n_launches && !error; i++) error = start(run, i);
  for (int64_t i = 0; i < description->n_copies && !error; i++) {
    const wh_copy *copy = &description->copies[i];
    error = deliver(run, &copy->from, copy->output, copy->bytes, host_outputs ? host_outputs[copy->output] : NULL);
  }
  for (int i = 0; host_outputs && i < description->n_outputs && !error; i++) {
    int is_copied = 0;
    for (int64_t c = 0; c < description->n_copies; c++) is_copied |= description->copies[c].output == i;
    const wh_slot slot = {WH_OUTPUT, i, 0};
    if (!is_copied) error = deliver(run, &slot, i, description->output_bytes[i], host_outputs[i]);
  }
  if (error) return error;
  wh_state_advance(description, self->state);
  return clFlush(self->queue);
}

/* Memory of the device for what the caller has on the host. */
static int32_t make_room(cl_stream *self) {
  const whence_description_t *description = self->base.model->description;
  int32_t error = CL_SUCCESS;
  for (int i = 0; i < description->n_inputs && !error; i++)
    if (!self->inputs[i]) self->inputs[i] = buffer(self, description->input_bytes[i], &error);
  for (int i = 0; i < description->n_outputs && !error; i++)
    if (!self->outputs[i]) self->outputs[i] = buffer(self, description->output_bytes[i], &error);
  return error;
}

static int fits(const cl_stream *self, cl_mem memory, int64_t bytes) {
  const cl_model *model = (const cl_model *)self->base.model;
  size_t size = 0;
  cl_context context = NULL;
  if (clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof size, &size, NULL) || clGetMemObjectInfo(memory, CL_MEM_CONTEXT, sizeof context, &context, NULL)) return 0;
  return context == model->engine->context && size >= (size_t)bytes;
}

static whence_status_t execute(whence_stream_t stream, const void *const *inputs, void *const *outputs, int on_device) {
  cl_stream *self = (cl_stream *)stream;
  const whence_description_t *description = stream->model->description;
  for (int i = 0; on_device && i < description->n_inputs; i++)
    if (inputs[i] && !fits(self, (cl_mem)inputs[i], description->input_bytes[i])) return whence_invalid_arguments;
  for (int i = 0; on_device && i < description->n_outputs; i++)
    if (outputs[i] && !fits(self, (cl_mem)outputs[i], description->output_bytes[i])) return whence_invalid_arguments;
  pthread_mutex_lock(&stream->lock);
  int32_t error = stream->profiling && wh_profile_begin(stream) ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
  if (!error && !on_device) error = make_room(self);
  if (!error) {
    /* From here on there may be commands in the queue, whatever happens. */
    stream->submitted++;
    const execution run = {self, on_device ? (cl_mem *)inputs : self->inputs, on_device ? (cl_mem *)outputs : self->outputs};
    error = submit(&run, on_device ? NULL : inputs, on_device ? NULL : outputs);
    stream->profiler.execution++;
  }
  pthread_mutex_unlock(&stream->lock);
  return wh_cl_status(error);
}

whence_status_t whence_opencl_execute(whence_stream_t stream, struct _cl_mem *const *inputs, struct _cl_mem *const *outputs) {
  return wh_execute(stream, (const void *const *)inputs, (void *const *)outputs, 1);
}

/* The times of a command by the device's clock; nonzero if it failed. */
static int times_of(const command *one, uint64_t *begin, uint64_t *end) {
  int32_t state = -1;
  if (clGetEventInfo(one->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL) || state != 0) return 1;
  return clGetEventProfilingInfo(one->event, CL_PROFILING_COMMAND_START, sizeof *begin, begin, NULL) ||
         clGetEventProfilingInfo(one->event, CL_PROFILING_COMMAND_END, sizeof *end, end, NULL);
}

static whence_status_t wait_for_all(whence_stream_t stream) {
  cl_stream *self = (cl_stream *)stream;
  pthread_mutex_lock(&self->settling);
  pthread_mutex_lock(&stream->lock);
  const uint64_t awaited = stream->submitted;
  command *commands = self->commands;
  const size_t count = self->n_commands;
  self->commands = NULL;
  self->n_commands = self->commands_capacity = 0;
  pthread_mutex_unlock(&stream->lock);
  whence_status_t status = wh_cl_status(clFinish(self->queue));
  if (!status) status = check_fault(self);
  pthread_mutex_lock(&stream->lock);
  for (size_t i = 0; i < count; i++) {
    uint64_t begin = 0, end = 0;
    if (times_of(&commands[i], &begin, &end))
      status = status ? status : whence_runtime_error;
    else
      wh_profile_note(stream, commands[i].execution, commands[i].step, begin, end, commands[i].step < stream->model->description->launch_plan->n_launches);
    clReleaseEvent(commands[i].event);
  }
  if (stream->waited < awaited) stream->waited = awaited;
  pthread_mutex_unlock(&stream->lock);
  pthread_mutex_unlock(&self->settling);
  free(commands);
  return status;
}

const wh_engine_functions wh_cl_functions = {wh_cl_destroy_model, create_stream, destroy_stream, execute, wait_for_all, reset_state, queue_of};

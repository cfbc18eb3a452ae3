/* Running a compiled model on an application's own OpenCL device, context and queue. Everything in whence.h works on what is made here.

     whence_engine_t engine;
     whence_model_t model;
     whence_stream_t stream;
     whence_opencl_engine_create(&engine, device, context);
     whence_opencl_model_create(&model, engine, resnet50_description(), "resnet50.cl", "resnet50.weights");
     whence_opencl_stream_create(&stream, model, queue);
     whence_opencl_execute(stream, inputs, outputs);
     whence_stream_wait(stream);

   Types are those of CL/cl.h: cl_device_id is struct _cl_device_id *, and so on. The library leaves OpenCL's functions to the application: link it
   with the OpenCL library that the application uses.

   An index outside the axis that it leads into is a whence_runtime_error of whence_stream_wait, which tells of all executions since the last. On a
   device such an execution goes on to its end, with the nearest index that is inside.

   The time of an execution is that of its kernels: the latest end less the earliest start, by the device's clock, gaps included. Copies between host and
   device do not count; they have samples of their own, as the last two steps: "copy to the device" and "copy from the device". */
#ifndef WHENCE_OPENCL_H
#define WHENCE_OPENCL_H

#include "whence.h"

#ifdef __cplusplus
extern "C" {
#endif

struct _cl_device_id;
struct _cl_context;
struct _cl_command_queue;
struct _cl_mem;

typedef struct whence_engine *whence_engine_t;

/* An engine on the application's device and context. Without a device (NULL), the context's first; without a context, one of its own, on the device given,
   or else on the first GPU there is, or else on the first device of any kind. */
whence_status_t whence_opencl_engine_create(whence_engine_t *engine, struct _cl_device_id *device, struct _cl_context *context);
void whence_opencl_engine_destroy(whence_engine_t engine);

/* What it is on; NULL of NULL. The engine keeps its own reference to the context. */
struct _cl_device_id *whence_opencl_get_device(whence_engine_t engine);
struct _cl_context *whence_opencl_get_context(whence_engine_t engine);

/* Compiles the kernels for the device; both files were written beside the library. whence_unimplemented if the device lacks something they need:
   double precision, or work groups of their size. The engine must outlive the model. */
whence_status_t whence_opencl_model_create(
    whence_model_t *model, whence_engine_t engine, const whence_description_t *description, const char *kernels_file, const char *weights_file);

/* A stream whose executions go to the application's queue, among whatever else the application puts there. It profiles if the queue was created with
   CL_QUEUE_PROFILING_ENABLE. The queue must be in order, and on the engine's device and context. whence_stream_create makes a stream with a queue
   of its own. */
whence_status_t whence_opencl_stream_create(whence_stream_t *stream, whence_model_t model, struct _cl_command_queue *queue);
struct _cl_command_queue *whence_opencl_get_command_queue(whence_stream_t stream);

/* As whence_execute, on memory of the device, which is used where it is: buffers of the engine's context, at least as large as whence_input_bytes and
   whence_output_bytes say, no output overlapping another buffer. Later commands on the queue find the outputs there; only the host has to wait.
   (whence_execute takes memory of the host, and copies.) A model with conditions waits for each before it goes on: its executions are submitted only
   when the last condition is known. */
whence_status_t whence_opencl_execute(whence_stream_t stream, struct _cl_mem *const *inputs, struct _cl_mem *const *outputs);

#ifdef __cplusplus
}
#endif
#endif

/* What models and streams on OpenCL devices have in common. Written for whence_opencl*.c, not for applications. */
#ifndef WHENCE_OPENCL_STREAM_H
#define WHENCE_OPENCL_STREAM_H

#include "whence_cl.h"
#include "whence_opencl.h"
#include "whence_stream.h"

struct whence_engine {
  cl_device_id device;
  cl_context context;
};

typedef struct {
  struct whence_model base;
  whence_engine_t engine;
  cl_program program;
  cl_mem weights;
  void *initial; /* the weights on the host, mapped, if variables begin with them */
} cl_model;

/* The functions of streams, and of models for wh_cl_functions. */
extern const wh_engine_functions wh_cl_functions;
void wh_cl_destroy_model(whence_model_t model);

/* What an error of OpenCL is called here. */
whence_status_t wh_cl_status(int32_t error);

#endif

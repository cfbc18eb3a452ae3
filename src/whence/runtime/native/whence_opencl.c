/* Engines and models on an OpenCL device. */
#include "whence_opencl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "whence_opencl_stream.h"

whence_status_t wh_cl_status(int32_t error) {
  if (error == CL_SUCCESS) return whence_success;
  const int scarce = error == CL_OUT_OF_HOST_MEMORY || error == CL_OUT_OF_RESOURCES || error == CL_MEM_OBJECT_ALLOCATION_FAILURE;
  return scarce ? whence_out_of_memory : whence_runtime_error;
}

/* ---- engines ---- */

static cl_device_id find_device(uint64_t type) {
  cl_platform_id platforms[16];
  uint32_t n_platforms = 0, found = 0;
  cl_device_id device = NULL;
  if (clGetPlatformIDs(16, platforms, &n_platforms)) return NULL;
  for (uint32_t i = 0; i < n_platforms && i < 16; i++)
    if (clGetDeviceIDs(platforms[i], type, 1, &device, &found) == CL_SUCCESS && found) return device;
  return NULL;
}

/* The device, if it is one of the context's; without one, the context's first. */
static cl_device_id device_of(cl_context context, cl_device_id device) {
  cl_device_id devices[64];
  size_t bytes = 0;
  if (clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof devices, devices, &bytes)) return NULL;
  for (size_t i = 0; i < bytes / sizeof *devices; i++)
    if (!device || devices[i] == device) return devices[i];
  return NULL;
}

whence_status_t whence_opencl_engine_create(whence_engine_t *engine, struct _cl_device_id *device, struct _cl_context *context) {
  if (!engine) return whence_invalid_arguments;
  if (context) device = device_of(context, device);
  if (!context && !device) device = find_device(CL_DEVICE_TYPE_GPU);
  if (!context && !device) device = find_device(CL_DEVICE_TYPE_ALL);
  if (!device) return whence_invalid_arguments;
  int32_t error = CL_SUCCESS;
  if (context)
    error = clRetainContext(context);
  else
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
  if (error) return wh_cl_status(error);
  whence_engine_t made = malloc(sizeof *made);
  if (!made) {
    clReleaseContext(context);
    return whence_out_of_memory;
  }
  *made = (struct whence_engine){device, context};
  *engine = made;
  return whence_success;
}

void whence_opencl_engine_destroy(whence_engine_t engine) {
  if (!engine) return;
  clReleaseContext(engine->context);
  free(engine);
}

struct _cl_device_id *whence_opencl_get_device(whence_engine_t engine) { return engine ? engine->device : NULL; }

struct _cl_context *whence_opencl_get_context(whence_engine_t engine) { return engine ? engine->context : NULL; }

/* ---- models ---- */

static char *read_text(const char *path) {
  FILE *file = fopen(path, "rb");
  char *text = NULL;
  if (file && fseek(file, 0, SEEK_END) == 0) {
    const long bytes = ftell(file);
    rewind(file);
    text = bytes < 0 ? NULL : malloc((size_t)bytes + 1);
    if (text && fread(text, 1, (size_t)bytes, file) != (size_t)bytes) {
      free(text);
      text = NULL;
    }
    if (text) text[bytes] = 0;
  }
  if (file) fclose(file);
  return text;
}

static int has_doubles(cl_device_id device) {
  size_t bytes = 0;
  if (clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, 0, NULL, &bytes)) return 0;
  char *text = calloc(bytes + 1, 1);
  const int found = text && clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, bytes, text, NULL) == CL_SUCCESS && strstr(text, "cl_khr_fp64");
  free(text);
  return found;
}

static whence_status_t build(cl_model *model, const char *kernels_file) {
  const cl_device_id device = model->engine->device;
  char *text = read_text(kernels_file);
  if (!text) return whence_invalid_arguments;
  int32_t error = CL_SUCCESS;
  model->program = clCreateProgramWithSource(model->engine->context, 1, (const char **)&text, NULL, &error);
  if (!error) error = clBuildProgram(model->program, 1, &device, "-cl-std=CL1.2 -cl-mad-enable", NULL, NULL);
  if (error && model->program) {
    /* A status cannot say what the driver did not like. */
    char log[4096] = "";
    if (!clGetProgramBuildInfo(model->program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL))
      fprintf(stderr, "whence: the OpenCL driver does not compile %s:\n%s\n", kernels_file, log);
  }
  free(text);
  return wh_cl_status(error);
}

whence_status_t whence_opencl_model_create(
    whence_model_t *model, whence_engine_t engine, const whence_description_t *description, const char *kernels_file, const char *weights_file) {
  if (!model || !engine || !description || !kernels_file || !weights_file || !description->launch_plan) return whence_invalid_arguments;
  const wh_launch_plan *plan = description->launch_plan;
  size_t largest = 0;
  if (clGetDeviceInfo(engine->device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof largest, &largest, NULL)) return whence_invalid_arguments;
  if (largest < (size_t)plan->group_size || (plan->needs_doubles && !has_doubles(engine->device))) return whence_unimplemented;
  cl_model *made = calloc(1, sizeof *made);
  void *weights = NULL;
  if (!made) return whence_out_of_memory;
  made->base = (struct whence_model){&wh_cl_functions, description};
  made->engine = engine;
  whence_status_t status = wh_map_weights(description, weights_file, &weights);
  if (!status && weights) {
    int32_t error = CL_SUCCESS;
    made->weights = clCreateBuffer(engine->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, (size_t)description->weights_bytes, weights, &error);
    status = wh_cl_status(error);
  }
  if (description->n_variables)
    made->initial = weights;
  else
    wh_unmap_weights(description, weights);
  if (!status && plan->n_launches) status = build(made, kernels_file);
  if (status) {
    whence_model_destroy(&made->base);
    return status;
  }
  *model = &made->base;
  return whence_success;
}

void wh_cl_destroy_model(whence_model_t model) {
  cl_model *self = (cl_model *)model;
  if (self->program) clReleaseProgram(self->program);
  if (self->weights) clReleaseMemObject(self->weights);
  wh_unmap_weights(model->description, self->initial);
  free(self);
}

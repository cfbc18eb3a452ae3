/* What whence_opencl.c uses of OpenCL 1.2, so that it compiles where no OpenCL is installed. The functions themselves are those of the library that
   the application is linked with. */
#ifndef WHENCE_CL_H
#define WHENCE_CL_H

#include <stddef.h>
#include <stdint.h>

typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_event *cl_event;

enum {
  CL_OUT_OF_HOST_MEMORY = -6,
  CL_OUT_OF_RESOURCES = -5,
  CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
  CL_SUCCESS = 0,
  CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
  CL_DEVICE_EXTENSIONS = 0x1030,
  CL_CONTEXT_DEVICES = 0x1081,
  CL_QUEUE_CONTEXT = 0x1090,
  CL_QUEUE_DEVICE = 0x1091,
  CL_QUEUE_PROPERTIES = 0x1093,
  CL_MEM_SIZE = 0x1102,
  CL_MEM_CONTEXT = 0x1106,
  CL_PROGRAM_BUILD_LOG = 0x1183,
  CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,
  CL_PROFILING_COMMAND_START = 0x1282,
  CL_PROFILING_COMMAND_END = 0x1283,
};

#define CL_DEVICE_TYPE_GPU ((uint64_t)1 << 2)
#define CL_DEVICE_TYPE_ALL ((uint64_t)0xFFFFFFFF)
#define CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE ((uint64_t)1 << 0)
#define CL_QUEUE_PROFILING_ENABLE ((uint64_t)1 << 1)
#define CL_MEM_READ_WRITE ((uint64_t)1 << 0)
#define CL_MEM_READ_ONLY ((uint64_t)1 << 2)
#define CL_MEM_COPY_HOST_PTR ((uint64_t)1 << 5)

extern int32_t clGetPlatformIDs(uint32_t, cl_platform_id *, uint32_t *);
extern int32_t clGetDeviceIDs(cl_platform_id, uint64_t, uint32_t, cl_device_id *, uint32_t *);
extern int32_t clGetDeviceInfo(cl_device_id, uint32_t, size_t, void *, size_t *);
extern cl_context clCreateContext(const intptr_t *, uint32_t, const cl_device_id *, void (*)(const char *, const void *, size_t, void *), void *, int32_t *);
extern int32_t clRetainContext(cl_context);
extern int32_t clReleaseContext(cl_context);
extern int32_t clGetContextInfo(cl_context, uint32_t, size_t, void *, size_t *);
extern cl_command_queue clCreateCommandQueue(cl_context, cl_device_id, uint64_t, int32_t *);
extern int32_t clRetainCommandQueue(cl_command_queue);
extern int32_t clReleaseCommandQueue(cl_command_queue);
extern int32_t clGetCommandQueueInfo(cl_command_queue, uint32_t, size_t, void *, size_t *);
extern cl_mem clCreateBuffer(cl_context, uint64_t, size_t, void *, int32_t *);
extern int32_t clReleaseMemObject(cl_mem);
extern int32_t clGetMemObjectInfo(cl_mem, uint32_t, size_t, void *, size_t *);
extern cl_program clCreateProgramWithSource(cl_context, uint32_t, const char **, const size_t *, int32_t *);
extern int32_t clBuildProgram(cl_program, uint32_t, const cl_device_id *, const char *, void (*)(cl_program, void *), void *);
extern int32_t clGetProgramBuildInfo(cl_program, cl_device_id, uint32_t, size_t, void *, size_t *);
extern int32_t clReleaseProgram(cl_program);
extern cl_kernel clCreateKernel(cl_program, const char *, int32_t *);
extern int32_t clReleaseKernel(cl_kernel);
extern int32_t clSetKernelArg(cl_kernel, uint32_t, size_t, const void *);
extern int32_t clEnqueueNDRangeKernel(cl_command_queue, cl_kernel, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t, const cl_event *, cl_event *);
extern int32_t clEnqueueReadBuffer(cl_command_queue, cl_mem, uint32_t, size_t, size_t, void *, uint32_t, const cl_event *, cl_event *);
extern int32_t clEnqueueWriteBuffer(cl_command_queue, cl_mem, uint32_t, size_t, size_t, const void *, uint32_t, const cl_event *, cl_event *);
extern int32_t clEnqueueCopyBuffer(cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, uint32_t, const cl_event *, cl_event *);
extern int32_t clFlush(cl_command_queue);
extern int32_t clFinish(cl_command_queue);
extern int32_t clGetEventInfo(cl_event, uint32_t, size_t, void *, size_t *);
extern int32_t clGetEventProfilingInfo(cl_event, uint32_t, size_t, void *, size_t *);
extern int32_t clReleaseEvent(cl_event);

#endif

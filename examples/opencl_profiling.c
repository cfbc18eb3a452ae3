/* Profile a compiled model on an OpenCL queue of the application's own.

     whence compile model.onnx -o out/ --engine opencl
     cc examples/opencl_profiling.c -DMODEL=model -Iout -Lout -lmodel -lOpenCL -Wl,-rpath,out -o opencl_profiling
     ./opencl_profiling out/model.cl out/model.weights samples.csv
     whence db out/ --samples samples.csv --sql "FROM time_by_source"
*/
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT2(name) #name
#define TEXT(name) TEXT2(name)
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#include TEXT(MODEL.h)

static void check(int failed, const char *what) {
  if (!failed) return;
  fprintf(stderr, "%s: %d\n", what, failed);
  exit(1);
}

int main(int argc, char **argv) {
  if (argc < 3) return 1;
  whence_engine_t engine;
  check(whence_opencl_engine_create(&engine, NULL, NULL), "engine"); /* or on a device and a context that the application has */

  /* Create a queue with enabled profiling mode. */
  cl_int error;
  cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
  cl_command_queue queue = clCreateCommandQueueWithProperties(whence_opencl_get_context(engine), whence_opencl_get_device(engine), properties, &error);
  check(error, "queue");

  /* Create a model, and a stream with the queue. */
  whence_model_t model;
  whence_stream_t stream;
  check(whence_opencl_model_create(&model, engine, JOIN(MODEL, _description)(), argv[1], argv[2]), "model");
  check(whence_opencl_stream_create(&stream, model, queue), "stream");

  /* Memory of the device: the application's own kernels could fill the inputs and read the outputs. */
  int n_inputs = whence_input_count(model), n_outputs = whence_output_count(model);
  cl_mem *inputs = calloc((size_t)n_inputs + 1, sizeof *inputs), *outputs = calloc((size_t)n_outputs + 1, sizeof *outputs);
  for (int i = 0; i < n_inputs; i++) {
    size_t bytes = (size_t)whence_input_bytes(model, i);
    void *zeros = calloc(bytes + 1, 1); /* put your data here */
    inputs[i] = clCreateBuffer(whence_opencl_get_context(engine), CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes ? bytes : 1, zeros, &error);
    check(error, "input");
    free(zeros);
  }
  for (int i = 0; i < n_outputs; i++) {
    size_t bytes = (size_t)whence_output_bytes(model, i);
    outputs[i] = clCreateBuffer(whence_opencl_get_context(engine), CL_MEM_READ_WRITE, bytes ? bytes : 1, NULL, &error);
    check(error, "output");
  }

  /* Reset the profiler's state, execute twice, and wait for both executions to complete. */
  check(whence_reset_profiling(stream), "reset");
  check(whence_opencl_execute(stream, inputs, outputs), "execute");
  check(whence_opencl_execute(stream, inputs, outputs), "execute");
  check(whence_stream_wait(stream), "wait");

  /* Query profiling data: one number for each execution since the last reset. */
  int count = 0;
  check(whence_query_profiling_data(stream, whence_profiling_data_kind_time, &count, NULL), "count");
  uint64_t *nanoseconds = calloc((size_t)count + 1, sizeof *nanoseconds), calls, time;
  check(whence_query_profiling_data(stream, whence_profiling_data_kind_time, &count, nanoseconds), "times");
  for (int i = 0; i < count; i++) printf("execution %d: %llu ns\n", i, (unsigned long long)nanoseconds[i]);
  for (int i = 0; i < whence_step_count(model); i++)
    if (!whence_query_step(stream, i, &calls, &time) && calls)
      printf("%llu x %s: %llu ns\n", (unsigned long long)calls, whence_step_name(model, i), (unsigned long long)time);

  /* Samples as rows of table `sample` of the debug database. */
  int n_samples = 0;
  check(whence_query_samples(stream, &n_samples, NULL), "samples");
  whence_sample_t *samples = calloc((size_t)n_samples + 1, sizeof *samples);
  check(whence_query_samples(stream, &n_samples, samples), "samples");
  FILE *file = argc > 3 ? fopen(argv[3], "w") : NULL;
  if (file) {
    fprintf(file, "execution,kernel_id,begin_ns,end_ns\n");
    for (int i = 0; i < n_samples; i++)
      fprintf(file, "%u,%u,%llu,%llu\n", samples[i].execution, samples[i].step, (unsigned long long)samples[i].begin, (unsigned long long)samples[i].end);
    fclose(file);
  }
  check(whence_reset_profiling(stream), "reset");

  for (int i = 0; i < n_inputs; i++) clReleaseMemObject(inputs[i]);
  for (int i = 0; i < n_outputs; i++) clReleaseMemObject(outputs[i]);
  free(inputs);
  free(outputs);
  free(nanoseconds);
  free(samples);
  whence_stream_destroy(stream);
  whence_model_destroy(model);
  clReleaseCommandQueue(queue);
  whence_opencl_engine_destroy(engine);
  return 0;
}

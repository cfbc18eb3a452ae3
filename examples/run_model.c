/* Run any compiled model and ask where the time went.

     whence compile model.onnx -o out/
     cc examples/run_model.c -DMODEL=model -Iout -Lout -lmodel -Wl,-rpath,out -o run_model && ./run_model out/model.weights samples.csv
     whence db out/ --samples samples.csv --sql "FROM time_by_source"

   The samples are rows of table `sample` of the debug database out/model_debug.xml or out/model_debug.duckdb, which ties every kernel to the operators
   of model.onnx. */
#include <stdio.h>
#include <stdlib.h>

#define TEXT2(name) #name
#define TEXT(name) TEXT2(name)
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#include TEXT(MODEL.h)

static int write_samples(whence_stream_t stream, const char *path) {
  int count = 0;
  if (whence_query_samples(stream, &count, NULL)) return 1;
  whence_sample_t *samples = calloc((size_t)count + 1, sizeof *samples);
  FILE *file = fopen(path, "w");
  if (!samples || !file || whence_query_samples(stream, &count, samples)) return 1;
  fprintf(file, "execution,kernel_id,begin_ns,end_ns\n");
  for (int i = 0; i < count; i++)
    fprintf(file, "%u,%u,%llu,%llu\n", samples[i].execution, samples[i].step, (unsigned long long)samples[i].begin, (unsigned long long)samples[i].end);
  free(samples);
  return fclose(file) != 0;
}

int main(int argc, char **argv) {
  whence_model_t model;
  whence_stream_t stream;
  if (argc < 2 || whence_model_create(&model, JOIN(MODEL, _description)(), argv[1], 2)) return 1;
  if (whence_stream_create(&stream, model, whence_stream_profiling)) return 1;

  int n_inputs = whence_input_count(model), n_outputs = whence_output_count(model);
  void **inputs = calloc((size_t)n_inputs + 1, sizeof *inputs), **outputs = calloc((size_t)n_outputs + 1, sizeof *outputs);
  for (int i = 0; i < n_inputs; i++) inputs[i] = calloc((size_t)whence_input_bytes(model, i) + 1, 1); /* all zero: put your data here */
  for (int i = 0; i < n_outputs; i++) outputs[i] = calloc((size_t)whence_output_bytes(model, i) + 1, 1);

  for (int run = 0; run < 3; run++)
    if (whence_execute(stream, (const void *const *)inputs, outputs)) return 1;
  if (whence_stream_wait(stream)) return 1; /* now they are done, and the outputs are there */

  int count = 0;
  whence_query_profiling_data(stream, whence_profiling_data_kind_time, &count, NULL);
  uint64_t *times = calloc((size_t)count + 1, sizeof *times), calls, nanoseconds;
  whence_query_profiling_data(stream, whence_profiling_data_kind_time, &count, times);
  for (int i = 0; i < count; i++) printf("execution %d: %llu ns\n", i, (unsigned long long)times[i]);
  for (int i = 0; i < whence_step_count(model); i++)
    if (!whence_query_step(stream, i, &calls, &nanoseconds))
      printf("%llu x %s: %llu ns\n", (unsigned long long)calls, whence_step_name(model, i), (unsigned long long)nanoseconds);
  for (int i = 0; i < n_outputs; i++) printf("output %d: %lld bytes\n", i, (long long)whence_output_bytes(model, i));
  if (argc > 2 && write_samples(stream, argv[2])) return 1;

  for (int i = 0; i < n_inputs; i++) free(inputs[i]);
  for (int i = 0; i < n_outputs; i++) free(outputs[i]);
  free(inputs);
  free(outputs);
  free(times);
  whence_stream_destroy(stream);
  whence_model_destroy(model);
  return 0;
}

/* Two threads on one stream: each submits its own inputs again and again, waits now and then, and compares what it got. Linked with a model of one input and
   one output, both of FLOATS floats, called `net`. Usage: two_threads net.weights EXECUTIONS */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"

enum { BATCH = 4 };

static whence_stream_t stream;
static int executions;

typedef struct {
  pthread_t thread;
  float input[FLOATS];
  float expected[FLOATS];
  float outputs[BATCH][FLOATS];
  int wrong;
} caller;

static void submit(caller *self, float *output) {
  const void *inputs[] = {self->input};
  void *outputs[] = {output};
  if (whence_execute(stream, inputs, outputs)) self->wrong++;
}

static void *call(void *argument) {
  caller *self = argument;
  for (int i = 0; i < executions; i += BATCH) {
    memset(self->outputs, 0, sizeof self->outputs);
    for (int j = 0; j < BATCH; j++) submit(self, self->outputs[j]);
    if (whence_stream_wait(stream)) self->wrong++;
    for (int j = 0; j < BATCH; j++)
      for (int k = 0; k < FLOATS; k++) self->wrong += fabsf(self->outputs[j][k] - self->expected[k]) > 1e-5f;
  }
  return NULL;
}

int main(int argc, char **argv) {
  whence_model_t model;
  static caller callers[2];
  executions = argc > 2 ? atoi(argv[2]) : 0;
  if (argc < 3 || whence_model_create(&model, net_description(), argv[1], 2)) return 1;
  if (whence_stream_create(&stream, model, whence_stream_profiling)) return 1;
  for (int i = 0; i < 2; i++) {
    for (int k = 0; k < FLOATS; k++) callers[i].input[k] = (float)((k * 7 + i * 13) % 17) - 8.0f;
    submit(&callers[i], callers[i].expected);
    if (whence_stream_wait(stream)) return 1;
  }
  if (whence_reset_profiling(stream)) return 1;
  for (int i = 0; i < 2; i++) pthread_create(&callers[i].thread, NULL, call, &callers[i]);
  for (int i = 0; i < 2; i++) pthread_join(callers[i].thread, NULL);
  int entries = 0;
  const int status = whence_query_profiling_data(stream, whence_profiling_data_kind_time, &entries, NULL);
  const int apart = memcmp(callers[0].expected, callers[1].expected, sizeof callers[0].expected) != 0;
  printf("apart %d, wrong %d, status %d, entries %d\n", apart, callers[0].wrong + callers[1].wrong, status, entries);
  whence_stream_destroy(stream);
  whence_model_destroy(model);
  return 0;
}

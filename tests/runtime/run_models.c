/* Runs models that were compiled ahead of time, each in a library of its own, one after the other.

   run_models LIBRARY DESCRIPTION WEIGHTS INPUTS OUTPUTS ...

   INPUTS holds the bytes of all inputs in order; OUTPUTS is written likewise.
*/
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "whence.h"

#define FIND(library, name) __typeof__(name) *p_##name = (__typeof__(name) *)dlsym(library, #name)

static int fail(const char *what, const char *name) {
  fprintf(stderr, "%s: %s\n", name, what);
  return 1;
}

static int run(char **argv) {
  void *library = dlopen(argv[0], RTLD_NOW | RTLD_LOCAL);
  if (!library) return fail(dlerror(), argv[0]);
  const whence_description_t *(*description)(void) =
      (const whence_description_t *(*)(void))dlsym(library, argv[1]);
  FIND(library, whence_model_create);
  FIND(library, whence_stream_create);
  FIND(library, whence_execute);
  FIND(library, whence_stream_wait);
  FIND(library, whence_input_count);
  FIND(library, whence_output_count);
  FIND(library, whence_input_bytes);
  FIND(library, whence_output_bytes);
  FIND(library, whence_stream_destroy);
  FIND(library, whence_model_destroy);
  whence_model_t model;
  whence_stream_t stream;
  if (!description || p_whence_model_create(&model, description(), argv[2], 2))
    return fail("no model", argv[1]);
  if (p_whence_stream_create(&stream, model, 0)) return fail("no stream", argv[1]);
  int n_inputs = p_whence_input_count(model), n_outputs = p_whence_output_count(model);
  void **inputs = calloc((size_t)n_inputs + 1, sizeof *inputs);
  void **outputs = calloc((size_t)n_outputs + 1, sizeof *outputs);
  FILE *given = fopen(argv[3], "rb"), *made = fopen(argv[4], "wb");
  if (!inputs || !outputs || !given || !made) return fail("no files", argv[1]);
  for (int i = 0; i < n_inputs; i++) {
    size_t bytes = (size_t)p_whence_input_bytes(model, i);
    inputs[i] = malloc(bytes + 1);
    if (fread(inputs[i], 1, bytes, given) != bytes) return fail("too few inputs", argv[1]);
  }
  for (int i = 0; i < n_outputs; i++) outputs[i] = calloc((size_t)p_whence_output_bytes(model, i) + 1, 1);
  if (p_whence_execute(stream, (const void *const *)inputs, outputs)) return fail("execute", argv[1]);
  if (p_whence_stream_wait(stream)) return fail("wait", argv[1]);
  for (int i = 0; i < n_outputs; i++)
    fwrite(outputs[i], 1, (size_t)p_whence_output_bytes(model, i), made);
  p_whence_stream_destroy(stream);
  p_whence_model_destroy(model);
  return fclose(given) || fclose(made);
}

int main(int argc, char **argv) {
  for (int i = 1; i + 4 < argc; i += 5)
    if (run(argv + i)) return 1;
  return 0;
}

/* The variables of a stream: what outlives an execution. */
#include "whence.h"

#include <stdlib.h>
#include <string.h>

#include "whence_state.h"

void *wh_block(int64_t bytes) {
  void *memory = NULL;
  return posix_memalign(&memory, WH_LINE, (size_t)(bytes > 0 ? bytes : 1)) ? NULL : memory;
}

void **wh_state_create(const whence_description_t *description) {
  const int n = description->n_variables;
  void **state = calloc(2 * (size_t)n + 1, sizeof *state);
  for (int i = 0; state && i < n; i++) {
    const wh_variable *variable = &description->variables[i];
    state[i] = wh_block(variable->bytes);
    state[n + i] = variable->in_place ? state[i] : wh_block(variable->bytes);
    if (!state[i] || !state[n + i]) {
      wh_state_free(description, state);
      return NULL;
    }
  }
  return state;
}

void wh_state_free(const whence_description_t *description, void **state) {
  const int n = description->n_variables;
  for (int i = 0; state && i < n; i++) {
    if (state[n + i] != state[i]) free(state[n + i]);
    free(state[i]);
  }
  free(state);
}

void wh_state_reset(const whence_description_t *description, void *const *state, const void *weights) {
  for (int i = 0; i < description->n_variables; i++) {
    const wh_variable *variable = &description->variables[i];
    const int64_t size = variable->initial_bytes;
    if (!size) memset(state[i], 0, (size_t)variable->bytes);
    for (int64_t at = 0; size && at < variable->bytes; at += size)
      memcpy((char *)state[i] + at, (const char *)weights + variable->initial_offset, (size_t)size);
  }
}

void wh_state_advance(const whence_description_t *description, void **state) {
  const int n = description->n_variables;
  for (int i = 0; i < n; i++) {
    void *before = state[i];
    state[i] = state[n + i];
    state[n + i] = before;
  }
}

/* The variables of a stream: what outlives an execution. Written for whence*.c, not for applications. */
#ifndef WHENCE_STATE_H
#define WHENCE_STATE_H

#include "whence_description.h"

/* Memory of so many bytes that begins on a cache line; NULL when there is none. */
void *wh_block(int64_t bytes);

/* The addresses of the variables as they are, then of where an execution writes what they will be. NULL when memory ran out. */
void **wh_state_create(const whence_description_t *description);
void wh_state_free(const whence_description_t *description, void **state);

/* Gives every variable its initial value. */
void wh_state_reset(const whence_description_t *description, void *const *state, const void *weights);

/* After an execution: what it wrote is what the variables are. */
void wh_state_advance(const whence_description_t *description, void **state);

#endif

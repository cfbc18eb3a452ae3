/* How a run uses a thread pool: it enters, has its steps done one after the other, and leaves. */
#ifndef WHENCE_POOL_H
#define WHENCE_POOL_H

#include "whence_runtime.h"

struct spare;

/* A run that has the workers, or, where somebody else has them, scratch memory to do all work alone. */
typedef struct {
  wh_pool *pool;
  struct spare *own; /* NULL: it has the workers */
  wh_gang *gang;     /* where kernels report faults */
} wh_session;

/* Returns 0, or WH_NO_MEMORY. Never waits. */
int wh_pool_enter(wh_pool *pool, int64_t scratch_bytes, wh_session *session);

/* One step, done when it returns. Returns when the caller had nothing left to do and began to wait for other threads, or 0 when it did not have to; the
   time is taken only if `timed`. `busy`, if not NULL, is filled by each worker that has a part in it. */
uint64_t wh_pool_do(const wh_session *session, const wh_step *step, void *const *buf, int64_t threads, int timed, wh_busy *busy);

/* Does the run have one thread, if it is to use at most so many (0: any number)? */
int wh_pool_is_alone(const wh_session *session, int64_t threads);

/* Work items [begin, end) of a step, in a run that is alone. */
void wh_pool_do_part(const wh_session *session, const wh_step *step, void *const *buf, int64_t begin, int64_t end);

void wh_pool_leave(const wh_session *session);

#endif

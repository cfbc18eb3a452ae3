/* Newer compilers call ThreadSanitizer's functions of memory by names that older runtimes do not have. Those of the C library are watched by every runtime. */
#include <string.h>

void *__tsan_memcpy(void *to, const void *from, size_t size) { return memcpy(to, from, size); }
void *__tsan_memmove(void *to, const void *from, size_t size) { return memmove(to, from, size); }
void *__tsan_memset(void *at, int value, size_t size) { return memset(at, value, size); }

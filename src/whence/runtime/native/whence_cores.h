/* On how many cores threads of this process can run at the same time. */
#ifndef WHENCE_CORES_H
#define WHENCE_CORES_H

#include <stdint.h>

/* Those that the system lets the process use, or as many as its control group's quota allows. At least 1. */
int32_t wh_usable_cores(void);

#endif

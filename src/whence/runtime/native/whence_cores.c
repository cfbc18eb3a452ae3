#ifdef __linux__
#define _GNU_SOURCE /* for sched_getaffinity */
#endif
#include "whence_cores.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

#ifdef __linux__
/* The numbers at the start of a control group's file, or 0: there is no such file, or it says "max". */
static int numbers_of(const char *folder, const char *name, long long *first, long long *second) {
  char path[4300], text[64];
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return 0;
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  const int found = fgets(text, sizeof text, file) ? sscanf(text, "%lld %lld", first, second) : 0;
  fclose(file);
  return found > 0 ? found : 0;
}

/* Cores that a control group's quota allows, by either version of control groups; `most` where there is none. */
static int32_t quota_of(const char *folder, int32_t most) {
  long long quota = 0, period = 0, none = 0;
  const int is_limited = numbers_of(folder, "cpu.max", &quota, &period) == 2 ||
                         (numbers_of(folder, "cpu.cfs_quota_us", &quota, &none) && numbers_of(folder, "cpu.cfs_period_us", &period, &none));
  if (!is_limited || quota <= 0 || period <= 0) return most;
  const long long allowed = (quota + period - 1) / period;
  return allowed < most ? (int32_t)allowed : most;
}

/* Does a list with commas name the controller of processor time? */
static int has_cpu(const char *controllers) {
  for (const char *each = controllers; *each; each += strcspn(each, ",")) {
    each += *each == ',';
    if (!strncmp(each, "cpu", 3) && (each[3] == ',' || !each[3])) return 1;
  }
  return 0;
}

/* The least that this process's control group and those above it allow. */
static int32_t control_group_cores(int32_t most) {
  char line[4096], path[4200];
  FILE *file = fopen("/proc/self/cgroup", "re");
  if (!file) return most;
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    char *controllers = strchr(line, ':'), *folder = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!folder) continue;
    *folder++ = 0;
    if (*++controllers && !has_cpu(controllers)) continue;
    /* The second version has one tree, the first one for each controller. */
    const int top = snprintf(path, sizeof path, "/sys/fs/cgroup%s", *controllers ? "/cpu" : "");
    snprintf(path + top, sizeof path - (size_t)top, "%s", folder);
    for (char *end = path + strlen(path); end && end >= path + top; end = strrchr(path, '/')) {
      *end = 0;
      most = quota_of(path, most);
    }
  }
  fclose(file);
  return most;
}
#endif

int32_t wh_usable_cores(void) {
#ifdef __linux__
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return control_group_cores((int32_t)CPU_COUNT(&allowed));
#endif
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores > 0 ? (int32_t)cores : 1;
}

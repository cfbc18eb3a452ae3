#include <stdint.h>

/* Of Python: an element of a tuple, which goes on being the tuple's. */
typedef const void *wh_element_of(const void *tuple, intptr_t position);
/* Of PyTorch: a tensor is handed over as the address of the pointer to it. */
typedef int32_t wh_address_of(const void *const *tensor, const void **address);
typedef int64_t wh_version_of(const void *const *tensor);

typedef struct {
  intptr_t position;
  const void *object, *tensor, *address;
  /* Negative: it has none. */
  int64_t version;
} wh_parameter;

enum { LINE = 64, TENSOR_BYTES = 3 * LINE };

/* Whether each parameter is where it was among the arguments, lies where it lay, and was not written to since. */
int32_t wh_are_unchanged(const void *arguments, const wh_parameter *parameters, int64_t count,
                         wh_element_of *element_of, wh_address_of *address_of, wh_version_of *version_of) {
  /* A model's run has driven the tensors out of the caches: all are asked for before the first is looked at. */
  for (int64_t i = 0; i < count; i++) {
    if (element_of(arguments, parameters[i].position) != parameters[i].object) return 0;
    for (int64_t byte = 0; byte < TENSOR_BYTES; byte += LINE)
      __builtin_prefetch((const char *)parameters[i].tensor + byte);
  }
  for (int64_t i = 0; i < count; i++) {
    const wh_parameter *each = &parameters[i];
    const void *address = 0;
    if (address_of(&each->tensor, &address) || address != each->address) return 0;
    if (each->version >= 0 && version_of(&each->tensor) != each->version) return 0;
  }
  return 1;
}

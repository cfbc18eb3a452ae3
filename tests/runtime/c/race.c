/* Two threads that add to one number without asking each other. */
#include <pthread.h>
#include <stdio.h>

static int number;

static void *add(void *unused) {
  for (int i = 0; i < 1000; i++) number++;
  return unused;
}

int main(void) {
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, add, NULL);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  printf("%d\n", number > 0);
  return 0;
}

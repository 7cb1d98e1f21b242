/* A CUDA program as somebody else writes it, for scripted_driver.c: what its first argument says, then the end that the second names.
 * Says how long it waited for its context, and what it launched from the first call on.
 *
 *   launches ranges|plain|threads|contexts return|exit|_exit [TOKENS [MILLISECONDS between two]]
 */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint32_t cuInit(uint32_t);
uint32_t cuDevicePrimaryCtxRetain(void **, int);
uint32_t cuCtxCreate_v2(void **, uint32_t, int);
uint32_t cuCtxDestroy_v2(void *);
uint32_t cuLaunchKernel(const char *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, void *, void **, void **);
uint32_t cuMemcpyDtoH_v2(void *, uint64_t, size_t);

static int tokens = 3, between_ms, has_ranges;
static atomic_int kernels, copies, done;

static double ms(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1e3 + at.tv_nsec / 1e6;
}

static void sure(uint32_t status) {
  if (status) fprintf(stderr, "error %u of the driver\n", status), exit(9);
}

static void push(const char *name) {
  if (has_ranges) nvtxRangePushA(name);
}

static void pop(void) {
  if (has_ranges) nvtxRangePop();
}

static void launch(const char *name) {
  sure(cuLaunchKernel(name, 64, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL));
  kernels++;
}

/* decode › block 0, block 1, of three kernels each, and one more, whose result is fetched. */
static void decode(void) {
  char result[4096];
  for (int token = 0; token < tokens; token++) {
    push("decode");
    for (int block = 0; block < 2; block++) {
      char name[16];
      snprintf(name, sizeof name, "block %d", block);
      push(name);
      launch("_Z4normPf");
      launch("_Z6linearPf");
      launch("_Z3addPf");
      pop();
    }
    launch("_Z6samplePf");
    sure(cuMemcpyDtoH_v2(result, 0, sizeof result));
    copies++;
    pop();
    if (between_ms) usleep(between_ms * 1000);
  }
}

static void *with_a_context_of_its_own(void *_) {
  void *context;
  sure(cuCtxCreate_v2(&context, 0, 0));
  decode();
  return _;
}

static void *makes_contexts(void *_) {
  while (!done) {
    void *context;
    sure(cuCtxCreate_v2(&context, 0, 0));
    sure(cuCtxDestroy_v2(context));
  }
  return _;
}

int main(int count, char **args) {
  const char *what = count > 1 ? args[1] : "plain", *end = count > 2 ? args[2] : "return";
  if (count > 3) tokens = atoi(args[3]);
  if (count > 4) between_ms = atoi(args[4]);
  has_ranges = !strcmp(what, "ranges") || !strcmp(what, "threads");
  void *context;
  pthread_t threads[4];
  sure(cuInit(0));
  double asked = ms();
  if (!strcmp(what, "threads")) {
    for (int n = 0; n < 4; n++) pthread_create(&threads[n], NULL, with_a_context_of_its_own, NULL);
    for (int n = 0; n < 4; n++) pthread_join(threads[n], NULL);
  } else {
    sure(cuDevicePrimaryCtxRetain(&context, 0));
    printf("context after %.0f ms\n", ms() - asked);
    if (!strcmp(what, "contexts")) pthread_create(&threads[0], NULL, makes_contexts, NULL);
    decode();
    done = 1;
    if (!strcmp(what, "contexts")) pthread_join(threads[0], NULL);
  }
  printf("launched %d kernels, %d copies\n", kernels, copies);
  fflush(stdout);
  launch("_Z4lastPf");
  if (!strcmp(end, "exit")) exit(3);
  if (!strcmp(end, "_exit")) _exit(4);
  return 5;
}

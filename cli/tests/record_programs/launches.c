/* A CUDA program as somebody else writes it, for scripted_driver.c: what its first argument says, then the end that the second names.
 * Says how long it waited for its context, and what it launched from the first call on.
 *
 *   launches ranges|plain|enclosed|threads|contexts|first|forks|cancelled END [TOKENS [MILLISECONDS between two]]
 *
 * END: return|exit|_exit|quick_exit, at_once (two threads call _exit), watched (one does while main returns), exec (it runs itself
 * anew, plainly). `first` makes a range before it starts the driver, and loads what SECOND_CUPTI names between the two; `forks` has
 * its child start the driver; a thread of `cancelled` is cancelled while it makes a context.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

static void *ends(void *_) {
  (void)_;
  _exit(4);
}

/* After main has begun to return. */
static void *watches(void *_) {
  usleep(20000);
  return ends(_);
}

static void *is_cancelled(void *_) {
  void *context;
  sure(cuCtxCreate_v2(&context, 0, 0));
  pthread_testcancel();
  return _;
}

/* A child that was forked after a range starts the driver: how long it waits for its context. */
static void fork_one(void) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    void *context;
    double asked = ms();
    sure(cuInit(0));
    sure(cuCtxCreate_v2(&context, 0, 0));
    printf("child's context after %.0f ms\n", ms() - asked);
    nvtxRangePushA("of the child");
    nvtxRangePop();
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, NULL, 0);
}

int main(int count, char **args) {
  const char *what = count > 1 ? args[1] : "plain", *end = count > 2 ? args[2] : "return";
  if (count > 3) tokens = atoi(args[3]);
  if (count > 4) between_ms = atoi(args[4]);
  has_ranges = !strcmp(what, "ranges") || !strcmp(what, "threads") || !strcmp(what, "first");
  void *context;
  pthread_t threads[4];
  if (!strcmp(what, "first") || !strcmp(what, "forks")) {
    nvtxRangePushA("before");
    usleep(100000);
    nvtxRangePop();
    if (getenv("SECOND_CUPTI") && !dlopen(getenv("SECOND_CUPTI"), RTLD_NOW)) return 8;
  }
  if (!strcmp(what, "forks")) fork_one();
  sure(cuInit(0));
  double asked = ms();
  if (!strcmp(what, "cancelled")) {
    pthread_create(&threads[0], NULL, is_cancelled, NULL);
    usleep(200000);
    pthread_cancel(threads[0]);
    void *ended;
    pthread_join(threads[0], &ended);
    if (ended != PTHREAD_CANCELED) return 8;
  } else if (!strcmp(what, "threads")) {
    for (int n = 0; n < 4; n++) pthread_create(&threads[n], NULL, with_a_context_of_its_own, NULL);
    for (int n = 0; n < 4; n++) pthread_join(threads[n], NULL);
  } else {
    sure(cuDevicePrimaryCtxRetain(&context, 0));
    printf("context after %.0f ms\n", ms() - asked);
    if (!strcmp(what, "contexts")) pthread_create(&threads[0], NULL, makes_contexts, NULL);
    if (!strcmp(what, "enclosed")) nvtxRangePushA("generate");
    decode();
    if (!strcmp(what, "enclosed")) nvtxRangePop();
    done = 1;
    if (!strcmp(what, "contexts")) pthread_join(threads[0], NULL);
  }
  printf("launched %d kernels, %d copies\n", kernels, copies);
  fflush(stdout);
  if (strcmp(what, "cancelled")) launch("_Z4lastPf");
  if (!strcmp(end, "exit")) exit(3);
  if (!strcmp(end, "_exit")) _exit(4);
  if (!strcmp(end, "quick_exit")) quick_exit(6);
  if (!strcmp(end, "at_once")) {
    for (int n = 0; n < 2; n++) pthread_create(&threads[n], NULL, ends, NULL);
    pause();
  }
  if (!strcmp(end, "watched")) pthread_create(&threads[0], NULL, watches, NULL);
  if (!strcmp(end, "exec")) {
    char *again[] = {args[0], "plain", "return", "5", NULL};
    execv("/no/such/program", again);
    execv(args[0], again);
  }
  return 5;
}

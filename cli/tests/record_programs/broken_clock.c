/* A program in which asking for the time fails while the driver loads its tool: whatever that does then panics in Rust's standard library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static __thread int is_broken;

/* Found before the C library's. */
int clock_gettime(clockid_t clock, struct timespec *at) {
  if (is_broken) return errno = EINVAL, -1;
  return syscall(SYS_clock_gettime, clock, at);
}

int main(void) {
  const char *path = getenv("CUDA_INJECTION64_PATH");
  void *library = path ? dlopen(path, RTLD_NOW) : NULL;
  int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
  is_broken = 1;
  if (initialize) initialize();
  is_broken = 0;
  fprintf(stderr, initialize ? "goes on\n" : "alone\n");
  return 5;
}

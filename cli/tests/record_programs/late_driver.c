/* A program that makes a range before it loads the driver, which its argument names, and launches three kernels after that. */
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *driver;

static void *of_driver(const char *name) {
  void *found = driver ? dlsym(driver, name) : NULL;
  if (!found) fprintf(stderr, "no %s\n", name), exit(9);
  return found;
}

int main(int count, char **args) {
  if (count != 2) return 9;
  nvtxRangePushA("before");
  /* What records may look for CUPTI meanwhile: the program's own is not there yet. */
  usleep(300000);
  nvtxRangePop();
  driver = dlopen(args[1], RTLD_NOW);
  void *context;
  uint32_t (*init)(uint32_t) = (uint32_t (*)(uint32_t))of_driver("cuInit");
  uint32_t (*retain)(void **, int) = (uint32_t (*)(void **, int))of_driver("cuDevicePrimaryCtxRetain");
  uint32_t (*launch)(const char *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, void *, void **, void **) =
      (uint32_t (*)(const char *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, void *, void **, void **))
          of_driver("cuLaunchKernel");
  if (init(0) || retain(&context, 0)) return 9;
  nvtxRangePushA("decode");
  for (int n = 0; n < 3; n++)
    if (launch("_Z4normPf", 64, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL)) return 9;
  nvtxRangePop();
  return 5;
}

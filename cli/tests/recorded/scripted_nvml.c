/* NVML without a GPU: what candlescope's collector asks of it, for one GPU, the one of `sdk/core/tests/scripted`, on
 * which the tests' sessions work. By variables:
 *
 *   SCRIPTED_NVML_GPUS    how many GPUs there are: one, or none
 *   SCRIPTED_NVML_PLAIN   set: it tells neither its highest clock nor why clocks are low
 *
 * Its clocks are held down by the power limit, and its counter of energy counts half of what its power says.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, NOT_SUPPORTED = 3, UNSIGNED = 1, WATTS = 300, CORES = 132 * 128 };

typedef void *gpu;

struct memory {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct utilization {
  unsigned gpu, memory;
};
struct field {
  unsigned id, scope;
  long long time, latency;
  unsigned type;
  int outcome;
  union {
    double d;
    unsigned u;
    unsigned long long ull;
  } value;
};

static int plain(void) { return getenv("SCRIPTED_NVML_PLAIN") != NULL; }

static int number(unsigned *into, unsigned value) {
  *into = value;
  return OK;
}

static int text(char *into, unsigned room, const char *value) {
  strncpy(into, value, room - 1);
  into[room - 1] = 0;
  return OK;
}

int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int error) { return error ? "scripted" : "none"; }
int nvmlSystemGetDriverVersion(char *into, unsigned room) { return text(into, room, "580.82.07"); }
int nvmlSystemGetCudaDriverVersion_v2(int *into) {
  *into = 13000;
  return OK;
}

int nvmlDeviceGetCount_v2(unsigned *into) {
  const char *gpus = getenv("SCRIPTED_NVML_GPUS");
  return number(into, gpus ? (unsigned)atoi(gpus) : 1);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu *into) {
  static int one;
  (void)index;
  *into = &one;
  return OK;
}
int nvmlDeviceGetUUID(gpu device, char *into, unsigned room) {
  (void)device;
  return text(into, room, "GPU-paper");
}
int nvmlDeviceGetName(gpu device, char *into, unsigned room) {
  (void)device;
  return text(into, room, "NVIDIA H200");
}
int nvmlDeviceGetCudaComputeCapability(gpu device, int *major, int *minor) {
  (void)device;
  *major = 9;
  *minor = 0;
  return OK;
}
int nvmlDeviceGetNumGpuCores(gpu device, unsigned *into) {
  (void)device;
  return number(into, CORES);
}
int nvmlDeviceGetMaxClockInfo(gpu device, unsigned of, unsigned *into) {
  (void)device, (void)of;
  return plain() ? NOT_SUPPORTED : number(into, 1980);
}
int nvmlDeviceGetEnforcedPowerLimit(gpu device, unsigned *into) {
  (void)device;
  return number(into, 700000);
}

int nvmlDeviceGetClockInfo(gpu device, unsigned of, unsigned *into) {
  (void)device, (void)of;
  return number(into, 990);
}
int nvmlDeviceGetMemoryInfo_v2(gpu device, struct memory *into) {
  (void)device;
  into->total = 140ull << 30;
  into->reserved = 1ull << 30;
  into->used = 20ull << 30;
  into->free = into->total - into->reserved - into->used;
  return OK;
}
int nvmlDeviceGetUtilizationRates(gpu device, struct utilization *into) {
  (void)device;
  into->gpu = 80;
  into->memory = 40;
  return OK;
}
int nvmlDeviceGetTemperature(gpu device, unsigned sensor, unsigned *into) {
  (void)device, (void)sensor;
  return number(into, 55);
}
int nvmlDeviceGetPowerUsage(gpu device, unsigned *into) {
  (void)device;
  return number(into, WATTS * 1000);
}
int nvmlDeviceGetFieldValues(gpu device, int count, struct field *fields) {
  (void)device;
  /* Those of power are all that are asked for. */
  for (int at = 0; at < count; at++) {
    fields[at].type = UNSIGNED;
    fields[at].outcome = OK;
    fields[at].value.u = WATTS * 1000;
  }
  return OK;
}
int nvmlDeviceGetTotalEnergyConsumption(gpu device, unsigned long long *into) {
  struct timespec now;
  (void)device;
  clock_gettime(CLOCK_MONOTONIC, &now);
  /* In millijoules: milliseconds times watts. */
  *into = (now.tv_sec * 1000ull + now.tv_nsec / 1000000) * (WATTS / 2);
  return OK;
}
int nvmlDeviceGetSupportedClocksThrottleReasons(gpu device, unsigned long long *into) {
  (void)device;
  *into = 0xff;
  return plain() ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(gpu device, unsigned long long *into) {
  (void)device;
  *into = 0x4;
  return plain() ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetCurrPcieLinkGeneration(gpu device, unsigned *into) {
  (void)device;
  return number(into, 5);
}
int nvmlDeviceGetCurrPcieLinkWidth(gpu device, unsigned *into) {
  (void)device;
  return number(into, 16);
}
int nvmlDeviceGetPcieThroughput(gpu device, unsigned direction, unsigned *into) {
  (void)device, (void)direction;
  return number(into, 1000);
}

/* A driver and a CUPTI without a device, in one library: what programs, candlescope's library and its recorder of kernels call of the two.
 * As NVIDIA's do, it loads what CUDA_INJECTION64_PATH names in cuInit, calls back at the beginning and end of calls that are followed, and
 * writes records of what was launched, while these are on, into buffers that it asks for. What would crash NVIDIA's ends the program here,
 * with a line that says so. By variables:
 *
 *   SCRIPTED_SUBSCRIBE    what cuptiSubscribe answers, such as 39: another client has CUPTI
 *   SCRIPTED_CONTEXT_MS   how long making a context takes, and ending one
 *   SCRIPTED_NESTED       set: making one begins with a call within the call, which has callbacks of its own and takes as long
 *   SCRIPTED_SWITCH_MS    how long switching records of a kind on or off takes
 *   SCRIPTED_BUFFERS_MS   how long CUPTI takes when it is given its buffers, which it is while a session starts
 *   SCRIPTED_FLUSH_MS     how long handing over buffers takes
 *   SCRIPTED_LATE         set: a record comes only when CUPTI leaves, and what names its kernel leaves with it
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { DRIVER_API = 1, CALLS = 1024, KINDS = 64, MEMCPY = 1, KERNEL = 10, KERNEL_BYTES = 216, MEMCPY_BYTES = 96, END_OF_RECORDS = 12 };

static void broken(const char *what) {
  fprintf(stderr, "scripted driver: %s\n", what);
  abort();
}

static void take(const char *variable) {
  const char *ms = getenv(variable);
  if (ms) usleep(atoi(ms) * 1000);
}

static uint64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  return at.tv_sec * 1000000000ull + at.tv_nsec;
}

/* The process: before cuInit, within it, after it, and after the driver has ended. */
static atomic_int state;
static atomic_int contexts, changing, switching;

/* ---- CUPTI ---- */

/* CUpti_CallbackData. */
struct call {
  uint32_t site;
  const char *function;
  const void *parameters;
  void *result;
  const char *symbol;
  void *context;
  uint32_t context_uid;
  uint64_t *shared;
  uint32_t correlation;
};

typedef void (*called_t)(void *, uint32_t, uint32_t, const struct call *);
typedef void (*requested_t)(uint8_t **, size_t *, size_t *);
typedef void (*completed_t)(void *, uint32_t, uint8_t *, size_t, size_t);

static called_t called;
static void *called_with;
static atomic_char followed[CALLS], recorded[KINDS];
static requested_t requested;
static completed_t completed;
static atomic_uint correlations;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *buffer;
static size_t room, used, dropped;

static void may_be_called(void) {
  if (state == 3) broken("CUPTI was called after the driver had ended");
}

uint32_t cuptiGetVersion(uint32_t *version) {
  /* Not where it is asked in cuInit, where the program waits for the answer. */
  if (state == 2) take("SCRIPTED_VERSION_MS");
  *version = 130001;
  return 0;
}

uint32_t cuptiGetTimestamp(uint64_t *at) {
  *at = now();
  return 0;
}

uint32_t cuptiSubscribe(void **subscriber, called_t function, void *with) {
  may_be_called();
  if (getenv("SCRIPTED_SUBSCRIBE")) return atoi(getenv("SCRIPTED_SUBSCRIBE"));
  if (called) return 39;
  called = function;
  called_with = with;
  *subscriber = &called;
  return 0;
}

uint32_t cuptiUnsubscribe(void *subscriber) {
  may_be_called();
  if (subscriber != &called || !called) return 1;
  memset(followed, 0, sizeof followed);
  called = NULL;
  return 0;
}

/* Those whose numbers are those of cupti_driver_cbid.h; a program calls no others of this driver. */
uint32_t cuptiGetCallbackName(uint32_t domain, uint32_t cbid, const char **name) {
  *name = NULL;
  if (domain == DRIVER_API) switch (cbid) {
      case 278: *name = "cuMemcpyDtoH_v2"; break;
      case 307: *name = "cuLaunchKernel"; break;
      case 235: *name = "cuCtxCreate_v2"; break;
      case 322: *name = "cuCtxDestroy_v2"; break;
      case 386: *name = "cuDevicePrimaryCtxRetain"; break;
    }
  return *name ? 0 : 1;
}

uint32_t cuptiEnableCallback(uint32_t on, void *subscriber, uint32_t domain, uint32_t cbid) {
  may_be_called();
  if (subscriber != &called || !called) return 1;
  if (domain == DRIVER_API && cbid < CALLS) followed[cbid] = on;
  return 0;
}

static uint32_t turn(uint32_t kind, int on) {
  const char *beside = "records were switched while a context was being made or ended";
  may_be_called();
  if (kind >= KINDS) return 1;
  switching++;
  if (changing) broken(beside);
  take("SCRIPTED_SWITCH_MS");
  if (changing) broken(beside);
  recorded[kind] = on;
  switching--;
  return 0;
}

uint32_t cuptiActivityEnable(uint32_t kind) { return turn(kind, 1); }
uint32_t cuptiActivityDisable(uint32_t kind) { return turn(kind, 0); }

uint32_t cuptiActivityRegisterCallbacks(requested_t request, completed_t complete) {
  may_be_called();
  take("SCRIPTED_BUFFERS_MS");
  requested = request;
  completed = complete;
  return 0;
}

static void hand_over(void) { /* with the lock */
  if (buffer) completed(NULL, 0, buffer, room, used);
  buffer = NULL;
}

uint32_t cuptiActivityFlushAll(uint32_t flags) {
  (void)flags;
  may_be_called();
  take("SCRIPTED_FLUSH_MS");
  pthread_mutex_lock(&lock);
  hand_over();
  pthread_mutex_unlock(&lock);
  return 0;
}

static void put(void *address, size_t at, const void *value, size_t bytes) { memcpy((uint8_t *)address + at, value, bytes); }

/* Runs for 2 µs, 5 µs after the call. */
static void record(uint32_t kind, size_t bytes, uint32_t correlation, size_t correlation_at, const char *name) {
  if (!recorded[kind]) return;
  uint64_t begun = now() + 5000, ended = begun + 2000, device = 0, stream = 7;
  pthread_mutex_lock(&lock);
  if (buffer && used + bytes > room) hand_over();
  if (!buffer) {
    size_t most;
    requested(&buffer, &room, &most);
    used = 0;
  }
  if (buffer && bytes <= room) {
    uint8_t *at = buffer + used;
    memset(at, 0, bytes);
    put(at, 0, &kind, 4);
    put(at, 16, &begun, 8);
    put(at, 24, &ended, 8);
    put(at, kind == KERNEL ? 40 : 32, &device, 4);
    put(at, kind == KERNEL ? 48 : 40, &stream, 4);
    put(at, correlation_at, &correlation, 4);
    if (kind == KERNEL) {
      uint32_t sizes[] = {64, 1, 1, 256, 1, 1};
      put(at, 52, sizes, sizeof sizes);
      put(at, 104, &name, sizeof name);
    } else {
      uint64_t copied = 4096;
      at[4] = 2; /* from the device to the host */
      put(at, 8, &copied, 8);
    }
    used += bytes;
  } else {
    dropped++;
  }
  pthread_mutex_unlock(&lock);
}

uint32_t cuptiActivityGetNextRecord(uint8_t *from, size_t valid, uint8_t **at) {
  uint8_t *next = from;
  if (*at) {
    uint32_t kind;
    memcpy(&kind, *at, 4);
    next = *at + (kind == KERNEL ? KERNEL_BYTES : MEMCPY_BYTES);
  }
  if (next >= from + valid) return END_OF_RECORDS;
  *at = next;
  return 0;
}

uint32_t cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *number) {
  (void)context, (void)stream;
  pthread_mutex_lock(&lock);
  *number = dropped;
  dropped = 0;
  pthread_mutex_unlock(&lock);
  return 0;
}

uint32_t cuptiActivitySetAttribute(uint32_t attribute, size_t *size, void *value) {
  (void)attribute, (void)size, (void)value;
  return 0;
}

uint32_t cuptiFinalize(void) {
  may_be_called();
  char *page = NULL;
  if (getenv("SCRIPTED_LATE")) {
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(page, "_Z4latePf");
    recorded[KERNEL] = 1;
    record(KERNEL, KERNEL_BYTES, ++correlations, 92, page);
  }
  pthread_mutex_lock(&lock);
  hand_over();
  memset(recorded, 0, sizeof recorded);
  pthread_mutex_unlock(&lock);
  /* Who reads the name from here on crashes. */
  if (page) mprotect(page, 4096, PROT_NONE);
  return 0;
}

/* A call of the program: `work` between the callbacks at its beginning and at its end, if it is followed. */
#define CALL(cbid, arguments, work)                                                                      \
  uint64_t shared = 0;                                                                                   \
  struct call data = {0, NULL, arguments, NULL, NULL, NULL, contexts ? 1 : 0, &shared, ++correlations}; \
  called_t tell = followed[cbid] ? called : NULL;                                                        \
  if (tell) tell(called_with, DRIVER_API, cbid, &data);                                                  \
  work;                                                                                                  \
  data.site = 1;                                                                                         \
  tell = followed[cbid] ? called : NULL;                                                                 \
  if (tell) tell(called_with, DRIVER_API, cbid, &data);                                                  \
  return 0

/* ---- the driver ---- */

static void end(void) { state = 3; }

uint32_t cuInit(uint32_t flags) {
  static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
  (void)flags;
  if (state == 1) broken("cuInit was called within cuInit");
  pthread_mutex_lock(&once);
  if (state == 0) {
    state = 1;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (initialize) initialize();
    atexit(end);
    state = 2;
  }
  pthread_mutex_unlock(&once);
  return 0;
}

/* CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_DEINITIALIZED. */
static uint32_t is_up(void) { return state < 2 ? 3 : state == 2 ? 0 : 4; }

uint32_t cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}

uint32_t cuDeviceGetCount(int *count) {
  *count = 1;
  return is_up();
}

uint32_t cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? is_up() : 101;
}

uint32_t cuDeviceGetUuid_v2(uint8_t *uuid, int device) {
  memset(uuid, 0xab, 16);
  return device == 0 ? is_up() : 101;
}

uint32_t cuDevicePrimaryCtxGetState(int device, uint32_t *flags, int *active) {
  *flags = 0;
  *active = contexts > 0;
  return device == 0 ? is_up() : 101;
}

uint32_t cuGetErrorString(uint32_t error, const char **text) {
  (void)error;
  *text = "an error of the scripted driver";
  return 0;
}

/* Makes a context, or ends one. */
static void on_contexts(int more) {
  const char *beside = "a context was made or ended while records were being switched";
  changing++;
  if (switching) broken(beside);
  take("SCRIPTED_CONTEXT_MS");
  if (switching) broken(beside);
  contexts += more;
  changing--;
}

uint32_t cuDevicePrimaryCtxRetain(void **context, int device) {
  if (is_up() || device) return 3;
  *context = &contexts;
  CALL(386, NULL, on_contexts(1));
}

/* The device's own context, which is there. */
static uint32_t retain_within(void) { CALL(386, NULL, on_contexts(0)); }

uint32_t cuCtxCreate_v2(void **context, uint32_t flags, int device) {
  (void)flags;
  if (is_up() || device) return 3;
  *context = &contexts;
  CALL(235, NULL, if (getenv("SCRIPTED_NESTED")) retain_within(); on_contexts(1));
}

uint32_t cuCtxDestroy_v2(void *context) {
  (void)context;
  CALL(322, NULL, on_contexts(-1));
}

/* A function is its name here. */
uint32_t cuLaunchKernel(const char *function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x, uint32_t block_y,
                        uint32_t block_z, uint32_t shared_bytes, void *stream, void **parameters, void **extra) {
  (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z, (void)shared_bytes, (void)stream;
  (void)parameters, (void)extra;
  if (!contexts) return 201;
  const void *arguments[] = {function};
  CALL(307, arguments, record(KERNEL, KERNEL_BYTES, data.correlation, 92, function));
}

uint32_t cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  (void)from;
  if (!contexts) return 201;
  memset(to, 0, bytes);
  /* Returns when the result is there. */
  CALL(278, NULL, record(MEMCPY, MEMCPY_BYTES, data.correlation, 44, NULL); usleep(20));
}

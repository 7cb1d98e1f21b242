/* A program as somebody else writes it, for `candlescope record`: what its first argument says, then the end that the second names.
 * It has no CUDA: `cuda` does what the driver does in cuInit with CUDA_INJECTION64_PATH, `nvtx` links NVTX 3's headers.
 *
 *   program nothing|cuda|nvtx|both return|exit|_exit|abort|term|int|kill|handled|handled-int|handled-first|chained|chained-term|handed|fork|forked|
 *     threads|child|look|starts|steps|payload|says|race [MILLISECONDS]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

static void spend(double ms) {
  struct timespec begun, now;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  do {
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - begun.tv_sec) * 1e3 + (now.tv_nsec - begun.tv_nsec) / 1e6 < ms);
}

static void as_the_driver_does(void) {
  const char *path = getenv("CUDA_INJECTION64_PATH");
  void *library = path ? dlopen(path, RTLD_NOW) : NULL;
  int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
  if (initialize) initialize();
}

static nvtxDomainHandle_t model, nccl;
static nvtxStringHandle_t linear;

static nvtxEventAttributes_t attributes(nvtxStringHandle_t string, const char *text) {
  nvtxEventAttributes_t of = {0};
  of.version = NVTX_VERSION;
  of.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  of.colorType = NVTX_COLOR_ARGB;
  of.color = 0xff00ff00;
  of.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  of.payload.ullValue = 7;
  of.messageType = string ? NVTX_MESSAGE_TYPE_REGISTERED : NVTX_MESSAGE_TYPE_ASCII;
  if (string) of.message.registered = string;
  else of.message.ascii = text;
  return of;
}

static void push_in(nvtxDomainHandle_t domain, nvtxStringHandle_t string, const char *text) {
  nvtxEventAttributes_t of = attributes(string, text);
  nvtxDomainRangePushEx(domain, &of);
}

/* decode › block[0], block[1] › linear (a registered string), 2 ms each; NCCL's own range inside, and one outside of all others. */
static void tokens(int n) {
  push_in(nccl, NULL, "ncclAllReduce");
  nvtxDomainRangePop(nccl);
  for (int token = 0; token < n; token++) {
    char name[32];
    nvtxRangePushA("decode");
    for (int block = 0; block < 2; block++) {
      snprintf(name, sizeof name, "block, seq = %d", token * 100 + block);
      nvtxRangePushA(name);
      push_in(model, linear, NULL);
      spend(2);
      nvtxDomainRangePop(model);
      nvtxRangePop();
    }
    push_in(nccl, NULL, "ncclAllReduce");
    nvtxDomainRangePop(nccl);
    nvtxRangePushW(L"sample \u00e9");
    nvtxRangePop();
    nvtxRangePop();
  }
  nvtxRangeEnd(nvtxRangeStartA("request"));
  /* One pop too many. */
  nvtxRangePop();
}

static nvtxRangeId_t handed;

static void *end_it(void *_) {
  nvtxRangeEnd(handed);
  return _;
}

/* Ranges by start and end: one crosses a token, one is ended by another thread, one is a step, one overlaps that, one never ends. */
static void starts(void) {
  nvtxEventAttributes_t of = attributes(linear, NULL);
  nvtxRangePushA("decode");
  nvtxRangeId_t crossing = nvtxDomainRangeStartEx(model, &of);
  nvtxRangePop();
  nvtxDomainRangeEnd(model, crossing);
  pthread_t thread;
  handed = nvtxRangeStartW(L"load \u00e9");
  pthread_create(&thread, NULL, end_it, NULL);
  pthread_join(thread, NULL);
  nvtxRangeId_t step = nvtxRangeStartA("prefill 1"), overlapping = nvtxRangeStartA("prefill 2");
  nvtxRangePushA("block");
  spend(2);
  nvtxRangePop();
  nvtxRangeEnd(step);
  nvtxRangeEnd(overlapping);
  nvtxRangeStartA("never");
}

static void *one_token(void *_) {
  tokens(1);
  return _;
}

/* Steps of 30 µs with forty ranges in each, whose recording takes more than a hundredth of that. */
static void steps(void) {
  for (int step = 0; step < 40000; step++) {
    nvtxRangePushA("decode");
    for (int part = 0; part < 40; part++) {
      nvtxRangePushA("part");
      nvtxRangePop();
    }
    spend(0.03);
    nvtxRangePop();
  }
}

static volatile sig_atomic_t is_caught;

static void catches(int _) {
  (void)_;
  is_caught = 1;
}

static void (*before)(int);

/* Calls the handler that was there before, as Rust's signal-hook does. */
static void chains(int signal) {
  is_caught = 1;
  if (before != SIG_DFL && before != SIG_IGN) before(signal);
}

/* Ctrl-C, while the program waits for something. */
static void *interrupts(void *_) {
  usleep(50000);
  kill(getpid(), SIGINT);
  return _;
}

/* A step by a start-range that another thread ends, after which this one makes no more ranges. */
static void hands(void) {
  pthread_t thread;
  handed = nvtxRangeStartA("prefill 1");
  pthread_create(&thread, NULL, end_it, NULL);
  pthread_join(thread, NULL);
}

/* What this process has open and which threads, and the same of a child. */
static void look(void) {
  char command[256];
  int own = getpid();
  snprintf(command, sizeof command, "ls -l /proc/%d/fd; ls /proc/%d/task; echo the child; ls -l /proc/self/fd; ls /proc/self/task", own, own);
  fflush(stdout);
  if (system(command)) exit(9);
}

/* A range that begins with a payload of any shape, and ends plainly. */
static void payload(void) {
  nvtxRangePushA("decode");
  nvtxRangePushPayload(NULL, NULL, 0);
  nvtxRangePop();
  nvtxRangePushA("block");
  nvtxRangePop();
  nvtxRangePop();
}

/* Which of the variables by which it is recorded a child gets, whole, and whether this process has a driver. */
static void says(void) {
  char line[4096];
  int has_driver = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) has_driver |= strstr(line, "libcuda") != NULL;
  printf("driver %d\n", has_driver);
  fflush(stdout);
  if (system("env | grep -E '^(CANDLESCOPE|CANDLESCOPE_INJECT_(CHILDREN|CLAIM|MODEL|SESSION|STEPS|WINDOWS|WORK)|"
             "(CUDA|NVTX)_INJECTION64_PATH|LD_PRELOAD)=' | LC_ALL=C sort"))
    exit(9);
}

static void *first_range(void *_) {
  nvtxRangePushA("first");
  nvtxRangePop();
  return _;
}

/* Forks while another thread makes the first range: the child's ranges do not wait for what that thread does. */
static void race(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, first_range, NULL);
  usleep(5000);
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    first_range(NULL);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  pthread_join(thread, NULL);
  if (status) exit(9);
}

int main(int count, char **args) {
  const char *what = count > 1 ? args[1] : "nothing", *end = count > 2 ? args[2] : "return";
  double ms = count > 3 ? atof(args[3]) : 0;
  printf("out of %s\n", what);
  fprintf(stderr, "err of %s\n", what);
  pid_t forked = 1;
  /* As Python has one from its start. */
  if (!strcmp(end, "handled-first")) signal(SIGINT, catches);
  /* Before anything is loaded: as a server does that forks its workers. */
  if (!strcmp(end, "forked")) forked = fork();
  if (!strcmp(what, "cuda") || !strcmp(what, "both")) as_the_driver_does();
  if (!strcmp(what, "nvtx") || !strcmp(what, "both")) {
    model = nvtxDomainCreateA("model");
    nccl = nvtxDomainCreateA("NCCL");
    linear = nvtxDomainRegisterStringA(model, "linear");
    tokens(3);
  }
  spend(ms);
  fflush(stdout);
  if (!strcmp(end, "exit")) exit(3);
  if (!strcmp(end, "_exit")) _exit(4);
  if (!strcmp(end, "abort")) abort();
  if (!strcmp(end, "term")) raise(SIGTERM), sleep(30);
  if (!strcmp(end, "int")) {
    pthread_t thread;
    pthread_create(&thread, NULL, interrupts, NULL);
    /* Ends with the signal, and so would the program, by a status that it does not have by itself. */
    sleep(30);
  }
  if (!strcmp(end, "handed")) hands(), _exit(4);
  if (!strcmp(end, "kill")) raise(SIGKILL);
  if (!strcmp(end, "handled")) {
    /* A handler of the program's own, which comes after the library. */
    signal(SIGTERM, catches);
    raise(SIGTERM);
    if (!is_caught) return 9;
  }
  if (!strcmp(end, "handled-int") || !strcmp(end, "handled-first") || !strcmp(end, "chained") || !strcmp(end, "chained-term")) {
    if (!strcmp(end, "handled-int")) signal(SIGINT, catches);
    if (!strcmp(end, "chained")) before = signal(SIGINT, chains);
    if (!strcmp(end, "chained-term")) before = signal(SIGTERM, chains);
    raise(strcmp(end, "chained-term") ? SIGINT : SIGTERM);
    if (!is_caught) return 9;
    /* Time in which somebody else might end it. */
    usleep(300000);
  }
  if (!strcmp(end, "forked")) {
    int status = 5 << 8;
    if (forked) waitpid(forked, &status, 0);
    if (status != 5 << 8) return 9;
  }
  if (!strcmp(end, "look")) look();
  if (!strcmp(end, "fork")) {
    pid_t child = fork();
    if (child == 0) {
      /* As a worker of Python's does. */
      tokens(2);
      _exit(0);
    }
    waitpid(child, NULL, 0);
  }
  if (!strcmp(end, "threads")) {
    pthread_t threads[4];
    for (int n = 0; n < 4; n++) pthread_create(&threads[n], NULL, one_token, NULL);
    for (int n = 0; n < 4; n++) pthread_join(threads[n], NULL);
  }
  if (!strcmp(end, "starts")) starts();
  if (!strcmp(end, "steps")) steps();
  if (!strcmp(end, "payload")) payload();
  if (!strcmp(end, "says")) says();
  if (!strcmp(end, "race")) race();
  if (!strcmp(end, "child")) {
    char command[4096];
    snprintf(command, sizeof command, "'%s' %s return %g >/dev/null 2>&1", args[0], what, ms);
    if (system(command) != 5 << 8) return 9;
  }
  return 5;
}

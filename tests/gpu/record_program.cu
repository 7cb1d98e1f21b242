// A CUDA program in C, for `candlescope record`, which knows nothing of it: three kernels a step, a result fetched after each.
// nvcc -o record_program record_program.cu -lcuda -ldl
//
//   record_program [STEPS]             the steps
//   record_program init                starts the driver and ends
//   record_program client WHEN CUPTI   200 steps, as another client of this CUPTI from before the first call (early) or after it (late)
//   record_program contexts THREADS    as many threads make a context each, at once, on all devices in turn, launch and copy
//   record_program launches BLOCKS     what a launch takes, in a loop and with 2 MiB read between two of them: RESULT, in ns
//   record_program ranges BLOCKS       what an NVTX range takes, by push and pop and by start and end: RESULT, in ns
//
// What fails is said on standard error, with the call and the device.
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define WITH_NVTX 1
#endif
#endif

#define N (1 << 20)

// Of the driver and of the runtime, whose numbers are the same.
static int failed(int status, const char *call, int which) {
    const char *text = NULL;
    if (status == 0) return 0;
    if (cuGetErrorString((CUresult)status, &text)) text = "an error without a text";
    fprintf(stderr, "record_program: thread %d: %s: %d, %s\n", which, call, status, text);
    return 1;
}
#define FAILS(call, which) failed((int)(call), #call, which)

__global__ void fill(float *x, float value) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < N) x[at] = value;
}

__global__ void scale(float *x, float factor) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < N) x[at] *= factor;
}

__global__ void sum(const float *x, float *result) {
    float of_thread = 0;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < N; at += gridDim.x * blockDim.x) of_thread += x[at];
    atomicAdd(result, of_thread);
}

// A thread with a context of its own, on one of the devices.
static void *context_of_its_own(void *number) {
    int devices = 0, which = (int)(size_t)number;
    CUdevice device;
    CUcontext context;
    float *x, *host = (float *)malloc(N * sizeof(float));
    if (FAILS(cuDeviceGetCount(&devices), which) || FAILS(cuDeviceGet(&device, which % devices), which)) return (void *)1;
#if CUDA_VERSION >= 13000
    if (FAILS(cuCtxCreate(&context, NULL, 0, device), which)) return (void *)1;
#else
    if (FAILS(cuCtxCreate(&context, 0, device), which)) return (void *)1;
#endif
    if (FAILS(cudaMalloc(&x, N * sizeof(float)), which)) return (void *)1;
    for (int launch = 0; launch < 50; launch++) {
        fill<<<N / 256, 256>>>(x, 1);
        scale<<<N / 256, 256>>>(x, 2);
        if (FAILS(cudaGetLastError(), which)) return (void *)1;
        if (launch % 10 == 0 && FAILS(cudaMemcpy(host, x, N * sizeof(float), cudaMemcpyDeviceToHost), which)) return (void *)1;
    }
    if (FAILS(cudaDeviceSynchronize(), which)) return (void *)1;
    if (host[7] != 2) {
        fprintf(stderr, "record_program: thread %d: %f came back, not 2\n", which, host[7]);
        return (void *)1;
    }
    return NULL;
}

static int threads(int n) {
    pthread_t thread[64];
    void *ended, *any = NULL;
    if (FAILS(cuInit(0), -1)) return 1;
    for (int i = 0; i < n; i++) pthread_create(&thread[i], NULL, context_of_its_own, (void *)(size_t)i);
    for (int i = 0; i < n; i++) {
        pthread_join(thread[i], &ended);
        if (ended) any = ended;
    }
    return any != NULL;
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static int larger(const void *a, const void *b) {
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static double median(double *all, int n) {
    qsort(all, n, sizeof(double), larger);
    return n ? (all[(n - 1) / 2] + all[n / 2]) / 2 : 0;
}

#define LAUNCHES 250
#define COLD (2 << 20)

// Blocks in turns: one launch after the other, and each after the caches were used for something else. The device is waited for between
// blocks, so that no launch waits for room in its queue.
static int launches(int blocks) {
    float *x;
    char *memory = (char *)malloc(COLD);
    double *hot = (double *)malloc(blocks * LAUNCHES * sizeof(double)), *cold = (double *)malloc(blocks * LAUNCHES * sizeof(double));
    unsigned sum = 0;
    if (FAILS(cudaMalloc(&x, N * sizeof(float)), 0)) return 1;
    memset(memory, 1, COLD);
    for (int block = -8; block < 2 * blocks; block++) {
        int is_cold = block & 1;
        for (int launch = 0; launch < LAUNCHES; launch++) {
            if (is_cold)
                for (int at = 0; at < COLD; at += 64) sum += ((volatile char *)memory)[at];
            double begun = now_ns();
            fill<<<1, 32>>>(x, 1);
            double took = now_ns() - begun;
            if (block >= 0) (is_cold ? cold : hot)[block / 2 * LAUNCHES + launch] = took;
        }
        if (FAILS(cudaGetLastError(), 0) || FAILS(cudaDeviceSynchronize(), 0)) return 1;
    }
    double of_hot = median(hot, blocks * LAUNCHES), of_cold = median(cold, blocks * LAUNCHES);
    printf("RESULT {\"hot\": %.1f, \"cold\": %.1f, \"launches\": %d, \"sum\": %u}\n", of_hot, of_cold, 2 * blocks * LAUNCHES, sum);
    return 0;
}

#ifdef WITH_NVTX
#define RANGES 1000

// Blocks in turns, each a range by push with a thousand of the one or the other kind in it. Slow enough that a recorder keeps up.
static int ranges(int blocks) {
    static char names[30][16];
    double *pushed = (double *)malloc(blocks * sizeof(double)), *started = (double *)malloc(blocks * sizeof(double));
    for (int at = 0; at < 30; at++) snprintf(names[at], sizeof names[at], "layer %d", at);
    for (int block = -4; block < 2 * blocks; block++) {
        nvtxRangePushA("decode");
        double begun = now_ns();
        if (block & 1)
            for (int at = 0; at < RANGES; at++) nvtxRangeEnd(nvtxRangeStartA(names[at % 30]));
        else
            for (int at = 0; at < RANGES; at++) {
                nvtxRangePushA(names[at % 30]);
                nvtxRangePop();
            }
        double took = (now_ns() - begun) / RANGES;
        nvtxRangePop();
        if (block >= 0) (block & 1 ? started : pushed)[block / 2] = took;
        usleep(10000);
    }
    double of_pushed = median(pushed, blocks), of_started = median(started, blocks);
    printf("RESULT {\"push_pop\": %.1f, \"start_end\": %.1f, \"ranges\": %d}\n", of_pushed, of_started, 2 * blocks * RANGES);
    return 0;
}
#else
static int ranges(int blocks) {
    (void)blocks;
    fprintf(stderr, "record_program: built without NVTX's headers\n");
    return 3;
}
#endif

// Another client of CUPTI, by its interface for several; as of CUPTI 13.3, of whose headers this needs none.
struct subscriber {
    size_t size;
    const char *name;
    char *other;
    size_t other_size;
    unsigned char allow_several, padding[7];
};

static void nothing(void *of, int domain, unsigned call, const void *data) {
    (void)of, (void)domain, (void)call, (void)data;
}

static int client(const char *library) {
    void *cupti = dlopen(library, RTLD_NOW), *handle;
    char other[128] = "";
    struct subscriber asked = {sizeof asked, "record_program", other, sizeof other, 1, {0}};
    int (*subscribe)(void **, void (*)(void *, int, unsigned, const void *), void *, struct subscriber *) = NULL;
    if (cupti) *(void **)&subscribe = dlsym(cupti, "cuptiSubscribe_v2");
    if (!subscribe) {
        fprintf(stderr, "record_program: %s: no cuptiSubscribe_v2\n", cupti ? library : dlerror());
        return 3;
    }
    int status = subscribe(&handle, nothing, NULL, &asked);
    if (status == 1) {
        // Before 13.3 there was no word of several.
        asked.size = offsetof(struct subscriber, allow_several);
        status = subscribe(&handle, nothing, NULL, &asked);
    }
    printf("as a client of CUPTI: %d, beside \"%s\"\n", status, other);
    fflush(stdout);
    return 0;
}

int main(int count, char **arguments) {
    int is_client = count > 1 && !strcmp(arguments[1], "client");
    if (is_client && (count < 4 || (strcmp(arguments[2], "early") && strcmp(arguments[2], "late")))) {
        fprintf(stderr, "record_program: client early|late CUPTI\n");
        return 2;
    }
    if (is_client && !strcmp(arguments[2], "early") && client(arguments[3])) return 3;
    if (count > 2 && !strcmp(arguments[1], "launches")) return launches(atoi(arguments[2]));
    if (count > 2 && !strcmp(arguments[1], "ranges")) return ranges(atoi(arguments[2]));
    if (count > 2 && !strcmp(arguments[1], "contexts")) return threads(atoi(arguments[2]) < 64 ? atoi(arguments[2]) : 64);
    if (count > 1 && !strcmp(arguments[1], "init")) return FAILS(cuInit(0), -1);
    int steps = is_client ? 200 : count > 1 ? atoi(arguments[1]) : 100;
    float *x, *result, total = 0;
    if (FAILS(cudaMalloc(&x, N * sizeof(float)), 0) || FAILS(cudaMalloc(&result, sizeof(float)), 0)) return 1;
    for (int step = 0; step < steps; step++) {
        float got;
        cudaMemset(result, 0, sizeof(float));
        fill<<<N / 256, 256>>>(x, 1);
        scale<<<N / 256, 256>>>(x, 2);
        sum<<<64, 256>>>(x, result);
        if (FAILS(cudaMemcpy(&got, result, sizeof(float), cudaMemcpyDeviceToHost), 0)) return 1;
        total += got;
        if (is_client && step == 0 && !strcmp(arguments[2], "late") && client(arguments[3])) return 3;
    }
    printf("%.0f\n", total);
    return 0;
}

// A CUDA program in C, for `candlescope record`, which knows nothing of it: three kernels a step, a result fetched after each.
// nvcc -o record_program record_program.cu -lcuda; record_program [STEPS], or `init`: starts the driver and ends; or `contexts THREADS`:
// as many threads make a context each, at once, on all devices in turn, launch and copy.
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N (1 << 20)

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
static void *context_of_its_own(void *which) {
    int devices = 0;
    CUdevice device;
    CUcontext context;
    float *x, *host = (float *)malloc(N * sizeof(float));
    if (cuDeviceGetCount(&devices) || cuDeviceGet(&device, (int)(size_t)which % devices)) return (void *)1;
#if CUDA_VERSION >= 13000
    if (cuCtxCreate(&context, NULL, 0, device)) return (void *)1;
#else
    if (cuCtxCreate(&context, 0, device)) return (void *)1;
#endif
    if (cudaMalloc(&x, N * sizeof(float))) return (void *)1;
    for (int launch = 0; launch < 50; launch++) {
        fill<<<N / 256, 256>>>(x, 1);
        scale<<<N / 256, 256>>>(x, 2);
        if (launch % 10 == 0) cudaMemcpy(host, x, N * sizeof(float), cudaMemcpyDeviceToHost);
    }
    return cudaDeviceSynchronize() || host[7] != 2 ? (void *)1 : NULL;
}

static int threads(int n) {
    pthread_t thread[64];
    void *failed, *any = NULL;
    if (cuInit(0)) return 1;
    for (int i = 0; i < n; i++) pthread_create(&thread[i], NULL, context_of_its_own, (void *)(size_t)i);
    for (int i = 0; i < n; i++) {
        pthread_join(thread[i], &failed);
        if (failed) any = failed;
    }
    return any != NULL;
}

int main(int count, char **arguments) {
    if (count > 2 && !strcmp(arguments[1], "contexts")) return threads(atoi(arguments[2]) < 64 ? atoi(arguments[2]) : 64);
    if (count > 1 && !strcmp(arguments[1], "init")) return cuInit(0) == CUDA_SUCCESS ? 0 : 1;
    int steps = count > 1 ? atoi(arguments[1]) : 100;
    float *x, *result, total = 0;
    if (cudaMalloc(&x, N * sizeof(float)) || cudaMalloc(&result, sizeof(float))) return 1;
    for (int step = 0; step < steps; step++) {
        float got;
        cudaMemset(result, 0, sizeof(float));
        fill<<<N / 256, 256>>>(x, 1);
        scale<<<N / 256, 256>>>(x, 2);
        sum<<<64, 256>>>(x, result);
        cudaMemcpy(&got, result, sizeof(float), cudaMemcpyDeviceToHost);
        total += got;
    }
    printf("%.0f\n", total);
    return 0;
}

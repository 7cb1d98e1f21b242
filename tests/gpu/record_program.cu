// A CUDA program in C, for `candlescope record`, which knows nothing of it: three kernels a step, a result fetched after each.
// nvcc -o record_program record_program.cu -lcuda; record_program [STEPS], or `init`: starts the driver and ends.
#include <cuda.h>
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

int main(int count, char **arguments) {
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

/* A program of CUDA 12's runtime, for `candlescope record`: three kernels' worth of steps without nvcc, which on a machine of CUDA 13 makes
 * programs of 13. Its kernels are PTX, which the driver compiles; it links libcudart.so.12, and libcupti.so.12 where it is to have one.
 *
 *   cc -o record_program_12 record_program_12.c -l:libcudart.so.12 [-Wl,--no-as-needed -l:libcupti.so.12]
 *   record_program_12 [STEPS]
 *
 * The declarations are those of cuda_runtime_api.h of CUDA 12.8 and later, whose headers want parts of nvcc's package.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { unsigned x, y, z; } dim3_;
extern const char *cudaGetErrorString(int status);
extern int cudaRuntimeGetVersion(int *version);
extern int cudaDriverGetVersion(int *version);
extern int cudaMalloc(void **memory, size_t bytes);
extern int cudaMemset(void *memory, int value, size_t bytes);
extern int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
extern int cudaDeviceSynchronize(void);
extern int cudaLibraryLoadData(void **library, const void *code, void *, void *, unsigned, void *, void *, unsigned);
extern int cudaLibraryGetKernel(void **kernel, void *library, const char *name);
extern int cudaLaunchKernel(const void *kernel, dim3_ grid, dim3_ block, void **arguments, size_t shared, void *stream);

#define N (1 << 20)
#define DEVICE_TO_HOST 2

#define INDEX                                                                                                        \
  "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r1, %r2, %r3, %r4;\n"                \
  "setp.gt.s32 %p1, %r1, 1048575; @%p1 bra DONE;\n"                                                                   \
  "cvta.to.global.u64 %rd2, %rd1; mul.wide.s32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3;\n"
#define KERNEL(name, body)                                                                                           \
  ".visible .entry " name "(.param .u64 x, .param .f32 value) {\n"                                                    \
  ".reg .pred %p<2>; .reg .f32 %f<4>; .reg .b32 %r<5>; .reg .b64 %rd<5>;\n"                                           \
  "ld.param.u64 %rd1, [x]; ld.param.f32 %f1, [value];\n" INDEX body "DONE: ret;\n}\n"

static const char PTX[] = ".version 7.8\n.target sm_70\n.address_size 64\n"
    KERNEL("fill", "st.global.f32 [%rd4], %f1;\n")
    KERNEL("scale", "ld.global.f32 %f2, [%rd4]; mul.f32 %f3, %f2, %f1; st.global.f32 [%rd4], %f3;\n");

static int failed(int status, const char *call) {
  if (status) fprintf(stderr, "record_program_12: %s: %d, %s\n", call, status, cudaGetErrorString(status));
  return status != 0;
}
#define FAILS(call) failed(call, #call)

static int launch(void *kernel, float *x, float value) {
  void *arguments[] = {&x, &value};
  dim3_ grid = {N / 256, 1, 1}, block = {256, 1, 1};
  return FAILS(cudaLaunchKernel(kernel, grid, block, arguments, 0, NULL));
}

int main(int count, char **arguments) {
  int steps = count > 1 ? atoi(arguments[1]) : 100, runtime = 0, driver = 0;
  float *x, got = 0, total = 0;
  void *library, *fill, *scale;
  if (FAILS(cudaRuntimeGetVersion(&runtime)) || FAILS(cudaDriverGetVersion(&driver))) return 1;
  if (FAILS(cudaMalloc((void **)&x, N * sizeof(float)))) return 1;
  if (FAILS(cudaLibraryLoadData(&library, PTX, NULL, NULL, 0, NULL, NULL, 0))) return 1;
  if (FAILS(cudaLibraryGetKernel(&fill, library, "fill")) || FAILS(cudaLibraryGetKernel(&scale, library, "scale"))) return 1;
  for (int step = 0; step < steps; step++) {
    if (FAILS(cudaMemset(x, 0, N * sizeof(float)))) return 1;
    if (launch(fill, x, 1) || launch(scale, x, 2) || launch(scale, x, 2)) return 1;
    if (FAILS(cudaMemcpy(&got, x + 7, sizeof got, DEVICE_TO_HOST))) return 1;
    total += got;
  }
  if (FAILS(cudaDeviceSynchronize())) return 1;
  printf("runtime %d.%d, driver %d.%d, %d steps, %.0f\n", runtime / 1000, runtime % 1000 / 10, driver / 1000, driver % 1000 / 10, steps, total);
  return total != 4.0f * steps;
}

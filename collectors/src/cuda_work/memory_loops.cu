// Loops over memory for `bench peaks`, and a kernel that only takes time. Each thread has four 16-byte accesses under
// way, which is what it takes to keep the memory busy.

extern "C" __global__ void peak_read(const float4* a, unsigned long long n, float* out) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (; i + 3 * step < n; i += 4 * step) {
        float4 p = a[i], q = a[i + step], r = a[i + 2 * step], s = a[i + 3 * step];
        sum += p.x + p.y + p.z + p.w + q.x + q.y + q.z + q.w;
        sum += r.x + r.y + r.z + r.w + s.x + s.y + s.z + s.w;
    }
    for (; i < n; i += step) {
        float4 p = a[i];
        sum += p.x + p.y + p.z + p.w;
    }
    // Never true: the arrays hold ones. Without it the compiler would leave the loop out.
    if (sum == -1.0f) *out = sum;
}

extern "C" __global__ void peak_write(float4* a, unsigned long long n, float value) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    float4 v = make_float4(value, value, value, value);
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) a[i] = v;
}

extern "C" __global__ void peak_copy(float4* c, const float4* a, unsigned long long n) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        float4 p = a[i], q = a[i + step], r = a[i + 2 * step], s = a[i + 3 * step];
        c[i] = p;
        c[i + step] = q;
        c[i + 2 * step] = r;
        c[i + 3 * step] = s;
    }
    for (; i < n; i += step) c[i] = a[i];
}

extern "C" __global__ void peak_triad(float4* a, const float4* b, const float4* c, unsigned long long n, float factor) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        float4 p = b[i], q = c[i];
        a[i] = make_float4(p.x + factor * q.x, p.y + factor * q.y, p.z + factor * q.z, p.w + factor * q.w);
    }
}

// Takes `cycles` of the SM's clock.
extern "C" __global__ void peak_spin(unsigned long long cycles) {
    unsigned long long began = clock64();
    while (clock64() - began < cycles) {
    }
}

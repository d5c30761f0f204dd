// How operators that are no kernels act on a batch: what of it is not a matrix product.

typedef unsigned int u32;
typedef unsigned long long u64;

#define EACH(i, n) for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (u64)gridDim.x * blockDim.x)

// Sampled functions first, first + 1, ... at all m values, part [count, m], into columns of f [m, samples].
extern "C" __global__ void lay_samples(u64 count, u64 m, u64 samples, u64 first, const float* part, float* f) {
    EACH(i, count * m) f[i % m * samples + first + i / m] = part[i];
}

// out[a, b] = k[rows[a], rows[b]]; k [n, n], out [batch, batch].
extern "C" __global__ void gather_block(u64 batch, u64 n, const u32* rows, const float* k, float* out) {
    EACH(i, batch * batch) out[i] = k[rows[i / batch] * n + rows[i % batch]];
}

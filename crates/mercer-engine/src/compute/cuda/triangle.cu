// Products of a block of a row-major f64 matrix A with a few columns, for triangular solves by blocks. Each reads A once, at the speed of
// memory. The order of sums depends on the shapes alone.

typedef unsigned int u32;
typedef unsigned long long u64;

// Columns that a thread sums up at once.
#define FEW 4

// y[i, c] = sum_k A[i, k] x[k, c], or y[i, c] minus that if `subtract`, for A [rows, inner] with rows `ld` apart, x [inner, m], y [rows, m].
// One warp per row.
extern "C" __global__ void __launch_bounds__(256)
    rows_times(u64 rows, u64 inner, u64 m, const double* __restrict__ a, u64 ld, const double* __restrict__ x, int subtract, double* y) {
    const u64 row = (u64)blockIdx.x * 8 + threadIdx.x / 32;
    const u32 lane = threadIdx.x % 32;
    if (row >= rows) return;
    for (u64 c0 = 0; c0 < m; c0 += FEW) {
        double sums[FEW] = {};
#pragma unroll 4
        for (u64 k = lane; k < inner; k += 32) {
            const double factor = a[row * ld + k];
#pragma unroll
            for (int c = 0; c < FEW; ++c)
                if (c0 + c < m) sums[c] = fma(factor, x[k * m + c0 + c], sums[c]);
        }
#pragma unroll
        for (int c = 0; c < FEW; ++c) {
            double sum = sums[c];
            for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
            if (lane == 0 && c0 + c < m) {
                const u64 at = row * m + c0 + c;
                y[at] = subtract ? y[at] - sum : sum;
            }
        }
    }
}

// The same with the transpose: y[j, c] = sum_k A[k, j] x[k, c], or y[j, c] minus that, for A [inner, columns]. A block of 256 threads has 32
// columns of A; each of its warps sums up every eighth row.
extern "C" __global__ void __launch_bounds__(256)
    columns_times(u64 columns, u64 inner, u64 m, const double* __restrict__ a, u64 ld, const double* __restrict__ x, int subtract, double* y) {
    __shared__ double parts[8][FEW][32];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 column = (u64)blockIdx.x * 32 + lane;
    for (u64 c0 = 0; c0 < m; c0 += FEW) {
        double sums[FEW] = {};
        if (column < columns) {
#pragma unroll 8
            for (u64 k = warp; k < inner; k += 8) {
                const double factor = a[k * ld + column];
#pragma unroll
                for (int c = 0; c < FEW; ++c)
                    if (c0 + c < m) sums[c] = fma(factor, x[k * m + c0 + c], sums[c]);
            }
        }
#pragma unroll
        for (int c = 0; c < FEW; ++c) parts[warp][c][lane] = sums[c];
        __syncthreads();
        // Warp c finishes column c0 + c.
        if (warp < FEW && c0 + warp < m && column < columns) {
            double sum = 0.0;
            for (int w = 0; w < 8; ++w) sum += parts[w][warp][lane];
            const u64 at = column * m + c0 + warp;
            y[at] = subtract ? y[at] - sum : sum;
        }
        __syncthreads();
    }
}

// The identity [n, n].
extern "C" __global__ void identity(u64 n, double* to) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n * n; i += (u64)gridDim.x * blockDim.x) to[i] = i / n == i % n ? 1.0 : 0.0;
}

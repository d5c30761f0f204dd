// Kernel matrices in device memory: the expression of several base kernels, equal points, and products.
//
// #define KERNELS     number of base kernels
// #define COMBINED    κ from the values s(0), s(1), … of the base kernels

// values [KERNELS, n, m] → [n, m] in place, one thread for each of n·m. Where i = j + diagonal, or where both points have the same
// name, above 0, the value is known[i]. With `mirror` (A = B, m = n) the half below the diagonal is that above it.
extern "C" __global__ void __launch_bounds__(256)
    combine(real *values, int n, int m, int diagonal, int mirror, const double *__restrict__ known,
            const int *__restrict__ a_names, const int *__restrict__ b_names) {
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x, all = (long long)n * m;
    if (at >= all) return;
    const int i = (int)(at / m), j = (int)(at % m);
    if (mirror && j < i) return;
#define s(index) values[at + (index) * all]
    real value = COMBINED;
#undef s
    if (known && (i == j + diagonal || (a_names[i] > 0 && a_names[i] == b_names[j]))) value = (real)known[i];
    values[at] = value;
    if (mirror) values[(long long)j * m + i] = value;
}

// y [n, columns] = K v for K [n, m] and v [m, columns], in double and in a fixed order; four rows for each block.
extern "C" __global__ void __launch_bounds__(256)
    multiply(const real *__restrict__ k, const double *__restrict__ v, double *__restrict__ y, int n, int m, int columns) {
    __shared__ double totals[8][32];
    const int row0 = blockIdx.x * 4, c0 = blockIdx.y * 8, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    double sums[4][8] = {};
    for (int j = threadIdx.x; j < m; j += 256) {
        double values[8];
        UNROLLED(c, 8) values[c] = c0 + c < columns ? v[(long long)j * columns + c0 + c] : 0;
        UNROLLED(r, 4) {
            const double entry = row0 + r < n ? (double)k[(long long)(row0 + r) * m + j] : 0;
            UNROLLED(c, 8) sums[r][c] = fma(entry, values[c], sums[r][c]);
        }
    }
    UNROLLED(r, 4)
        UNROLLED(c, 8) {
            double sum = sums[r][c];
            for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
            if (lane == 0) totals[warp][r * 8 + c] = sum;
        }
    __syncthreads();
    const int r = threadIdx.x / 8, c = threadIdx.x % 8;
    if (threadIdx.x >= 32 || row0 + r >= n || c0 + c >= columns) return;
    double sum = 0;
    for (int w = 0; w < 8; ++w) sum += totals[w][threadIdx.x];
    y[(long long)(row0 + r) * columns + c0 + c] = sum;
}

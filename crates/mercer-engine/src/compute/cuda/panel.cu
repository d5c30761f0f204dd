// Kernels for tall row-major f64 matrices [n, b]. The order of sums depends on the shapes alone.

typedef unsigned int u32;
typedef unsigned long long u64;

#define EACH(i, n) for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (u64)gridDim.x * blockDim.x)

// y_ij += step_j x_ij
extern "C" __global__ void axpy_columns(u64 total, u64 b, const double* step, const double* x, double* y) {
    EACH(i, total) y[i] = fma(step[i % b], x[i], y[i]);
}

// y_ij *= factor_j
extern "C" __global__ void scale_columns(u64 total, u64 b, const double* factor, double* y) {
    EACH(i, total) y[i] *= factor[i % b];
}

// Copies `count` columns; `from` and `to` point to the first of them; rows are `from_stride` and `to_stride` apart.
extern "C" __global__ void copy_columns(u64 n, u64 count, const double* from, u64 from_stride, double* to, u64 to_stride) {
    EACH(i, n * count) to[i / count * to_stride + i % count] = from[i / count * from_stride + i % count];
}

// out_i = factor x_i in f32; the x are b apart.
extern "C" __global__ void round_column(u64 n, u64 b, double factor, const double* x, float* out) {
    EACH(i, n) out[i] = (float)(factor * x[i * b]);
}

// x_i = factor v_i; the x are b apart.
extern "C" __global__ void put_column(u64 n, u64 b, double factor, const float* v, double* x) {
    EACH(i, n) x[i * b] = factor * v[i];
}

// to[i] = from[rows[i]] for rows of b numbers; row first + i where rows is null.
extern "C" __global__ void gather_rows(u64 n, u64 b, const u32* rows, u64 first, const double* from, double* to) {
    EACH(i, n * b) to[i] = from[(rows ? rows[i / b] : first + i / b) * b + i % b];
}

// to[rows[i]] += factor from[i] for rows of b numbers, all different; row first + i where rows is null.
extern "C" __global__ void scatter_rows(u64 n, u64 b, const u32* rows, u64 first, double factor, const double* from, double* to) {
    EACH(i, n * b) {
        u64 at = (rows ? rows[i / b] : first + i / b) * b + i % b;
        to[at] = fma(factor, from[i], to[at]);
    }
}

// y_ij *= factor_i
extern "C" __global__ void scale_rows(u64 total, u64 b, const double* factor, double* y) {
    EACH(i, total) y[i] *= factor[i / b];
}

// left_i = max(left_i - sum_j x_ij^2, 0)
extern "C" __global__ void subtract_row_squares(u64 n, u64 b, const double* x, double* left) {
    EACH(i, n) {
        double sum = 0.0;
        for (u64 j = 0; j < b; ++j) sum = fma(x[i * b + j], x[i * b + j], sum);
        left[i] = fmax(left[i] - sum, 0.0);
    }
}

// left_i = min(left_i, d_i + d_j' - 2 k_ij) over the columns j of k [n, b], with d [n] and d' [b]; what is below `share` of the sum is 0.
extern "C" __global__ void lower_to_distances(u64 n, u64 b, const double* k, const double* d, const double* of_columns, double share,
                                              double* left) {
    EACH(i, n) {
        double least = left[i];
        for (u64 j = 0; j < b; ++j) {
            double sum = d[i] + of_columns[j], square = sum - 2.0 * k[i * b + j];
            least = fmin(least, square > share * sum ? square : 0.0);
        }
        left[i] = least;
    }
}

// to [n, 2 m] = amplitude (cos t, sin t) for t [n, m]
extern "C" __global__ void waves(u64 n, u64 m, double amplitude, const double* t, double* to) {
    EACH(i, n * m) {
        double sine, cosine;
        sincos(t[i], &sine, &cosine);
        u64 at = i / m * 2 * m + i % m;
        to[at] = amplitude * cosine;
        to[at + m] = amplitude * sine;
    }
}

// y_ii += shift for y [n, n]
extern "C" __global__ void shift_diagonal(u64 n, double shift, double* y) {
    EACH(i, n) y[i * n + i] += shift;
}

// to [m, n] = the transpose of from [n, m], in double. A block of 32 x 8 threads handles a tile of 32 x 32.
template <class T> __device__ __forceinline__ void transpose_tile(u64 n, u64 m, const T* from, double* to) {
    __shared__ double tile[32][33];
    u32 tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    u64 across = (m + 31) / 32;
    u64 i0 = blockIdx.x / across * 32, j0 = blockIdx.x % across * 32;
    for (u32 r = ty; r < 32; r += 8)
        if (i0 + r < n && j0 + tx < m) tile[r][tx] = (double)from[(i0 + r) * m + j0 + tx];
    __syncthreads();
    for (u32 r = ty; r < 32; r += 8)
        if (j0 + r < m && i0 + tx < n) to[(j0 + r) * n + i0 + tx] = tile[tx][r];
}
extern "C" __global__ void transpose_f64(u64 n, u64 m, const double* from, double* to) { transpose_tile(n, m, from, to); }
extern "C" __global__ void transpose_f32(u64 n, u64 m, const float* from, double* to) { transpose_tile(n, m, from, to); }

// to = from, in double
extern "C" __global__ void widen(u64 total, const float* from, double* to) { EACH(i, total) to[i] = (double)from[i]; }

// One term of a column sum. kind 0: x y; 1: (x - theta y)^2; 2: x.
__device__ __forceinline__ double term(int kind, const double* x, const double* y, const double* theta, u64 at, u64 column) {
    if (kind == 0) return x[at] * y[at];
    if (kind == 2) return x[at];
    double r = fma(-theta[column], y[at], x[at]);
    return r * r;
}

// part[chunk, j] = sum over the `per` rows of the chunk of column j. A block of 256 threads handles a group of `width`
// columns (a power of two up to 32) and 256 / width rows at once. blockIdx.x is the group, blockIdx.y the chunk.
extern "C" __global__ void column_sums(u64 n, u64 b, u64 per, u32 width, int kind, const double* x, const double* y,
                                       const double* theta, double* part) {
    __shared__ double sums[256];
    u32 lanes = 256 / width, lane = threadIdx.x / width, across = threadIdx.x % width;
    u64 column = (u64)blockIdx.x * width + across;
    u64 first = (u64)blockIdx.y * per, last = first + per < n ? first + per : n;
    double sum = 0.0;
    if (column < b)
        for (u64 row = first + lane; row < last; row += lanes) sum += term(kind, x, y, theta, row * b + column, column);
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (lane == 0 && column < b) {
        for (u32 other = 1; other < lanes; ++other) sum += sums[other * width + across];
        part[(u64)blockIdx.y * b + column] = sum;
    }
}

// out_j = sum over chunks of part[chunk, j]; one block of 256 threads per column.
extern "C" __global__ void finish_sums(u64 b, u64 chunks, const double* part, double* out) {
    __shared__ double sums[256];
    double sum = 0.0;
    for (u64 c = threadIdx.x; c < chunks; c += 256) sum += part[c * b + blockIdx.x];
    sums[threadIdx.x] = sum;
    for (u32 half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

// y_ij -= sum_j / n
extern "C" __global__ void subtract_means(u64 total, u64 b, double n, const double* sum, double* y) {
    EACH(i, total) y[i] -= sum[i % b] / n;
}

// Sets the flag unless |x| <= bound for all elements; it is set for NaN.
extern "C" __global__ void flag_beyond(u64 total, double bound, const double* x, u32* flag) {
    EACH(i, total) if (!(fabs(x[i]) <= bound)) *flag = 1;
}

// u[i, n-1-j] = v[j, i] for [n, n]: eigenvectors as rows in ascending order become columns in descending order.
// A block of 32 x 8 threads handles a tile of 32 x 32.
extern "C" __global__ void eigenvectors_as_columns(u64 n, const double* v, double* u) {
    __shared__ double tile[32][33];
    u32 tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    u64 across = (n + 31) / 32;
    u64 j0 = blockIdx.x / across * 32, i0 = blockIdx.x % across * 32;
    for (u32 r = ty; r < 32; r += 8)
        if (j0 + r < n && i0 + tx < n) tile[r][tx] = v[(j0 + r) * n + i0 + tx];
    __syncthreads();
    for (u32 r = ty; r < 32; r += 8)
        if (i0 + r < n && j0 + tx < n) u[(i0 + r) * n + (n - 1 - (j0 + tx))] = tile[tx][r];
}

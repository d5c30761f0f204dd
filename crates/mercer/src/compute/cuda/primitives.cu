// Kernels beneath the primitives of mercer::compute. Activations are generated: activate(phi, z, value, slope, curvature).
// Arrays are row-major f32; sums run in an order that follows the shapes alone.

typedef unsigned int u32;
typedef unsigned long long u64;

#define EACH(i, n) for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (u64)gridDim.x * blockDim.x)

extern "C" __global__ void axpy(u64 n, float alpha, const float* x, float* y) { EACH(i, n) y[i] = fmaf(alpha, x[i], y[i]); }
extern "C" __global__ void add_f64(u64 n, double alpha, const double* x, double* y) { EACH(i, n) y[i] = fma(alpha, x[i], y[i]); }
extern "C" __global__ void multiply(u64 n, const float* x, float* y) { EACH(i, n) y[i] *= x[i]; }
extern "C" __global__ void multiply_each(u64 n, u64 size, const float* x, float* y) { EACH(i, n) y[i] *= x[i % size]; }
extern "C" __global__ void add_product_each(u64 n, u64 size, const float* x, const float* y, float* out) {
    EACH(i, n) out[i] = fmaf(y[i], x[i % size], out[i]);
}
extern "C" __global__ void scale(u64 n, float alpha, float* y) { EACH(i, n) y[i] *= alpha; }
extern "C" __global__ void fill(u64 n, float value, float* y) { EACH(i, n) y[i] = value; }

// out[i] = x[rows[i]], rows of d numbers.
extern "C" __global__ void gather_rows(u64 n, u64 d, const u32* rows, const float* x, float* out) {
    EACH(i, n * d) out[i] = x[(u64)rows[i / d] * d + i % d];
}

// out_j = x_j^T for x_j [m, n]; blocks of 32 x 32 threads walk over 32 x 32 tiles.
extern "C" __global__ void transpose(u64 m, u64 n, const float* x, float* out) {
    __shared__ float tile[32][33];
    u32 tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    u64 across = (n + 31) / 32, j = blockIdx.y;
    u64 r0 = blockIdx.x / across * 32, c0 = blockIdx.x % across * 32;
    if (r0 + ty < m && c0 + tx < n) tile[ty][tx] = x[j * m * n + (r0 + ty) * n + c0 + tx];
    __syncthreads();
    if (c0 + ty < n && r0 + tx < m) out[j * m * n + (c0 + ty) * m + r0 + tx] = tile[tx][ty];
}

// Philox 4x32-10: four random words for a counter and a key.
__device__ __forceinline__ uint4 philox(u64 counter, u64 key) {
    uint4 c = make_uint4((u32)counter, (u32)(counter >> 32), 0, 0);
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u32 h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
        u32 h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
        c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

// (0, 1]
__device__ __forceinline__ float unit(u32 word) { return ((float)(word >> 8) + 1.0f) * 5.9604644775390625e-8f; }

// law 0: N(0,1); 1: uniform on [low, high); 2: signs. Each thread makes four numbers.
extern "C" __global__ void fill_random(u64 n, u64 key, int law, float low, float high, float* y) {
    EACH(q, (n + 3) / 4) {
        uint4 w = philox(q, key);
        float v[4];
        if (law == 0) {
            float r0 = sqrtf(-2.0f * logf(unit(w.x))), r1 = sqrtf(-2.0f * logf(unit(w.z)));
            sincospif(2.0f * unit(w.y), &v[1], &v[0]);
            sincospif(2.0f * unit(w.w), &v[3], &v[2]);
            v[0] *= r0; v[1] *= r0; v[2] *= r1; v[3] *= r1;
        } else {
            u32 words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
            for (int l = 0; l < 4; ++l)
                v[l] = law == 2 ? (words[l] >> 31 ? -1.0f : 1.0f) : low + (high - low) * ((float)(words[l] >> 8) * 5.9604644775390625e-8f);
        }
#pragma unroll
        for (int l = 0; l < 4; ++l) if (4 * q + l < n) y[4 * q + l] = v[l];
    }
}

// Which of two formulas a unit has: the second half of a sincos layer has the cosine.
__device__ __forceinline__ int formula(int phi, u64 column, u64 width) {
    return phi == SINCOS ? (column < width / 2 ? SIN : COS) : phi;
}

// y_j = phi(y_j + b_j), slope_j = phi'(y_j + b_j); y [k, rows, n], matrix j's bias at bias + j * bias_stride.
extern "C" __global__ void bias_activation(u64 total, u64 per, u64 n, int phi, const float* bias, u64 bias_stride, float* y, float* slope) {
    EACH(i, total) {
        u64 c = i % n;
        float z = y[i] + (bias ? bias[i / per * bias_stride + c] : 0.0f), v, s;
        activate(formula(phi, c, n), z, v, s);
        y[i] = v;
        if (slope) slope[i] = s;
    }
}

// t = (t + b_j) * slope.
extern "C" __global__ void bias_slope(u64 total, u64 per, u64 n, const float* bias, u64 bias_stride, const float* slope, float* t) {
    EACH(i, total) {
        float v = t[i] + (bias ? bias[i / per * bias_stride + i % n] : 0.0f);
        t[i] = slope ? v * slope[i] : v;
    }
}

// Sum over the 8 rows of threads of a 32 x 8 block; valid in the first row of threads.
__device__ __forceinline__ float fold(float v, float (*shared)[33], u32 tx, u32 ty) {
    __syncthreads();
    shared[ty][tx] = v;
    __syncthreads();
    float sum = 0.0f;
    if (ty == 0) {
#pragma unroll
        for (int l = 0; l < 8; ++l) sum += shared[l][tx];
    }
    return sum;
}

// Columns of m x n matrices: block (column group, matrix, chunk of rows) of 32 x 8 threads; each block writes its partial
// sum to part[((matrix * chunks) + chunk) * n + c]. kind 0: sum x y; 1: sum x; 2: g *= slope (in place), sum g.
extern "C" __global__ void column_sums(u64 m, u64 n, u64 rows_per_chunk, int kind, float* x, const float* y, float* part) {
    __shared__ float shared[8][33];
    u32 tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    u64 c = (u64)blockIdx.x * 32 + tx, j = blockIdx.y, chunk = blockIdx.z;
    u64 end = min(m, (chunk + 1) * rows_per_chunk);
    float sum = 0.0f;
    if (c < n) {
        for (u64 r = chunk * rows_per_chunk + ty; r < end; r += 8) {
            u64 at = (j * m + r) * n + c;
            float v = x[at];
            if (kind == 0) sum = fmaf(v, y[at], sum);
            else {
                if (kind == 2 && y) { v *= y[at]; x[at] = v; }
                sum += v;
            }
        }
    }
    sum = fold(sum, shared, tx, ty);
    if (ty == 0 && c < n) part[(j * gridDim.z + chunk) * n + c] = sum;
}

// Narrow matrices (n = 1): one block of 256 threads for a matrix and chunk, neighbours in memory.
extern "C" __global__ void vector_sums(u64 m, u64 per_chunk, int kind, float* x, const float* y, float* part) {
    __shared__ float shared[256];
    u64 j = blockIdx.y, chunk = blockIdx.z, end = min(m, (chunk + 1) * per_chunk);
    float sum = 0.0f;
    for (u64 r = chunk * per_chunk + threadIdx.x; r < end; r += 256) {
        u64 at = j * m + r;
        float v = x[at];
        if (kind == 0) sum = fmaf(v, y[at], sum);
        else {
            if (kind == 2 && y) { v *= y[at]; x[at] = v; }
            sum += v;
        }
    }
    shared[threadIdx.x] = sum;
    for (u32 half = 128; half; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (threadIdx.x == 0) part[j * gridDim.z + chunk] = shared[0];
}

// out[j * stride + c] = f(sum over chunks of part). finish 0: the sum; 1: 1/sqrt(sum/m), zero where it vanishes; 2: sum/m.
extern "C" __global__ void finish_sums(u64 count, u64 n, u64 chunks, u64 m, int finish, const float* part, float* out, u64 stride) {
    EACH(i, count * n) {
        u64 j = i / n, c = i % n;
        float sum = 0.0f;
        for (u64 l = 0; l < chunks; ++l) sum += part[(j * chunks + l) * n + c];
        if (finish == 1) { float mean = sum / (float)m; sum = mean < 1e-30f ? 0.0f : 1.0f / sqrtf(mean); }
        if (finish == 2) sum /= (float)m;
        out[j * stride + c] = sum;
    }
}

// y_jbc *= factor_jc.
extern "C" __global__ void scale_columns(u64 total, u64 per, u64 n, const float* factor, u64 stride, float* y) {
    EACH(i, total) y[i] *= factor[i / per * stride + i % n];
}

// t = s (t - y mean).
extern "C" __global__ void norm_tangent(u64 total, u64 per, u64 n, const float* y, const float* s, const float* mean, float* t) {
    EACH(i, total) {
        u64 at = i / per * n + i % n;
        t[i] = s[at] * (t[i] - y[i] * mean[at]);
    }
}

// Sums of squares in double: stage 0 one partial sum a block, stage 1 the partial sums in order.
extern "C" __global__ void sum_squares(u64 n, const float* x, double* part) {
    __shared__ double shared[256];
    double sum = 0.0;
    EACH(i, n) sum += (double)x[i] * x[i];
    shared[threadIdx.x] = sum;
    for (u32 half = 128; half; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (threadIdx.x == 0) part[blockIdx.x] = shared[0];
}
extern "C" __global__ void finish_squares(u32 blocks, const double* part, float* out) {
    __shared__ double shared[256];
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < blocks; i += 256) sum += part[i];
    shared[threadIdx.x] = sum;
    for (u32 half = 128; half; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[0] = (float)shared[0];
}

// bad[0] = 1 where an element is NaN or infinite.
extern "C" __global__ void any_not_finite(u64 n, const float* x, u32* bad) {
    EACH(i, n) if (!isfinite(x[i])) bad[0] = 1;
}

// One step of a rule. scalars: eta, 1/(1 - beta1^t), 1/(1 - beta2^t), all of the step, in device memory.
// norm: the squared norm of the gradient; a step whose norm is not finite is not made. rule 0: SGD, 1: RMSProp, 2: Adam.
extern "C" __global__ void update(u64 n, int rule, float a, float b, float epsilon, float decay, const float* scalars,
                                  const float* norm, float max_norm, int guard, float* theta, const float* grad, float* m, float* v) {
    float eta = scalars[0], factor = 1.0f;
    if (norm) {
        float square = norm[0];
        if (guard && !isfinite(square)) return;
        float length = sqrtf(square);
        if (length > max_norm) factor = max_norm / length;
    }
    EACH(i, n) {
        float g = factor * grad[i], x = theta[i];
        if (rule == 0) {
            if (decay != 0.0f) g = fmaf(decay, x, g);
            float m1 = fmaf(a, m[i], g);
            m[i] = m1;
            theta[i] = x - eta * m1;
        } else if (rule == 1) {
            float v1 = a * v[i] + (1.0f - a) * g * g;
            v[i] = v1;
            theta[i] = x - eta * g / (sqrtf(v1) + epsilon);
        } else {
            float m1 = fmaf(m[i], a, (1.0f - a) * g), v1 = fmaf(v[i], b, (1.0f - b) * g * g);
            m[i] = m1;
            v[i] = v1;
            float step = eta * scalars[1] * m1 / (sqrtf(v1 * scalars[2]) + epsilon);
            theta[i] = fmaf(x, 1.0f - eta * decay, -step);
        }
    }
}

// Value, gradient and Laplacian through phi, in place; y [k, orders * points, n].
extern "C" __global__ void jet(u64 count, u64 points, u64 n, u64 orders, int phi, const float* bias, u64 bias_stride, float* y) {
    u64 per = points * n;
    EACH(i, count * per) {
        u64 j = i / per, at = i % per, c = at % n;
        float* first = y + j * orders * per + at;
        float z = first[0] + (bias ? bias[j * bias_stride + c] : 0.0f), v, s;
        int f = formula(phi, c, n);
        activate(f, z, v, s);
        float curved = curvature(f, z, v, s), laplacian = first[(orders - 1) * per] * s;
        for (u64 o = 1; o + 1 < orders; ++o) {
            float g = first[o * per];
            laplacian = fmaf(curved * g, g, laplacian);
            first[o * per] = g * s;
        }
        first[0] = v;
        first[(orders - 1) * per] = laplacian;
    }
}

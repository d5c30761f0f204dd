// Kernels beneath the primitives of mercer::compute. Activations are generated: activate(phi, p, z, value, slope) and curvature.
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

// out_j = x_j^T for x_j [m, n], which lie x_stride apart; a block of 32 x 8 threads has a 32 x 32 tile.
extern "C" __global__ void transpose(u64 m, u64 n, const float* x, u64 x_stride, float* out) {
    __shared__ float tile[32][33];
    u32 tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    u64 across = (n + 31) / 32, j = blockIdx.y;
    u64 r0 = blockIdx.x / across * 32, c0 = blockIdx.x % across * 32;
    UNROLLED(l, 4) {
        u32 r = ty + 8 * l;
        if (r0 + r < m && c0 + tx < n) tile[r][tx] = x[j * x_stride + (r0 + r) * n + c0 + tx];
    }
    __syncthreads();
    UNROLLED(l, 4) {
        u32 c = ty + 8 * l;
        if (c0 + c < n && r0 + tx < m) out[j * m * n + (c0 + c) * m + r0 + tx] = tile[tx][c];
    }
}

// c_j = alpha a_j b_j^T + beta c_j for columns a_j [m] and b_j [n]: a product over one element, which is but written.
// V = 4 numbers at a time where rows are whole fours.
template <int V> struct alignas(4 * V) Pack { float v[V]; };
typedef Pack<4> Four;
template <int V>
INLINE void outer(u64 m, u64 n, float alpha, const float* a, u64 a_stride, const float* b, u64 b_stride, float beta,
                                      float* c, u64 c_stride) {
    a += blockIdx.y * a_stride;
    b += blockIdx.y * b_stride;
    Pack<V>* mine = (Pack<V>*)(c + blockIdx.y * c_stride);
    u32 across = (u32)(n / V);
    for (u64 i = blockIdx.x; i < m; i += gridDim.x) {
        float scale = alpha * a[i];
        for (u32 at = threadIdx.x; at < across; at += blockDim.x) {
            Pack<V> p;
            if (beta != 0.0f) p = mine[i * across + at];
            UNROLLED(l, V) p.v[l] = beta != 0.0f ? fmaf(scale, b[V * at + l], beta * p.v[l]) : scale * b[V * at + l];
            mine[i * across + at] = p;
        }
    }
}
#define OUTER(name, V) \
    extern "C" __global__ void name(u64 m, u64 n, float alpha, const float* a, u64 a_stride, const float* b, u64 b_stride, float beta, \
                                    float* c, u64 c_stride) { outer<V>(m, n, alpha, a, a_stride, b, b_stride, beta, c, c_stride); }
OUTER(outer_1, 1)
OUTER(outer_4, 4)

// The nearest bf16, ties to even; NaN stays NaN.
INLINE u32 bf16(float x) {
    u32 bits = __float_as_uint(x);
    return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

// out_j = x_j in bf16, size numbers of matrix j = blockIdx.y; four at a time, x_j perhaps not at a multiple of 16 bytes.
extern "C" __global__ void to_bf16(u64 size, const float* x, u64 x_stride, unsigned short* out, u64 out_stride) {
    x += blockIdx.y * x_stride;
    out += blockIdx.y * out_stride;
    bool aligned = ((u64)x & 15) == 0;
    EACH(i, size / 4) {
        Four four;
        if (aligned) four = ((const Four*)x)[i];
        else for (int l = 0; l < 4; ++l) four.v[l] = x[4 * i + l];
        ((uint2*)out)[i] = make_uint2(bf16(four.v[0]) | bf16(four.v[1]) << 16, bf16(four.v[2]) | bf16(four.v[3]) << 16);
    }
    u64 last = size / 4 * 4 + threadIdx.x;
    if (blockIdx.x == 0 && last < size) out[last] = (unsigned short)bf16(x[last]);
}

// Philox 4x32-10: four random words for a counter and a key.
INLINE uint4 philox(u64 counter, u64 key) {
    uint4 c = make_uint4((u32)counter, (u32)(counter >> 32), 0, 0);
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
    UNROLLED(round, 10) {
        u32 h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
        u32 h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
        c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

// (0, 1]
INLINE float unit(u32 word) { return ((float)(word >> 8) + 1.0f) * 5.9604644775390625e-8f; }

// law 0: N(0,1); 1: signs. Each thread makes four numbers.
extern "C" __global__ void fill_random(u64 n, u64 key, int law, float* y) {
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
            UNROLLED(l, 4) v[l] = words[l] >> 31 ? -1.0f : 1.0f;
        }
        UNROLLED(l, 4) if (4 * q + l < n) y[4 * q + l] = v[l];
    }
}

// Sum over the 8 rows of threads of a 32 x 8 block; valid in the first row of threads.
INLINE float fold(float v, float (*shared)[33], u32 tx, u32 ty) {
    __syncthreads();
    shared[ty][tx] = v;
    __syncthreads();
    float sum = 0.0f;
    if (ty == 0) {
        UNROLLED(l, 8) sum += shared[l][tx];
    }
    return sum;
}

// Adds one term to a column sum. kind 0: x y; 1: x; 2: x, after x *= y in place where there is y.
INLINE float add_term(float sum, int kind, float* x, const float* y, u64 at) {
    float v = x[at];
    if (kind == 0) return fmaf(v, y[at], sum);
    if (kind == 2 && y) x[at] = v *= y[at];
    return sum + v;
}

// Columns of m x n matrices: block (column group, matrix, chunk of rows) of 32 x 8 threads; each block writes its partial
// sum to part[((matrix * chunks) + chunk) * n + c]; kind: see add_term.
extern "C" __global__ void column_sums(u64 m, u64 n, u64 rows_per_chunk, int kind, float* x, const float* y, float* part) {
    __shared__ float shared[8][33];
    u32 tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    u64 c = (u64)blockIdx.x * 32 + tx, j = blockIdx.y, chunk = blockIdx.z;
    u64 end = min(m, (chunk + 1) * rows_per_chunk);
    float sum = 0.0f;
    if (c < n)
        for (u64 r = chunk * rows_per_chunk + ty; r < end; r += 8) sum = add_term(sum, kind, x, y, (j * m + r) * n + c);
    sum = fold(sum, shared, tx, ty);
    if (ty == 0 && c < n) part[(j * gridDim.z + chunk) * n + c] = sum;
}

// The same of kind 2 in fours: block (group of 32 fours, matrix, chunk). Four rows are under way at a time.
extern "C" __global__ void __launch_bounds__(256) slope_sums(u64 m, u64 n, u64 rows_per_chunk, float* g, const float* slope, float* part) {
    __shared__ float shared[8][33];
    u32 tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    u64 fours = n / 4, c = (u64)blockIdx.x * 32 + tx, j = blockIdx.y, chunk = blockIdx.z;
    u64 begin = chunk * rows_per_chunk + ty, end = min(m, (chunk + 1) * rows_per_chunk);
    Four* mine = (Four*)g + j * m * fours + c;
    const Four* slopes = (const Four*)slope + j * m * fours + c;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (u64 first = begin; c < fours && first < end; first += 32) {
        Four x[4], y[4];
        UNROLLED(r, 4)
            if (first + 8 * r < end) { x[r] = mine[(first + 8 * r) * fours]; y[r] = slopes[(first + 8 * r) * fours]; }
        UNROLLED(r, 4)
            if (first + 8 * r < end) {
                UNROLLED(l, 4) sum[l] += x[r].v[l] *= y[r].v[l];
                mine[(first + 8 * r) * fours] = x[r];
            }
    }
    UNROLLED(l, 4) {
        float total = fold(sum[l], shared, tx, ty);
        if (ty == 0 && c < fours) part[(j * gridDim.z + chunk) * n + 4 * c + l] = total;
    }
}

// Sum over a block of 256 threads; valid in the first thread.
template <class Real> INLINE Real tree_sum(Real v) {
    __shared__ Real shared[256];
    shared[threadIdx.x] = v;
    for (u32 half = 128; half; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    return shared[0];
}

// Narrow matrices (n = 1): one block of 256 threads for a matrix and chunk, neighbours in memory.
extern "C" __global__ void vector_sums(u64 m, u64 per_chunk, int kind, float* x, const float* y, float* part) {
    u64 j = blockIdx.y, chunk = blockIdx.z, end = min(m, (chunk + 1) * per_chunk);
    float sum = 0.0f;
    for (u64 r = chunk * per_chunk + threadIdx.x; r < end; r += 256) sum = add_term(sum, kind, x, y, j * m + r);
    sum = tree_sum(sum);
    if (threadIdx.x == 0) part[j * gridDim.z + chunk] = sum;
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

// y_jbc -= mean_jc.
extern "C" __global__ void subtract_columns(u64 total, u64 per, u64 n, const float* mean, float* y) {
    EACH(i, total) y[i] -= mean[i / per * n + i % n];
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
    double sum = 0.0;
    EACH(i, n / 4) {
        Four four = ((const Four*)x)[i];
        UNROLLED(l, 4) sum += (double)four.v[l] * four.v[l];
    }
    u64 last = n / 4 * 4 + threadIdx.x;
    if (blockIdx.x == 0 && last < n) sum += (double)x[last] * x[last];
    sum = tree_sum(sum);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}
extern "C" __global__ void finish_squares(u32 blocks, const double* part, float* out) {
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < blocks; i += 256) sum += part[i];
    sum = tree_sum(sum);
    if (threadIdx.x == 0) out[0] = (float)sum;
}

// bad[0] = 1 where an element is NaN or infinite.
extern "C" __global__ void any_not_finite(u64 n, const float* x, u32* bad) {
    EACH(i, n) if (!isfinite(x[i])) bad[0] = 1;
}

// A rule's step for one parameter x with gradient g and moments m, v. scalars: eta, 1/(1 - beta1^t), 1/(1 - beta2^t).
INLINE void move(int rule, float a, float b, float epsilon, float decay, const float (&scalars)[3], float g,
                                     float& x, float& m, float& v) {
    float eta = scalars[0];
    if (rule == 0) {
        if (decay != 0.0f) g = fmaf(decay, x, g);
        m = fmaf(a, m, g);
        x -= eta * m;
    } else if (rule == 1) {
        v = a * v + (1.0f - a) * g * g;
        x -= eta * g / (sqrtf(v) + epsilon);
    } else {
        m = fmaf(m, a, (1.0f - a) * g);
        v = fmaf(v, b, (1.0f - b) * g * g);
        x = fmaf(x, 1.0f - eta * decay, -(eta * scalars[1] * m / (sqrtf(v * scalars[2]) + epsilon)));
    }
}

// One step of a rule. at: its scalars, in device memory. norm: the squared norm of the gradient; a step whose norm is not
// finite is not made. rule 0: SGD, 1: RMSProp, 2: Adam. Fours, and the last three numbers by themselves.
extern "C" __global__ void update(u64 n, int rule, float a, float b, float epsilon, float decay, const float* at, const float* norm,
                                  float max_norm, int guard, float* theta, const float* grad, float* m, float* v) {
    float scalars[3] = {at[0], at[1], at[2]}, factor = 1.0f;
    if (norm) {
        float square = norm[0];
        if (guard && !isfinite(square)) return;
        float length = sqrtf(square);
        if (length > max_norm) factor = max_norm / length;
    }
    EACH(i, n / 4) {
        Four x = ((Four*)theta)[i], g = ((const Four*)grad)[i], p, q;
        if (rule != 1) p = ((Four*)m)[i];
        if (rule != 0) q = ((Four*)v)[i];
        UNROLLED(l, 4) move(rule, a, b, epsilon, decay, scalars, factor * g.v[l], x.v[l], p.v[l], q.v[l]);
        ((Four*)theta)[i] = x;
        if (rule != 1) ((Four*)m)[i] = p;
        if (rule != 0) ((Four*)v)[i] = q;
    }
    u64 last = n / 4 * 4 + threadIdx.x;
    if (blockIdx.x == 0 && last < n) {
        float p = rule != 1 ? m[last] : 0.0f, q = rule != 0 ? v[last] : 0.0f;
        move(rule, a, b, epsilon, decay, scalars, factor * grad[last], theta[last], p, q);
        if (rule != 1) m[last] = p;
        if (rule != 0) v[last] = q;
    }
}

// Sum over a block of 256 threads, returned to every thread.
INLINE double sum_of_block(double v, double* shared) {
#pragma unroll
    for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    double sum = 0.0;
    for (int i = 0; i < 8; ++i) sum += shared[i];
    return sum;
}

// Of each piece of a tensor: the sums of theta^2 and (g + decay theta)^2. table [pieces, 4]: start, length, first piece of the tensor, its
// pieces. A block has one piece.
extern "C" __global__ void tensor_sums(float decay, const unsigned* table, const float* theta, const float* grad, double* part) {
    __shared__ double shared[8];
    const unsigned* own = table + 4 * blockIdx.x;
    double a = 0.0, b = 0.0;
    for (unsigned i = threadIdx.x; i < own[1]; i += 256) {
        double x = theta[own[0] + i], g = grad[own[0] + i] + (double)decay * x;
        a += x * x;
        b += g * g;
    }
    a = sum_of_block(a, shared);
    b = sum_of_block(b, shared);
    if (threadIdx.x == 0) {
        part[2 * blockIdx.x] = a;
        part[2 * blockIdx.x + 1] = b;
    }
}

// g = rate (g + decay theta), where the rate is trust |theta| / |g + decay theta| of the whole tensor.
extern "C" __global__ void adapt(float trust, float decay, const unsigned* table, const float* theta, const double* part, float* grad) {
    __shared__ double shared[8];
    const unsigned* own = table + 4 * blockIdx.x;
    double a = 0.0, b = 0.0;
    for (unsigned i = threadIdx.x; i < own[3]; i += 256) {
        a += part[2 * (own[2] + i)];
        b += part[2 * (own[2] + i) + 1];
    }
    a = sum_of_block(a, shared);
    b = sum_of_block(b, shared);
    float rate = a > 0.0 && b > 0.0 ? (float)(trust * sqrt(a / b)) : b == b ? 1.0f : (float)b;
    for (unsigned i = threadIdx.x; i < own[1]; i += 256) {
        unsigned at = own[0] + i;
        grad[at] = rate * fmaf(decay, theta[at], grad[at]);
    }
}

// Value, gradient and Laplacian through phi, in place; y [k, orders * points, n].
extern "C" __global__ void jet(u64 count, u64 points, u64 n, u64 orders, int phi, Parameters p, const float* bias, u64 bias_stride, float* y) {
    u64 per = points * n;
    EACH(i, count * per) {
        u64 j = i / per, at = i % per, c = at % n;
        float* first = y + j * orders * per + at;
        float z = first[0] + (bias ? bias[j * bias_stride + c] : 0.0f), v, s;
        int f = formula(phi, c, n);
        activate(f, p, z, v, s);
        float curved = curvature(f, p, z, v, s), laplacian = first[(orders - 1) * per] * s;
        for (u64 o = 1; o + 1 < orders; ++o) {
            float g = first[o * per];
            laplacian = fmaf(curved * g, g, laplacian);
            first[o * per] = g * s;
        }
        first[0] = v;
        first[(orders - 1) * per] = laplacian;
    }
}

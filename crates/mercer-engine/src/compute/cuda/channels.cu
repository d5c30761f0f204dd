// Kernels on the channels of images. A row is an image [channels, plane] of f32; blockIdx.y is the network, and indices count
// within one network. Sums run in an order that depends on the shapes alone.
//
// #define V  elements that are read and written at once, 1 or 4; extents are counted in packs of V unless stated otherwise
// EPSILON and the activations, activate(phi, p, z, value, slope), are inserted before this text.

typedef unsigned int u32;
typedef unsigned long long u64;

#define EACH(i, n) for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)
#define KERNEL extern "C" __global__ void

struct alignas(4 * V) Pack { float v[V]; };
INLINE Pack load(const float* x, u32 i) { return reinterpret_cast<const Pack*>(x)[i]; }
INLINE void store(float* x, u32 i, Pack p) { reinterpret_cast<Pack*>(x)[i] = p; }

// Sum over a block of 256 threads, returned to every thread.
INLINE float block_sum(float v, float* shared) {
#pragma unroll
    for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = shared[threadIdx.x % 8];
#pragma unroll
    for (int step = 4; step; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

// ---- bias and activation: rows of n packs, one b per channel of `plane` elements ----

INLINE float bias_at(const float* bias, u32 plane, u32 at) { return bias ? bias[plane == 1 ? at : at / plane] : 0.0f; }

// y = phi(y + b), slope = phi'(y + b).
KERNEL channel_bias_activation(u32 per, u32 n, u32 plane, int phi, Parameters parameters, const float* bias, u64 bias_stride, float* y, float* slope) {
    u64 first = (u64)blockIdx.y * per * V;
    if (bias) bias += blockIdx.y * bias_stride;
    EACH(i, per) {
        u32 at = i % n * V;
        Pack p = load(y + first, i), s;
        UNROLLED(l, V) activate(formula(phi, at + l, n * V), parameters, p.v[l] + bias_at(bias, plane, at + l), p.v[l], s.v[l]);
        store(y + first, i, p);
        if (slope) store(slope + first, i, s);
    }
}

// t = (t + b) * slope.
KERNEL channel_bias_slope(u32 per, u32 n, u32 plane, const float* bias, u64 bias_stride, const float* slope, float* t) {
    u64 first = (u64)blockIdx.y * per * V;
    if (bias) bias += blockIdx.y * bias_stride;
    EACH(i, per) {
        u32 at = i % n * V;
        Pack p = load(t + first, i), s;
        if (slope) s = load(slope + first, i);
        UNROLLED(l, V) {
            float v = p.v[l] + bias_at(bias, plane, at + l);
            p.v[l] = slope ? v * s.v[l] : v;
        }
        store(t + first, i, p);
    }
}

// ---- sums over a channel: the grid is (channel, network, chunk of images), with 256 threads per block ----

struct Chunk { u32 first, count; };
INLINE Chunk chunk_of(u32 rows, u32 per_chunk, u32 chunk, u32 plane) {
    u32 first = chunk * per_chunk;
    return {first, (min(rows, first + per_chunk) - first) * plane};
}

// Calls f with the index of each pack of the block's channel in the chunk.
template <class F> INLINE void each_pack(Chunk chunk, u32 channels, u32 plane, F f) {
#pragma unroll 4
    for (u32 e = threadIdx.x; e < chunk.count; e += 256) f(((chunk.first + e / plane) * channels + blockIdx.x) * plane + e % plane);
}

// part = two sums of the block.
INLINE void put(float* part, float first, float second) {
    if (threadIdx.x) return;
    u64 at = (((u64)blockIdx.y * gridDim.x + blockIdx.x) * gridDim.z + blockIdx.z) * 2;
    part[at] = first;
    part[at + 1] = second;
}

// part = mean and sum (x - mean)^2 of the chunk, in two passes.
KERNEL moments(u32 rows, u32 channels, u32 plane, u32 per_chunk, const float* x, u64 stride, float* part) {
    __shared__ float shared[8];
    Chunk chunk = chunk_of(rows, per_chunk, blockIdx.z, plane);
    x += blockIdx.y * stride;
    float sum = 0.0f, squares = 0.0f;
    each_pack(chunk, channels, plane, [&](u32 i) {
        Pack p = load(x, i);
        UNROLLED(l, V) sum += p.v[l];
    });
    float mean = block_sum(sum, shared) / ((float)chunk.count * V);
    each_pack(chunk, channels, plane, [&](u32 i) {
        Pack p = load(x, i);
        UNROLLED(l, V) squares = fmaf(p.v[l] - mean, p.v[l] - mean, squares);
    });
    put(part, mean, block_sum(squares, shared));
}

// Combines the chunks: n var = sum_l (squares_l + n_l (mean_l - mean)^2). statistics [k, 2, channels]; `plane` in elements.
KERNEL finish_moments(u32 rows, u32 channels, u32 plane, u32 per_chunk, u32 chunks, const float* part, float* statistics) {
    EACH(c, channels) {
        const float* own = part + ((u64)blockIdx.y * channels + c) * chunks * 2;
        double n = (double)rows * plane, mean = 0.0, squares = 0.0;
        for (u32 l = 0; l < chunks; ++l) mean += own[2 * l] * (double)chunk_of(rows, per_chunk, l, plane).count;
        mean /= n;
        for (u32 l = 0; l < chunks; ++l) {
            double off = own[2 * l] - mean;
            squares += own[2 * l + 1] + off * off * chunk_of(rows, per_chunk, l, plane).count;
        }
        float* out = statistics + (u64)blockIdx.y * 2 * channels + c;
        out[0] = (float)mean;
        out[channels] = (float)(squares / n);
    }
}

// part = sum g and sum g (x - mean) of the chunk; without x only the first.
KERNEL dots(u32 rows, u32 channels, u32 plane, u32 per_chunk, const float* x, u64 stride, const float* statistics,
            u64 statistics_stride, const float* g, u64 g_stride, float* part) {
    __shared__ float shared[8];
    Chunk chunk = chunk_of(rows, per_chunk, blockIdx.z, plane);
    g += blockIdx.y * g_stride;
    float sum = 0.0f, product = 0.0f;
    if (x) {
        x += blockIdx.y * stride;
        float mean = statistics[blockIdx.y * statistics_stride + blockIdx.x];
        each_pack(chunk, channels, plane, [&](u32 i) {
            Pack p = load(x, i), q = load(g, i);
            UNROLLED(l, V) { sum += q.v[l]; product = fmaf(p.v[l] - mean, q.v[l], product); }
        });
        product = block_sum(product, shared);
    } else {
        each_pack(chunk, channels, plane, [&](u32 i) {
            Pack q = load(g, i);
            UNROLLED(l, V) sum += q.v[l];
        });
    }
    put(part, block_sum(sum, shared), product);
}

INLINE float inverse_root(const float* variance) { return 1.0f / sqrtf(*variance + EPSILON); }

// out [k, 2, channels] with stride out_stride: sum g x^ and sum g, with x^ = (x - mean) s; without statistics out [k, channels]
// is sum g.
KERNEL finish_dots(u32 channels, u32 chunks, const float* part, const float* statistics, u64 statistics_stride, float* out,
                   u64 out_stride) {
    EACH(c, channels) {
        const float* own = part + ((u64)blockIdx.y * channels + c) * chunks * 2;
        double sum = 0.0, product = 0.0;
        for (u32 l = 0; l < chunks; ++l) { sum += own[2 * l]; product += own[2 * l + 1]; }
        float* to = out + blockIdx.y * out_stride + c;
        if (statistics) {
            to[0] = (float)(product * inverse_root(statistics + blockIdx.y * statistics_stride + channels + c));
            to[channels] = (float)sum;
        } else to[0] = (float)sum;
    }
}

// ---- batch norm: without affine, gamma = 1 and beta = 0 ----

INLINE float gamma_at(const float* affine, u64 at) { return affine ? affine[at] : 1.0f; }
INLINE float beta_at(const float* affine, u64 at) { return affine ? affine[at] : 0.0f; }

// y = gamma s (x - mean) + beta.
KERNEL batch_norm(u32 per, u32 channels, u32 plane, const float* x, u64 stride, const float* statistics, u64 statistics_stride,
                  const float* affine, u64 affine_stride, float* y) {
    x += blockIdx.y * stride;
    y += (u64)blockIdx.y * per * V;
    statistics += blockIdx.y * statistics_stride;
    u64 own = blockIdx.y * affine_stride;
    EACH(i, per) {
        u32 c = i / plane % channels;
        float factor = gamma_at(affine, own + c) * inverse_root(statistics + channels + c), mean = statistics[c];
        float beta = beta_at(affine, own + channels + c);
        Pack p = load(x, i);
        UNROLLED(l, V) p.v[l] = fmaf(factor, p.v[l] - mean, beta);
        store(y, i, p);
    }
}

// dx = gamma s (g - share sum g - x^ share sum(g x^)), summed over `terms` networks; share = 1 / (rows plane), or zero
// if the statistics are fixed. grad [k, 2, channels] holds sum g x^ and sum g.
KERNEL batch_norm_back(u32 per, u32 channels, u32 plane, u32 terms, float share, const float* x, u64 stride, const float* statistics,
                       u64 statistics_stride, const float* affine, u64 affine_stride, const float* g, const float* grad,
                       u64 grad_stride, float* dx, u64 dx_stride) {
    dx += blockIdx.y * dx_stride;
    EACH(i, per) {
        u32 c = i / plane % channels;
        Pack sum = {};
        for (u32 j = blockIdx.y; j < blockIdx.y + terms; ++j) {
            const float* moments = statistics + j * statistics_stride + c;
            const float* sums = grad + j * grad_stride + c;
            float mean = moments[0], s = inverse_root(moments + channels), factor = gamma_at(affine, j * affine_stride + c) * s;
            float m0 = sums[channels] * share, m1 = sums[0] * share * s;
            Pack p = load(x + j * stride, i), q = load(g + (u64)j * per * V, i);
            UNROLLED(l, V) sum.v[l] = fmaf(factor, q.v[l] - m0 - (p.v[l] - mean) * m1, sum.v[l]);
        }
        store(dx, i, sum);
    }
}

// t = gamma s (dx - share sum dx - x^ share sum(dx x^)) + dgamma x^ + dbeta; sums [k, 2, channels] or none.
KERNEL batch_norm_tangent(u32 per, u32 channels, u32 plane, float share, const float* x, u64 stride, const float* dx, u64 dx_stride,
                          const float* sums, const float* statistics, u64 statistics_stride, const float* affine, u64 affine_stride,
                          const float* daffine, u64 daffine_stride, float* t) {
    u64 j = blockIdx.y;
    EACH(i, per) {
        u32 c = i / plane % channels;
        const float* moments = statistics + j * statistics_stride + c;
        float mean = moments[0], s = inverse_root(moments + channels), factor = gamma_at(affine, j * affine_stride + c) * s;
        float m0 = sums ? sums[2 * j * channels + channels + c] * share : 0.0f, m1 = sums ? sums[2 * j * channels + c] * share : 0.0f;
        float dgamma = daffine ? daffine[j * daffine_stride + c] : 0.0f, dbeta = daffine ? daffine[j * daffine_stride + channels + c] : 0.0f;
        Pack p = load(x + j * stride, i), d;
        if (dx) d = load(dx + j * dx_stride, i);
        UNROLLED(l, V) {
            float hat = (p.v[l] - mean) * s, moved = dx ? factor * (d.v[l] - m0 - hat * m1) : 0.0f;
            p.v[l] = moved + fmaf(dgamma, hat, dbeta);
        }
        store(t + j * per * V, i, p);
    }
}

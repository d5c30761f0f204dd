// Kernels for networks on images. A row is an image [channels, plane] of f32; blockIdx.y is the network, and indices count
// within one network. The order of sums depends on the shapes alone.
// EPSILON and the activations, activate(phi, z, value, slope), are inserted before this text.

typedef unsigned int u32;
typedef unsigned long long u64;

#define EACH(i, n) for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

// V elements that are read and written at once.
template <int V> struct alignas(4 * V) Pack { float v[V]; };
template <int V> __device__ __forceinline__ Pack<V> load(const float* x, u32 i) { return reinterpret_cast<const Pack<V>*>(x)[i]; }
template <int V> __device__ __forceinline__ void store(float* x, u32 i, Pack<V> p) { reinterpret_cast<Pack<V>*>(x)[i] = p; }

// Defines a kernel for single elements and one for packs of four. Extents are counted in packs.
#define WIDTHS(kernel, parameters, arguments) \
    extern "C" __global__ void kernel##_1 parameters { kernel<1> arguments; } \
    extern "C" __global__ void kernel##_4 parameters { kernel<4> arguments; }

// Sum over a block of 256 threads, returned to every thread.
__device__ __forceinline__ float block_sum(float v, float* shared) {
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

// ---- channels: bias, sums ----

// The formula of a unit: the second half of a sincos layer is the cosine.
__device__ __forceinline__ int formula(int phi, u32 column, u32 width) {
    return phi == SINCOS ? (column < width / 2 ? SIN : COS) : phi;
}

// y = phi(y + b), slope = phi'(y + b); rows of n packs, one b per channel of `plane` elements.
template <int V>
__device__ __forceinline__ void channel_bias_activation(u32 per, u32 n, u32 plane, int phi, const float* bias, u64 bias_stride, float* y, float* slope) {
    u64 first = (u64)blockIdx.y * per * V;
    if (bias) bias += blockIdx.y * bias_stride;
    EACH(i, per) {
        u32 at = i % n * V;
        Pack<V> p = load<V>(y + first, i), s;
#pragma unroll
        for (int l = 0; l < V; ++l) {
            float z = p.v[l] + (bias ? bias[plane == 1 ? at + l : (at + l) / plane] : 0.0f);
            activate(formula(phi, at + l, n * V), z, p.v[l], s.v[l]);
        }
        store<V>(y + first, i, p);
        if (slope) store<V>(slope + first, i, s);
    }
}
WIDTHS(channel_bias_activation, (u32 per, u32 n, u32 plane, int phi, const float* bias, u64 bias_stride, float* y, float* slope),
       (per, n, plane, phi, bias, bias_stride, y, slope))

// t = (t + b) * slope.
template <int V>
__device__ __forceinline__ void channel_bias_slope(u32 per, u32 n, u32 plane, const float* bias, u64 bias_stride, const float* slope, float* t) {
    u64 first = (u64)blockIdx.y * per * V;
    if (bias) bias += blockIdx.y * bias_stride;
    EACH(i, per) {
        u32 at = i % n * V;
        Pack<V> p = load<V>(t + first, i), s;
        if (slope) s = load<V>(slope + first, i);
#pragma unroll
        for (int l = 0; l < V; ++l) {
            float v = p.v[l] + (bias ? bias[plane == 1 ? at + l : (at + l) / plane] : 0.0f);
            p.v[l] = slope ? v * s.v[l] : v;
        }
        store<V>(t + first, i, p);
    }
}
WIDTHS(channel_bias_slope, (u32 per, u32 n, u32 plane, const float* bias, u64 bias_stride, const float* slope, float* t),
       (per, n, plane, bias, bias_stride, slope, t))

// The images of one chunk. The grid is (channel, network, chunk), with 256 threads per block.
struct Chunk { u32 first, count; };
__device__ __forceinline__ Chunk chunk_of(u32 rows, u32 per_chunk, u32 chunk, u32 plane) {
    u32 first = chunk * per_chunk;
    return {first, (min(rows, first + per_chunk) - first) * plane};
}
// Index of the e-th pack of a channel.
__device__ __forceinline__ u32 place(u32 e, Chunk chunk, u32 channels, u32 plane) {
    return ((chunk.first + e / plane) * channels + blockIdx.x) * plane + e % plane;
}
__device__ __forceinline__ u64 part_of() { return (((u64)blockIdx.y * gridDim.x + blockIdx.x) * gridDim.z + blockIdx.z) * 2; }

// part = mean and sum (x - mean)^2 of the chunk, in two passes.
template <int V>
__device__ void moments(u32 rows, u32 channels, u32 plane, u32 per_chunk, const float* x, u64 stride, float* part) {
    __shared__ float shared[8];
    Chunk chunk = chunk_of(rows, per_chunk, blockIdx.z, plane);
    x += blockIdx.y * stride;
    float sum = 0.0f;
#pragma unroll 4
    for (u32 e = threadIdx.x; e < chunk.count; e += 256) {
        Pack<V> p = load<V>(x, place(e, chunk, channels, plane));
#pragma unroll
        for (int l = 0; l < V; ++l) sum += p.v[l];
    }
    float mean = block_sum(sum, shared) / ((float)chunk.count * V), squares = 0.0f;
#pragma unroll 4
    for (u32 e = threadIdx.x; e < chunk.count; e += 256) {
        Pack<V> p = load<V>(x, place(e, chunk, channels, plane));
#pragma unroll
        for (int l = 0; l < V; ++l) squares = fmaf(p.v[l] - mean, p.v[l] - mean, squares);
    }
    squares = block_sum(squares, shared);
    if (threadIdx.x == 0) {
        part[part_of()] = mean;
        part[part_of() + 1] = squares;
    }
}
WIDTHS(moments, (u32 rows, u32 channels, u32 plane, u32 per_chunk, const float* x, u64 stride, float* part),
       (rows, channels, plane, per_chunk, x, stride, part))

// Combines the chunks: n var = sum_l (squares_l + n_l (mean_l - mean)^2). statistics [k, 2, channels]; `plane` in elements.
extern "C" __global__ void finish_moments(u32 rows, u32 channels, u32 plane, u32 per_chunk, u32 chunks, const float* part, float* statistics) {
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
template <int V>
__device__ void dots(u32 rows, u32 channels, u32 plane, u32 per_chunk, const float* x, u64 stride, const float* statistics,
                     u64 statistics_stride, const float* g, u64 g_stride, float* part) {
    __shared__ float shared[8];
    Chunk chunk = chunk_of(rows, per_chunk, blockIdx.z, plane);
    g += blockIdx.y * g_stride;
    float sum = 0.0f, product = 0.0f;
    if (x) {
        x += blockIdx.y * stride;
        float mean = statistics[blockIdx.y * statistics_stride + blockIdx.x];
#pragma unroll 4
        for (u32 e = threadIdx.x; e < chunk.count; e += 256) {
            u32 at = place(e, chunk, channels, plane);
            Pack<V> p = load<V>(x, at), q = load<V>(g, at);
#pragma unroll
            for (int l = 0; l < V; ++l) { sum += q.v[l]; product = fmaf(p.v[l] - mean, q.v[l], product); }
        }
        product = block_sum(product, shared);
    } else {
#pragma unroll 4
        for (u32 e = threadIdx.x; e < chunk.count; e += 256) {
            Pack<V> q = load<V>(g, place(e, chunk, channels, plane));
#pragma unroll
            for (int l = 0; l < V; ++l) sum += q.v[l];
        }
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) {
        part[part_of()] = sum;
        part[part_of() + 1] = product;
    }
}
WIDTHS(dots, (u32 rows, u32 channels, u32 plane, u32 per_chunk, const float* x, u64 stride, const float* statistics,
              u64 statistics_stride, const float* g, u64 g_stride, float* part),
       (rows, channels, plane, per_chunk, x, stride, statistics, statistics_stride, g, g_stride, part))

__device__ __forceinline__ float inverse_root(const float* variance) { return 1.0f / sqrtf(*variance + EPSILON); }

// out [k, 2, channels] with stride out_stride: sum g x^ and sum g, with x^ = (x - mean) s; without statistics out [k, channels]
// is sum g.
extern "C" __global__ void finish_dots(u32 channels, u32 chunks, const float* part, const float* statistics, u64 statistics_stride,
                                       float* out, u64 out_stride) {
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

// ---- batch norm ----

// y = gamma s (x - mean) + beta.
template <int V>
__device__ void batch_norm(u32 per, u32 channels, u32 plane, const float* x, u64 stride, const float* statistics,
                           u64 statistics_stride, const float* affine, u64 affine_stride, float* y) {
    x += blockIdx.y * stride;
    y += (u64)blockIdx.y * per * V;
    statistics += blockIdx.y * statistics_stride;
    affine += blockIdx.y * affine_stride;
    EACH(i, per) {
        u32 c = i / plane % channels;
        float factor = affine[c] * inverse_root(statistics + channels + c), mean = statistics[c], beta = affine[channels + c];
        Pack<V> p = load<V>(x, i);
#pragma unroll
        for (int l = 0; l < V; ++l) p.v[l] = fmaf(factor, p.v[l] - mean, beta);
        store<V>(y, i, p);
    }
}
WIDTHS(batch_norm, (u32 per, u32 channels, u32 plane, const float* x, u64 stride, const float* statistics,
                    u64 statistics_stride, const float* affine, u64 affine_stride, float* y),
       (per, channels, plane, x, stride, statistics, statistics_stride, affine, affine_stride, y))

// dx = gamma s (g - share sum g - x^ share sum(g x^)), summed over `terms` networks; share = 1 / (rows plane), or zero
// if the statistics are fixed. grad [k, 2, channels] holds sum g x^ and sum g.
template <int V>
__device__ void batch_norm_back(u32 per, u32 channels, u32 plane, u32 terms, float share, const float* x, u64 stride,
                                const float* statistics, u64 statistics_stride, const float* affine, u64 affine_stride,
                                const float* g, const float* grad, u64 grad_stride, float* dx, u64 dx_stride) {
    dx += blockIdx.y * dx_stride;
    EACH(i, per) {
        u32 c = i / plane % channels;
        Pack<V> sum;
#pragma unroll
        for (int l = 0; l < V; ++l) sum.v[l] = 0.0f;
        for (u32 j = blockIdx.y; j < blockIdx.y + terms; ++j) {
            const float* moments = statistics + j * statistics_stride + c;
            const float* sums = grad + j * grad_stride + c;
            float mean = moments[0], s = inverse_root(moments + channels), factor = affine[j * affine_stride + c] * s;
            float m0 = sums[channels] * share, m1 = sums[0] * share * s;
            Pack<V> p = load<V>(x + j * stride, i), q = load<V>(g + (u64)j * per * V, i);
#pragma unroll
            for (int l = 0; l < V; ++l) sum.v[l] = fmaf(factor, q.v[l] - m0 - (p.v[l] - mean) * m1, sum.v[l]);
        }
        store<V>(dx, i, sum);
    }
}
WIDTHS(batch_norm_back, (u32 per, u32 channels, u32 plane, u32 terms, float share, const float* x, u64 stride,
                         const float* statistics, u64 statistics_stride, const float* affine, u64 affine_stride,
                         const float* g, const float* grad, u64 grad_stride, float* dx, u64 dx_stride),
       (per, channels, plane, terms, share, x, stride, statistics, statistics_stride, affine, affine_stride, g, grad, grad_stride, dx, dx_stride))

// t = gamma s (dx - share sum dx - x^ share sum(dx x^)) + dgamma x^ + dbeta; sums [k, 2, channels] or none.
template <int V>
__device__ void batch_norm_tangent(u32 per, u32 channels, u32 plane, float share, const float* x, u64 stride, const float* dx, u64 dx_stride,
                                   const float* sums, const float* statistics, u64 statistics_stride, const float* affine,
                                   u64 affine_stride, const float* daffine, u64 daffine_stride, float* t) {
    u64 j = blockIdx.y;
    EACH(i, per) {
        u32 c = i / plane % channels;
        const float* moments = statistics + j * statistics_stride + c;
        float mean = moments[0], s = inverse_root(moments + channels), factor = affine[j * affine_stride + c] * s;
        float m0 = sums ? sums[2 * j * channels + channels + c] * share : 0.0f, m1 = sums ? sums[2 * j * channels + c] * share : 0.0f;
        float dgamma = daffine ? daffine[j * daffine_stride + c] : 0.0f, dbeta = daffine ? daffine[j * daffine_stride + channels + c] : 0.0f;
        Pack<V> p = load<V>(x + j * stride, i), d;
        if (dx) d = load<V>(dx + j * dx_stride, i);
#pragma unroll
        for (int l = 0; l < V; ++l) {
            float hat = (p.v[l] - mean) * s, moved = dx ? factor * (d.v[l] - m0 - hat * m1) : 0.0f;
            p.v[l] = moved + fmaf(dgamma, hat, dbeta);
        }
        store<V>(t + j * per * V, i, p);
    }
}
WIDTHS(batch_norm_tangent, (u32 per, u32 channels, u32 plane, float share, const float* x, u64 stride, const float* dx, u64 dx_stride,
                            const float* sums, const float* statistics, u64 statistics_stride, const float* affine,
                            u64 affine_stride, const float* daffine, u64 daffine_stride, float* t),
       (per, channels, plane, share, x, stride, dx, dx_stride, sums, statistics, statistics_stride, affine, affine_stride, daffine, daffine_stride, t))

// y = (1 - share) y + share x.
extern "C" __global__ void running_average(u32 n, float share, const float* x, u64 x_stride, float* y, u64 y_stride) {
    x += blockIdx.y * x_stride;
    y += blockIdx.y * y_stride;
    EACH(i, n) y[i] = (1.0f - share) * y[i] + share * x[i];
}

// ---- pooling: windows of h x w on planes of height x width, to planes of down x across ----

__device__ __forceinline__ u32 corner(u32 o, u32 width, u32 h, u32 w, u32 down, u32 across) {
    return (o / across % down * h) * width + o % across * w;
}

// at = index of the maximum in its plane, the first one if several are equal. NaN counts as the largest value.
extern "C" __global__ void max_pool(u32 per, u32 height, u32 width, u32 h, u32 w, u32 down, u32 across, const float* x, float* y, float* at) {
    x += (u64)blockIdx.y * (per / (down * across)) * height * width;
    y += (u64)blockIdx.y * per;
    at += (u64)blockIdx.y * per;
    EACH(o, per) {
        const float* from = x + (u64)(o / (down * across)) * height * width;
        u32 first = corner(o, width, h, w, down, across), best = first;
        float most = from[first];
        for (u32 u = 0; u < h; ++u)
            for (u32 v = 0; v < w; ++v) {
                float value = from[first + u * width + v];
                if (value > most || (isnan(value) && !isnan(most))) { most = value; best = first + u * width + v; }
            }
        y[o] = most;
        at[o] = (float)best;
    }
}

// per: number of inputs of one network.
extern "C" __global__ void max_pool_back(u32 per, u32 height, u32 width, u32 h, u32 w, u32 down, u32 across, const float* at, const float* g, float* dx) {
    u64 outputs = (u64)blockIdx.y * (per / (height * width)) * down * across;
    dx += (u64)blockIdx.y * per;
    EACH(i, per) {
        u32 p = i % (height * width), row = p / width / h, col = p % width / w;
        float v = 0.0f;
        if (row < down && col < across) {
            u64 o = outputs + ((u64)(i / (height * width)) * down + row) * across + col;
            if ((u32)at[o] == p) v = g[o];
        }
        dx[i] = v;
    }
}

// t = dx at the indices of the maxima; per: number of outputs of one network.
extern "C" __global__ void max_pool_tangent(u32 per, u32 large, u32 small, const float* at, const float* dx, float* t) {
    u64 first = (u64)blockIdx.y * per;
    EACH(o, per) t[first + o] = dx[((u64)blockIdx.y * (per / small) + o / small) * large + (u32)at[first + o]];
}

// One warp per window: each lane sums every 32nd element, and a tree adds the lanes.
extern "C" __global__ void average_pool(u32 per, u32 height, u32 width, u32 h, u32 w, u32 down, u32 across, float share, const float* x, float* y) {
    x += (u64)blockIdx.y * (per / (down * across)) * height * width;
    y += (u64)blockIdx.y * per;
    u32 lane = threadIdx.x % 32, warps = gridDim.x * blockDim.x / 32;
    for (u32 o = (blockIdx.x * blockDim.x + threadIdx.x) / 32; o < per; o += warps) {
        const float* from = x + (u64)(o / (down * across)) * height * width + corner(o, width, h, w, down, across);
        float sum = 0.0f;
        for (u32 e = lane; e < h * w; e += 32) sum += from[e / w * width + e % w];
#pragma unroll
        for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) y[o] = sum * share;
    }
}

extern "C" __global__ void average_pool_back(u32 per, u32 height, u32 width, u32 h, u32 w, u32 down, u32 across, float share, const float* g, float* dx) {
    g += (u64)blockIdx.y * (per / (height * width)) * down * across;
    dx += (u64)blockIdx.y * per;
    EACH(i, per) {
        u32 p = i % (height * width), row = p / width / h, col = p % width / w;
        bool inside = row < down && col < across;
        dx[i] = inside ? share * g[((u64)(i / (height * width)) * down + row) * across + col] : 0.0f;
    }
}

// ---- between networks ----

// y = x or y + x.
extern "C" __global__ void spread(u32 per, int add, const float* x, u64 stride, float* y) {
    x += blockIdx.y * stride;
    y += (u64)blockIdx.y * per;
    EACH(i, per) y[i] = add ? y[i] + x[i] : x[i];
}

// dx = sum over `terms` arrays g, or dx + that sum.
extern "C" __global__ void collect(u32 per, u32 terms, int add, const float* g, float* dx) {
    EACH(i, per) {
        float sum = add ? dx[i] : 0.0f;
        for (u32 j = 0; j < terms; ++j) sum += g[(u64)j * per + i];
        dx[i] = sum;
    }
}

// ---- the loss of a classifier, by one block of 1024 threads ----

extern "C" __global__ void softmax_cross_entropy(u32 batch, u32 classes, const float* logits, const float* labels, float* grad, float* totals) {
    __shared__ double losses[1024];
    __shared__ u32 rights[1024];
    double loss = 0.0;
    u32 right = 0;
    for (u32 b = threadIdx.x; b < batch; b += 1024) {
        const float* z = logits + (u64)b * classes;
        u32 label = (u32)labels[b];
        if (label >= classes) { loss = nan(""); continue; }
        float most = __int_as_float(0xff800000), sum = 0.0f;
        for (u32 c = 0; c < classes; ++c) most = fmaxf(most, z[c]);
        for (u32 c = 0; c < classes; ++c) sum += expf(z[c] - most);
        loss += logf(sum) - (z[label] - most);
        bool best = z[label] >= most;
        for (u32 c = 0; c < label; ++c) best = best && z[c] < most;
        right += best;
        if (grad) {
            float share = 1.0f / (sum * (float)batch);
            for (u32 c = 0; c < classes; ++c)
                grad[(u64)b * classes + c] = expf(z[c] - most) * share - (c == label ? 1.0f / (float)batch : 0.0f);
        }
    }
    losses[threadIdx.x] = loss;
    rights[threadIdx.x] = right;
    for (u32 half = 512; half; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) {
            losses[threadIdx.x] += losses[threadIdx.x + half];
            rights[threadIdx.x] += rights[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        totals[0] += (float)losses[0];
        totals[1] += (float)rights[0];
    }
}

// ---- augmentation: image blockIdx.y, moved by moves[3 b] = up, left, mirror ----

extern "C" __global__ void shift_mirror(u32 n, u32 height, u32 width, u32 images, const int* moves, const float* x, float* out) {
    for (u32 b = blockIdx.y; b < images; b += gridDim.y) {
        int up = moves[3 * b], left = moves[3 * b + 1], mirror = moves[3 * b + 2];
        u64 first = (u64)b * n;
        EACH(i, n) {
            u32 line = i / width;
            long long row = (long long)(line % height) + up, col = (long long)(i % width) + left;
            bool inside = row >= 0 && row < height && col >= 0 && col < width;
            u64 from = (line / height * height + (u32)row) * width + (u32)(mirror ? width - 1 - col : col);
            out[first + i] = inside ? x[first + from] : 0.0f;
        }
    }
}

// ---- patch matrices: image blockIdx.y; patches [images, channels * size^2, down * across] ----

extern "C" __global__ void gather_patches(u32 per, u32 height, u32 width, u32 size, u32 stride, int before, u32 down, u32 across,
                                          u32 pixels, const float* x, float* patches) {
    x += (u64)blockIdx.y * pixels;
    patches += (u64)blockIdx.y * per;
    EACH(i, per) {
        u32 p = i % (down * across), f = i / (down * across), tap = f % (size * size);
        int row = (int)(p / across * stride + tap / size) - before, col = (int)(p % across * stride + tap % size) - before;
        bool inside = row >= 0 && row < (int)height && col >= 0 && col < (int)width;
        patches[i] = inside ? x[(f / (size * size) * height + row) * width + col] : 0.0f;
    }
}

// The adjoint of gather_patches: each pixel sums the patch entries that were copied from it.
extern "C" __global__ void scatter_patches(u32 per, u32 height, u32 width, u32 size, u32 stride, int before, u32 down, u32 across,
                                           u32 pixels, int add, const float* patches, float* x) {
    x += (u64)blockIdx.y * pixels;
    patches += (u64)blockIdx.y * per;
    EACH(i, pixels) {
        u32 row = i / width % height + before, col = i % width + before, c = i / width / height;
        float sum = add ? x[i] : 0.0f;
        for (u32 tap = 0; tap < size * size; ++tap) {
            // row = r stride + u, col = s stride + v.
            u32 u = tap / size, v = tap % size;
            if (row < u || col < v || (row - u) % stride || (col - v) % stride) continue;
            u32 r = (row - u) / stride, s = (col - v) / stride;
            if (r < down && s < across) sum += patches[((c * size * size + tap) * down + r) * across + s];
        }
        x[i] = sum;
    }
}

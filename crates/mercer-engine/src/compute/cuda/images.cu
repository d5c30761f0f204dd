// Kernels for networks on images: pooling, sums over networks, the loss, augmentation, patches. A row is an image
// [channels, height, width] of f32; blockIdx.y is the network unless stated otherwise, and indices count within one network.
// The order of sums depends on the shapes alone.

typedef unsigned int u32;
typedef unsigned long long u64;

#define EACH(i, n) for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

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

// dx = share g of the window, everywhere in it or, with `at`, at that index only; per: number of inputs of one network.
extern "C" __global__ void pool_back(u32 per, u32 height, u32 width, u32 h, u32 w, u32 down, u32 across, float share, const float* at,
                                     const float* g, float* dx) {
    u64 outputs = (u64)blockIdx.y * (per / (height * width)) * down * across;
    dx += (u64)blockIdx.y * per;
    EACH(i, per) {
        u32 p = i % (height * width), row = p / width / h, col = p % width / w;
        float v = 0.0f;
        if (row < down && col < across) {
            u64 o = outputs + ((u64)(i / (height * width)) * down + row) * across + col;
            if (!at || (u32)at[o] == p) v = share * g[o];
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

// ---- the loss of a classifier: a warp has a row, then one block of 1024 threads adds up ----

// part [2, batch]: the loss of each row, and whether its label is the first of the largest.
extern "C" __global__ void softmax_rows(u32 batch, u32 classes, const float* logits, const float* labels, float* grad, double* part) {
    u32 lane = threadIdx.x % 32, warps = gridDim.x * blockDim.x / 32;
    for (u32 b = (blockIdx.x * blockDim.x + threadIdx.x) / 32; b < batch; b += warps) {
        const float* z = logits + (u64)b * classes;
        u32 label = (u32)labels[b];
        if (label >= classes) {
            if (lane == 0) {
                part[b] = nan("");
                part[batch + b] = 0.0;
            }
            continue;
        }
        float most = __int_as_float(0xff800000), sum = 0.0f;
        for (u32 c = lane; c < classes; c += 32) most = fmaxf(most, z[c]);
#pragma unroll
        for (int step = 16; step; step >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
        int before = 0;
        for (u32 c = lane; c < classes; c += 32) {
            sum += expf(z[c] - most);
            before |= c < label && !(z[c] < most);
        }
#pragma unroll
        for (int step = 16; step; step >>= 1) {
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
            before |= __shfl_xor_sync(0xffffffffu, before, step);
        }
        if (lane == 0) {
            part[b] = logf(sum) - (z[label] - most);
            part[batch + b] = z[label] >= most && !before ? 1.0 : 0.0;
        }
        if (grad) {
            float share = 1.0f / (sum * (float)batch);
            for (u32 c = lane; c < classes; c += 32)
                grad[(u64)b * classes + c] = expf(z[c] - most) * share - (c == label ? 1.0f / (float)batch : 0.0f);
        }
    }
}

// totals [2] += the sums of part.
extern "C" __global__ void softmax_totals(u32 batch, const double* part, float* totals) {
    __shared__ double losses[1024], rights[1024];
    double loss = 0.0, right = 0.0;
    for (u32 b = threadIdx.x; b < batch; b += 1024) {
        loss += part[b];
        right += part[batch + b];
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

extern "C" __global__ void gather_patches(u32 per, u32 height, u32 width, u32 size, u32 stride, int above, int left, u32 down, u32 across,
                                          u32 pixels, const float* x, float* patches) {
    x += (u64)blockIdx.y * pixels;
    patches += (u64)blockIdx.y * per;
    EACH(i, per) {
        u32 p = i % (down * across), f = i / (down * across), tap = f % (size * size);
        int row = (int)(p / across * stride + tap / size) - above, col = (int)(p % across * stride + tap % size) - left;
        bool inside = row >= 0 && row < (int)height && col >= 0 && col < (int)width;
        patches[i] = inside ? x[(f / (size * size) * height + row) * width + col] : 0.0f;
    }
}

// The adjoint of gather_patches: each pixel sums the patch entries that were copied from it.
extern "C" __global__ void scatter_patches(u32 per, u32 height, u32 width, u32 size, u32 stride, int above, int left, u32 down, u32 across,
                                           u32 pixels, int add, const float* patches, float* x) {
    x += (u64)blockIdx.y * pixels;
    patches += (u64)blockIdx.y * per;
    EACH(i, pixels) {
        u32 row = i / width % height + above, col = i % width + left, c = i / width / height;
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

// Images in bf16, channel last; `halves.rs` has the same formulas. Arrays are rows of `groups` packs of eight channels. A block has 256
// threads: a thread has one pack of channels in every row that it sees, 256 / groups rows lie side by side, and the rest of the threads
// rests. The order of sums depends on the shapes alone.
//
// EPSILON is inserted before this text.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

#define INLINE __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define EACH(i, n) for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)
#define EIGHT(l) _Pragma("unroll") for (int l = 0; l < 8; ++l)

struct alignas(16) Pack { u32 w[4]; };
struct Floats { float v[8]; };

INLINE float widen(u16 bits) { return __uint_as_float((u32)bits << 16); }

// The nearest bf16, ties to even; NaN stays NaN.
INLINE u32 nearest(float x) {
    u32 bits = __float_as_uint(x);
    return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

INLINE Floats open(Pack p) {
    Floats f;
#pragma unroll
    for (int l = 0; l < 4; ++l) {
        f.v[2 * l] = __uint_as_float(p.w[l] << 16);
        f.v[2 * l + 1] = __uint_as_float(p.w[l] & 0xffff0000u);
    }
    return f;
}

INLINE Pack closed(Floats f) {
    Pack p;
#pragma unroll
    for (int l = 0; l < 4; ++l) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p.w[l]) : "f"(f.v[2 * l + 1]), "f"(f.v[2 * l]));
#else
        p.w[l] = nearest(f.v[2 * l]) | nearest(f.v[2 * l + 1]) << 16;
#endif
    }
    return p;
}

// ---- layouts ----

// out [images, plane, 8 groups] = x [images, channels, plane]; channels that x does not have are zero.
KERNEL images(u32 count, u32 channels, u32 plane, u32 groups, const float* x, Pack* out) {
    EACH(i, count * plane * groups) {
        u32 group = i % groups, pixel = i / groups % plane, image = i / groups / plane;
        Floats f;
        EIGHT(l) f.v[l] = 8 * group + l < channels ? x[((u64)image * channels + 8 * group + l) * plane + pixel] : 0.0f;
        out[i] = closed(f);
    }
}

// out [rows, taps, padded] = w [rows, channels, taps].
KERNEL filters(u32 rows, u32 channels, u32 taps, u32 padded, const float* w, u16* out) {
    EACH(i, rows * taps * padded) {
        u32 c = i % padded, tap = i / padded % taps, o = i / padded / taps;
        out[i] = c < channels ? (u16)nearest(w[((u64)o * channels + c) * taps + tap]) : (u16)0;
    }
}

// grad [rows, channels, taps] = dw [rows, taps, padded].
KERNEL filter_gradient(u32 rows, u32 channels, u32 taps, u32 padded, const u16* dw, float* grad) {
    EACH(i, rows * channels * taps) {
        u32 tap = i % taps, c = i / taps % channels, o = i / taps / channels;
        grad[i] = widen(dw[((u64)o * taps + tap) * padded + c]);
    }
}

// y [images, 8 groups] = mean over the plane of x [images, plane, 8 groups].
KERNEL means(u32 count, u32 plane, u32 groups, const Pack* x, float* y) {
    EACH(i, count * groups) {
        const Pack* from = x + (u64)(i / groups) * plane * groups + i % groups;
        Floats sum = {};
        for (u32 pixel = 0; pixel < plane; ++pixel) {
            Floats f = open(from[pixel * groups]);
            EIGHT(l) sum.v[l] += f.v[l];
        }
        EIGHT(l) y[(u64)i * 8 + l] = sum.v[l] / (float)plane;
    }
}

// dx [images, plane, 8 groups] = g [images, 8 groups] / plane.
KERNEL means_back(u32 count, u32 plane, u32 groups, const float* g, Pack* dx) {
    EACH(i, count * plane * groups) {
        const float* from = g + ((u64)(i / groups / plane) * groups + i % groups) * 8;
        Floats f;
        EIGHT(l) f.v[l] = from[l] / (float)plane;
        dx[i] = closed(f);
    }
}

// ---- sums over the rows ----

// Runs f with the place of each of the thread's packs and what `load` reads there; two rows are read before either is used, so that more
// reads are under way.
template <class L, class F> INLINE void each_row(u32 rows, u32 groups, L load, F f) {
    u32 lanes = 256 / groups, lane = threadIdx.x / groups, step = gridDim.x * lanes;
    if (lane >= lanes) return;
    for (u32 row = blockIdx.x * lanes + lane; row < rows; row += 2 * step) {
        u64 i = (u64)row * groups + threadIdx.x % groups, j = i + (u64)step * groups;
        bool two = row + step < rows;
        auto a = load(i), b = load(two ? j : i);
        f(i, a);
        if (two) f(j, b);
    }
}

// part [blocks, 2, 8 groups] = the sums of the block's threads.
INLINE void put(u32 groups, Floats first, Floats second, float* part) {
    __shared__ float shared[16][256];
    EIGHT(l) {
        shared[l][threadIdx.x] = first.v[l];
        shared[8 + l][threadIdx.x] = second.v[l];
    }
    __syncthreads();
    u32 lanes = 256 / groups;
    for (u32 i = threadIdx.x; i < 16 * groups; i += 256) {
        u32 which = i / (8 * groups), c = i % (8 * groups);
        float sum = 0.0f;
        for (u32 lane = 0; lane < lanes; ++lane) sum += shared[8 * which + c % 8][lane * groups + c / 8];
        part[(u64)(2 * blockIdx.x + which) * 8 * groups + c] = sum;
    }
}

// Sums over the blocks of `part` for channel blockIdx.x * 8 + threadIdx.x % 8, in threads 0 to 7.
INLINE void gather(u32 channels, u32 blocks, const float* part, double* first, double* second) {
    __shared__ double shared[2][256];
    u32 c = blockIdx.x * 8 + threadIdx.x % 8;
    double a = 0.0, b = 0.0;
    for (u32 i = threadIdx.x / 8; i < blocks; i += 32) {
        a += part[(u64)2 * i * channels + c];
        b += part[((u64)2 * i + 1) * channels + c];
    }
    shared[0][threadIdx.x] = a;
    shared[1][threadIdx.x] = b;
    for (u32 half = 128; half >= 8; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) {
            shared[0][threadIdx.x] += shared[0][threadIdx.x + half];
            shared[1][threadIdx.x] += shared[1][threadIdx.x + half];
        }
    }
    *first = shared[0][threadIdx.x];
    *second = shared[1][threadIdx.x];
}

// part = sums of z - shift and of its square, where shift is the first row: a sample of each channel, so that nothing cancels.
KERNEL moments(u32 rows, u32 groups, const Pack* z, float* part) {
    Floats shift = open(z[threadIdx.x % groups]), sum = {}, squares = {};
    each_row(rows, groups, [&](u64 i) { return z[i]; }, [&](u64, Pack p) {
        Floats f = open(p);
        EIGHT(l) {
            float d = f.v[l] - shift.v[l];
            sum.v[l] += d;
            squares.v[l] = fmaf(d, d, squares.v[l]);
        }
    });
    put(groups, sum, squares, part);
}

// statistics [2, channels] = mean and biased variance. A block has eight channels.
KERNEL finish_moments(u32 rows, u32 channels, u32 blocks, const u16* z, const float* part, float* statistics) {
    double sum, squares;
    gather(channels, blocks, part, &sum, &squares);
    if (threadIdx.x >= 8) return;
    u32 c = blockIdx.x * 8 + threadIdx.x;
    double off = sum / rows, variance = squares / rows - off * off;
    statistics[c] = (float)(widen(z[c]) + off);
    statistics[channels + c] = variance > 0.0 ? (float)variance : variance == variance ? 0.0f : (float)variance;
}

// ---- batch norm: y = phi(gamma s (z - mean) + beta + plus) ----

// The factor gamma s and the offset beta - gamma s mean of the thread's channels.
INLINE void line(u32 groups, const float* statistics, const float* affine, Floats* factor, Floats* offset) {
    u32 first = threadIdx.x % groups * 8, channels = 8 * groups;
    EIGHT(l) {
        u32 c = first + l;
        factor->v[l] = affine[c] / sqrtf(statistics[channels + c] + EPSILON);
        offset->v[l] = affine[channels + c] - factor->v[l] * statistics[c];
    }
}

KERNEL batch_norm(u32 rows, u32 groups, int relu, const Pack* z, const float* statistics, const float* affine, const Pack* plus, Pack* y) {
    Floats factor, offset;
    line(groups, statistics, affine, &factor, &offset);
    struct Read { Pack z, plus; };
    auto load = [&](u64 i) {
        Read r = {z[i], {}};
        if (plus) r.plus = plus[i];
        return r;
    };
    each_row(rows, groups, load, [&](u64 i, Read r) {
        Floats f = open(r.z), more = open(r.plus);
        EIGHT(l) {
            float v = fmaf(factor.v[l], f.v[l], offset.v[l]) + more.v[l];
            f.v[l] = relu && v <= 0.0f ? 0.0f : v;
        }
        y[i] = closed(f);
    });
}

// What the gradients at a pack are made of; `more` and `y` are zero where there are none.
struct Gradients { Pack z, g, more, y; };
INLINE Gradients gradients(const Pack* z, const Pack* g, const Pack* more, const Pack* y, u64 i) {
    Gradients r = {z[i], g[i], {}, {}};
    if (more) r.more = more[i];
    if (y) r.y = y[i];
    return r;
}

// The gradient g + more behind the ReLU, rounded as it is stored: that of a sum has its sign from y.
INLINE Floats behind(int relu, bool sum, Gradients r, Floats z, Floats factor, Floats offset) {
    Floats f = open(r.g), m = open(r.more), v = open(r.y);
    EIGHT(l) f.v[l] += m.v[l];
    if (relu) {
        if (!sum) EIGHT(l) v.v[l] = fmaf(factor.v[l], z.v[l], offset.v[l]);
        EIGHT(l) if (v.v[l] <= 0.0f) f.v[l] = 0.0f;
    }
    return open(closed(f));
}

// part = sums of g (z - mean) and of g behind the ReLU; where `kept` is given, that g is stored there, perhaps in place of g.
extern "C" __global__ void __launch_bounds__(256, 2) batch_norm_sums(u32 rows, u32 groups, int relu, const Pack* z, const float* statistics, const float* affine, const Pack* y,
                       const Pack* g, const Pack* more, Pack* kept, float* part) {
    Floats factor, offset, mean, product = {}, sum = {};
    line(groups, statistics, affine, &factor, &offset);
    EIGHT(l) mean.v[l] = statistics[threadIdx.x % groups * 8 + l];
    auto load = [&](u64 i) { return gradients(z, g, more, y, i); };
    each_row(rows, groups, load, [&](u64 i, Gradients r) {
        Floats f = open(r.z), b = behind(relu, y, r, f, factor, offset);
        EIGHT(l) {
            product.v[l] = fmaf(b.v[l], f.v[l] - mean.v[l], product.v[l]);
            sum.v[l] += b.v[l];
        }
        if (kept) kept[i] = closed(b);
    });
    put(groups, product, sum, part);
}

// grad [2, channels] = sum g x^ and sum g, with x^ = (z - mean) s. A block has eight channels.
KERNEL finish_sums(u32 channels, u32 blocks, const float* part, const float* statistics, float* grad) {
    double product, sum;
    gather(channels, blocks, part, &product, &sum);
    if (threadIdx.x >= 8) return;
    u32 c = blockIdx.x * 8 + threadIdx.x;
    grad[c] = (float)(product / sqrt((double)(statistics[channels + c] + EPSILON)));
    grad[channels + c] = (float)sum;
}

// dz = gamma s (g - share sum g - x^ share sum(g x^)) with g behind the ReLU; dz may lie in place of g.
extern "C" __global__ void __launch_bounds__(256, 3) batch_norm_back(u32 rows, u32 groups, int relu, const Pack* z, const float* statistics, const float* affine, const float* grad,
                       const Pack* g, const Pack* more, Pack* dz) {
    Floats factor, offset, m0, m1;
    line(groups, statistics, affine, &factor, &offset);
    float share = 1.0f / (float)rows;
    u32 first = threadIdx.x % groups * 8, channels = 8 * groups;
    // dz = factor (g - m0 - z m1), with the mean in m0
    EIGHT(l) {
        u32 c = first + l;
        m1.v[l] = share * grad[c] / sqrtf(statistics[channels + c] + EPSILON);
        m0.v[l] = share * grad[channels + c] - statistics[c] * m1.v[l];
    }
    auto load = [&](u64 i) { return gradients(z, g, more, nullptr, i); };
    each_row(rows, groups, load, [&](u64 i, Gradients r) {
        Floats f = open(r.z), b = behind(relu, false, r, f, factor, offset);
        EIGHT(l) b.v[l] = factor.v[l] * (b.v[l] - fmaf(f.v[l], m1.v[l], m0.v[l]));
        dz[i] = closed(b);
    });
}

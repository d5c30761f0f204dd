// Kernels on hidden units that are kept before their activation, u = z + b: phi(u) and phi'(u) are computed where they are needed.
// Arrays are row-major f32; sums run in an order that depends on the shapes alone.
//
// #define V    elements that are read and written at once, 1 or 4; n counts packs of V
// #define PHI  the place of the activation, so that its formula alone is compiled
// #define WRITE  how gradients are written: as_it_is or turned
// The activations, activate(phi, p, z, value, slope), are inserted before this text.

typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void __launch_bounds__(256)
// Rows that a thread has under way at a time.
#define AHEAD 2

struct alignas(4 * V) Pack { float v[V]; };
INLINE Pack load(const float* x, u64 i) { return reinterpret_cast<const Pack*>(x)[i]; }
INLINE void store(float* x, u64 i, Pack p) { reinterpret_cast<Pack*>(x)[i] = p; }

// V numbers of a vector that may start anywhere; zeros where there is none.
INLINE Pack vector(const float* x, u64 stride, u32 c) {
    Pack p;
    UNROLLED(l, V) p.v[l] = x ? x[blockIdx.y * stride + c * V + l] : 0.0f;
    return p;
}

// phi and phi' at the pack c of a row of n.
INLINE void both(const Parameters& p, Pack z, Pack b, u32 c, u32 n, Pack& value, Pack& slope) {
    UNROLLED(l, V) activate(formula(PHI, c * V + l, n * V), p, z.v[l] + b.v[l], value.v[l], slope.v[l]);
}

// A block has 32 packs of columns (blockIdx.x) of one network (blockIdx.y) in one chunk of rows (blockIdx.z); its 8 warps take a row each.
struct Column {
    u32 c, begin, end;
    bool inside;
    u64 first;
    INLINE Column(u32 m, u32 n, u32 per_chunk) {
        c = blockIdx.x * 32 + threadIdx.x % 32;
        begin = blockIdx.z * per_chunk + threadIdx.x / 32;
        end = min(m, (blockIdx.z + 1) * per_chunk);
        inside = c < n;
        first = (u64)blockIdx.y * m * n + c;
    }
};

// Calls f(r, what load_row(r) gives) for every eighth row r from begin to end: AHEAD rows are loaded before the first is used.
template <class Load, class F> INLINE void each_row(const Column& at, u32 begin, u32 end, Load load_row, F f) {
    if (!at.inside) return;
    for (u32 first = begin; first < end; first += 8 * AHEAD) {
        decltype(load_row(0u)) ahead[AHEAD];
        UNROLLED(a, AHEAD) if (first + 8 * a < end) ahead[a] = load_row(first + 8 * a);
        UNROLLED(a, AHEAD) if (first + 8 * a < end) f(first + 8 * a, ahead[a]);
    }
}

// dz = f(r, what load_row(r) gives) for each row r of the column, as it is.
template <class Load, class F> INLINE void as_it_is(const Column& at, u32 m, u32 n, Load load_row, F f, float* dz) {
    each_row(at, at.begin, at.end, load_row, [&](u32 r, decltype(load_row(0u)) x) { store(dz, at.first + (u64)r * n, f(r, x)); });
}

// The same with every matrix of dz transposed, [n V, m]: TILE rows at a time go through shared memory, whose rows are whole fours and
// lie four banks apart. A lane reads a pack of its own row there, and 32 lanes write 32 neighbours.
#define TILE 64
template <class Load, class F> INLINE void turned(const Column& at, u32 m, u32 n, Load load_row, F f, float* dz) {
    alignas(16) __shared__ float tile[TILE][32 * V + 4];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    dz += (u64)blockIdx.y * m * n * V;
    for (u32 top = at.begin - warp; top < at.end; top += TILE) {
        each_row(at, top + warp, min(at.end, top + TILE), load_row, [&](u32 r, decltype(load_row(0u)) x) {
            *reinterpret_cast<Pack*>(&tile[r - top][lane * V]) = f(r, x);
        });
        __syncthreads();
        for (u32 part = warp; part < TILE; part += 8) {
            u32 q = part % 32, r = part / 32 * 32 + lane, c = blockIdx.x * 32 + q;
            if (c < n && top + r < at.end) {
                Pack p = *reinterpret_cast<const Pack*>(&tile[r][q * V]);
                UNROLLED(l, V) dz[(u64)(c * V + l) * m + top + r] = p.v[l];
            }
        }
        __syncthreads();
    }
}

// out = the sum over the 8 warps, V numbers of each lane; out starts at the block's network and chunk.
INLINE void put_sums(const Column& at, Pack sum, float* out, u64 network, u64 chunk) {
    __shared__ float shared[8][32 * V + 1];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();
    UNROLLED(l, V) shared[warp][lane + 32 * l] = sum.v[l];
    __syncthreads();
    if (warp == 0 && at.inside) {
        out += blockIdx.y * network + blockIdx.z * chunk + at.c * V;
        UNROLLED(l, V) {
            float total = 0.0f;
            UNROLLED(w, 8) total += shared[w][lane + 32 * l];
            out[l] = total;
        }
    }
}

// y = phi(z + b).
KERNEL hidden_values(u32 m, u32 n, u32 per_chunk, Parameters p, const float* bias, u64 bias_stride, const float* z, float* y) {
    Column at(m, n, per_chunk);
    if (!at.inside) return;
    Pack b = vector(bias, bias_stride, at.c);
    each_row(at, at.begin, at.end, [&](u32 r) { return load(z, at.first + (u64)r * n); }, [&](u32 r, Pack u) {
        Pack value, slope;
        both(p, u, b, at.c, n, value, slope);
        store(y, at.first + (u64)r * n, value);
    });
}

struct Two { Pack first, second; };

// dz = g * phi'(z + b), and its sums over the rows of the chunk, unless there is no place for them.
KERNEL hidden_back(u32 m, u32 n, u32 per_chunk, Parameters p, const float* bias, u64 bias_stride, const float* z, const float* g,
            float* dz, float* sums, u64 network, u64 chunk) {
    Column at(m, n, per_chunk);
    Pack b = {}, sum = {};
    if (at.inside) b = vector(bias, bias_stride, at.c);
    auto load_row = [&](u32 r) { return Two{load(z, at.first + (u64)r * n), load(g, at.first + (u64)r * n)}; };
    WRITE(at, m, n, load_row, [&](u32 r, Two x) {
        Pack value, slope;
        both(p, x.first, b, at.c, n, value, slope);
        UNROLLED(l, V) sum.v[l] += x.second.v[l] *= slope.v[l];
        return x.second;
    }, dz);
    if (sums) put_sums(at, sum, sums, network, chunk);
}

// y_r = phi(z_r + b) . w + top; a warp has four rows.
KERNEL hidden_head(u32 m, u32 n, Parameters p, const float* bias, u64 bias_stride, const float* w, u64 w_stride,
                   const float* top, u64 top_stride, const float* z, float* y) {
    u32 lane = threadIdx.x % 32, first = 4 * (blockIdx.x * 8 + threadIdx.x / 32);
    const u64 start = (u64)blockIdx.y * m;
    float sum[4] = {};
    for (u32 c = lane; c < n; c += 32) {
        Pack b = vector(bias, bias_stride, c), weight = vector(w, w_stride, c), u[4];
        UNROLLED(r, 4) if (first + r < m) u[r] = load(z, (start + first + r) * n + c);
        UNROLLED(r, 4) if (first + r < m) {
            Pack value, slope;
            both(p, u[r], b, c, n, value, slope);
            UNROLLED(l, V) sum[r] = fmaf(value.v[l], weight.v[l], sum[r]);
        }
    }
    UNROLLED(r, 4) {
        for (int step = 16; step; step >>= 1) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], step);
        if (lane == 0 && first + r < m) y[start + first + r] = sum[r] + (top ? top[blockIdx.y * top_stride] : 0.0f);
    }
}

// Back through the head from g [k, m]: dz = g w phi'(z + b), with the sums over the rows of the chunk of g phi(z + b) and of dz.
KERNEL hidden_head_back(u32 m, u32 n, u32 per_chunk, Parameters p, const float* bias, u64 bias_stride, const float* w, u64 w_stride,
            const float* z, const float* g, float* dz, float* w_sums, u64 w_network, u64 w_chunk,
            float* sums, u64 network, u64 chunk) {
    Column at(m, n, per_chunk);
    Pack b = {}, weight = {}, w_sum = {}, sum = {};
    if (at.inside) { b = vector(bias, bias_stride, at.c); weight = vector(w, w_stride, at.c); }
    const float* mine = g + (u64)blockIdx.y * m;
    WRITE(at, m, n, [&](u32 r) { return load(z, at.first + (u64)r * n); }, [&](u32 r, Pack u) {
        Pack value, slope;
        both(p, u, b, at.c, n, value, slope);
        float flow = mine[r];
        UNROLLED(l, V) {
            w_sum.v[l] = fmaf(flow, value.v[l], w_sum.v[l]);
            sum.v[l] += u.v[l] = flow * weight.v[l] * slope.v[l];
        }
        return u;
    }, dz);
    put_sums(at, w_sum, w_sums, w_network, w_chunk);
    if (sums) put_sums(at, sum, sums, network, chunk);
}

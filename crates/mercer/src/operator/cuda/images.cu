// Kernels of infinite convolutional networks between pairs of images, in float or double.
//
// A warp runs one offset between positions of a pair through all layers, as operator/images does: each lane has one column of the
// patch and walks down its rows. A convolution takes its window's columns from the neighbouring lanes by shuffles and its rows
// from registers, the activation follows at once, and the result goes to shared memory, where each lane reads its own column
// again. A lane whose column has no partner at the offset dx would idle, but at dx − WIDTH it has one: both offsets run together
// (CYCLIC). Sums over a patch are real, those over offsets double, all in a fixed order.
//
// An image is a record of RECORD numbers: pixels [channels, height, width], then for every activation the variance, the
// deviation and the inverse deviation of its inputs, [3, height, width].
//
// #define NTK                 whether Θ is wanted, besides K
// #define EACH                lanes of one offset: 8, 16 or 32
// #define CYCLIC              whether the offset dx stands for dx − WIDTH too
// #define FIRST_Y, OFFSETS_Y  offsets along y at the end of the layers: the first, and how many
// #define FIRST_X, OFFSETS_X  along x
// #define HEIGHT, WIDTH       size of the image there
// #define PATCH               numbers of rows in the patches of a warp, all together
// #define WARPS               warps of a block
// #define ALONE               whether each warp has a pair of its own; else all warps of a block share one
// #define SCALE               what the sum over positions is multiplied by
// #define POOLED              whether the network pools between layers: a block then has SCRATCH values in device memory, between all positions of
//                             its pair of images at the end of each segment, and runs one pair after the other
//
// Dynamic shared memory: the patches, and two doubles for each warp.

struct Value {
    real k;
#if NTK
    real t;
#endif
};
#if NTK
#define WITH_THETA(statement) statement
#else
#define WITH_THETA(statement)
#endif
#define GROUPS (32 / EACH)

INLINE Value zero() {
    Value v;
    v.k = 0;
    WITH_THETA(v.t = 0);
    return v;
}
INLINE void add(Value &to, const Value &v) {
    to.k += v.k;
    WITH_THETA(to.t += v.t);
}

// The offset at the end of the layers of the lane that has this column where offsets are S times as large.
template <int S> INLINE int offset_x(int column, int dx) {
    return CYCLIC && column + S * dx >= S * WIDTH ? dx - WIDTH : dx;
}

// The rows of a patch of an image of this height: p for which p and p + d are in the image.
INLINE int first_row(int d) { return max(0, -d); }
INLINE int end_row(int height, int d) { return height - max(0, d); }

// The columns in both images of a lane, at scale S. Lanes without a partner read column 0, and their results are dropped.
struct Columns {
    int x, y;
    bool inside;
};
template <int S, int W> INLINE Columns columns(int column, int dx) {
    const int partner = column + S * offset_x<S>(column, dx);
    const bool inside = column < W && partner >= 0 && partner < W;
    return {inside ? column : 0, inside ? partner : 0, inside};
}

// Products of pixels, Σ_c x[c, p] y[c, p + δ].
template <int CHANNELS, int H, int W, int S> struct Pixels {
    const real *x, *y;
    __device__ __forceinline__ Pixels(const real *of_x, const real *of_y, int column, int dy, int dx) {
        const Columns at = columns<S, W>(column, dx);
        x = of_x + at.x;
        y = of_y + S * dy * W + at.y;
    }
    __device__ __forceinline__ Value operator()(int row) const {
        Value v = zero();
        UNROLLED(c, CHANNELS) v.k = m_fma(x[(c * H + row) * W], y[(c * H + row) * W], v.k);
        return v;
    }
};

// The place of the value of positions (q, c) and (q + dy, c + dx) among those of all pairs of positions of an image: lanes are side by side.
template <int H, int W> INLINE int kept(int column, int q, int dy, int dx) {
    return (((dy < 0 ? dy + H : dy) * W + (dx < 0 ? dx + W : dx)) * H + q) * W + column;
}
template <int H, int W> INLINE void keep(Value *to, int column, int q, int dy, int dx, const Value &v) {
    if (columns<1, W>(column, dx).inside) to[kept<H, W>(column, q, dy, dx)] = v;
}

// Means over pairs of windows of SIZE, STEP apart, of the values kept for an image of H0 rows and W0 columns; W: columns of the pooled image.
template <int SIZE, int STEP, int H0, int W0, int W, int S> struct Pooled {
    const Value *from;
    Columns at;
    int down;
    __device__ __forceinline__ Pooled(const Value *kept_values, int column, int dy, int dx)
        : from(kept_values), at(columns<S, W>(column, dx)), down(S * dy) {}
    __device__ __forceinline__ Value operator()(int row) const {
        Value sum = zero();
#pragma unroll 1
        for (int rows = 0; rows < SIZE * SIZE; ++rows) {
            const int q = STEP * row + rows / SIZE, dy = STEP * down + rows % SIZE - rows / SIZE;
            UNROLLED(e, SIZE) UNROLLED(f, SIZE)
                add(sum, from[kept<H0, W0>(STEP * at.x + e, q, dy, STEP * (at.y - at.x) + f - e)]);
        }
        sum.k *= (real)1 / (SIZE * SIZE * SIZE * SIZE);
        WITH_THETA(sum.t *= (real)1 / (SIZE * SIZE * SIZE * SIZE));
        return sum;
    }
};

// Calls `f` with the offsets that a warp of a block runs.
template <int FIRST_DY, int COUNT_DY, int FIRST_DX, int COUNT_DX, class F> INLINE void each_offset(int warp, int lane, F f) {
    const int wide = (COUNT_DX + GROUPS - 1) / GROUPS;
    for (int unit = warp; unit < COUNT_DY * wide; unit += WARPS)
        f(FIRST_DY + unit / wide, FIRST_DX + min(unit % wide * GROUPS + lane / EACH, COUNT_DX - 1));
}

// One side of an activation's inputs, for the columns of a lane.
template <int H, int W> struct Side {
    const real *at;
    __device__ __forceinline__ real field(int f, int row) const { return at[(f * H + row) * W]; }
};

// K ← weight Σ_e K + bias over windows, Θ ← K + weight Σ_e Θ; rows come from `from` and go to `to`. FIRST: Θ is zero before.
template <int SIZE, int STEP, int UP, int LEFT, int H_IN, int W_IN, int H_OUT, int S_IN, int S_OUT, bool FIRST, class From, class To>
INLINE void convolve(real weight, real bias, int column, int dy, int dx, From from, To to) {
    const int begin = first_row(S_IN * dy), end = end_row(H_IN, S_IN * dy);
    const int d = S_IN * offset_x<S_OUT>(column, dx);
    bool open[SIZE];
    UNROLLED(e, SIZE) {
        const int c = column * STEP + e - LEFT;
        open[e] = c >= 0 && c < W_IN && c + d >= 0 && c + d < W_IN;
    }
    // The sum over the window's columns of one row.
    auto across = [&](int row) {
        Value sum = zero();
        if (row < begin || row >= end) return sum;
        const Value own = from(row);
        UNROLLED(e, SIZE) {
            Value v = own;
            if (STEP != 1 || e != LEFT) {
                v.k = __shfl_sync(0xffffffffu, own.k, column * STEP + e - LEFT, EACH);
                WITH_THETA(if (!FIRST) v.t = __shfl_sync(0xffffffffu, own.t, column * STEP + e - LEFT, EACH));
            }
            if (open[e]) add(sum, v);
        }
        return sum;
    };
    const int first = first_row(S_OUT * dy), last = end_row(H_OUT, S_OUT * dy);
    Value rows[SIZE];
    UNROLLED(e, SIZE)
        if (e >= STEP) rows[e] = across((first - 1) * STEP - UP + e);
#pragma unroll UNROLL
    for (int q = first; q < last; ++q) {
        UNROLLED(e, SIZE) rows[e] = e + STEP < SIZE ? rows[(e + STEP) % SIZE] : across(q * STEP - UP + e);
        Value sum = rows[0];
        UNROLLED(e, SIZE - 1) add(sum, rows[e + 1]);
        sum.k = m_fma(weight, sum.k, bias);
        WITH_THETA(sum.t = FIRST ? sum.k : m_fma(weight, sum.t, sum.k));
        to(q, sum);
    }
}

// Calls `to` with every row of a patch.
template <int H, int S, class From, class To> INLINE void each_row(int dy, From from, To to) {
#pragma unroll 1
    for (int q = first_row(S * dy); q < end_row(H, S * dy); ++q) to(q, from(q));
}

// A layer of weights behind the read-out.
INLINE void dense(Value &v, real weight, real bias) {
    v.k = m_fma(weight, v.k, bias);
    WITH_THETA(v.t = m_fma(weight, v.t, v.k));
}

//LAYERS

// out[·, j] = κ of the records a[i] and b[j], for rows i from `first` on; a row for each block in y, unless blocks go from pair to pair.
enum { ALL, UPPER, MIRRORED, PAIRED };
INLINE void one_pair(const real *a, const real *b, int first, int row, int j, int m, int which, Value *shared, Value *scratch, real *out) {
    double *const totals = (double *)(shared + WARPS * PATCH * 32);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane % EACH;
    const int i = which == PAIRED ? j : first + row;
    // The same for all threads that meet at a barrier.
    if (j >= m || (which == UPPER && j < i)) return;
    // Sums over offsets round differently for κ(x,x') and κ(x',x).
    const bool swap = which == MIRRORED && j < i;
    const real *x = a + (long long)(swap ? j : i) * RECORD, *y = b + (long long)(swap ? i : j) * RECORD;
    Value *patch = shared + warp * PATCH * 32 + lane;
    double k = 0, t = 0;
    passes(x, y, warp, lane, patch, scratch);
    const int wide = (OFFSETS_X + GROUPS - 1) / GROUPS;
    for (int unit = ALONE ? 0 : warp; unit < OFFSETS_Y * wide; unit += ALONE ? 1 : WARPS) {
        const int dy = FIRST_Y + unit / wide, place = unit % wide * GROUPS + lane / EACH;
        const int dx = FIRST_X + min(place, OFFSETS_X - 1);
        const Value sum = one_offset(x, y, column, dy, dx, patch, scratch);
        if (place < OFFSETS_X && columns<1, WIDTH>(column, dx).inside) {
            k += (double)sum.k;
            WITH_THETA(t += (double)sum.t);
        }
    }
    for (int step = 16; step > 0; step >>= 1) {
        k += __shfl_xor_sync(0xffffffffu, k, step);
        t += __shfl_xor_sync(0xffffffffu, t, step);
    }
    if (!ALONE) {
        if (lane == 0) totals[2 * warp] = k, totals[2 * warp + 1] = t;
        __syncthreads();
        k = t = 0;
        for (int w = 0; w < WARPS; ++w) k += totals[2 * w], t += totals[2 * w + 1];
    }
    if (lane > 0 || (!ALONE && warp > 0)) return;
    Value v;
    v.k = (real)(k * SCALE);
    WITH_THETA(v.t = (real)(t * SCALE));
    read_out(v, x, y);
    real *to = out + (long long)row * m + j;
#if NTK
    *to = v.t;
#else
    *to = v.k;
#endif
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    image_pairs(const real *__restrict__ a, const real *__restrict__ b, int first, int m, int which, real *__restrict__ out, int rows, Value *scratch) {
    extern __shared__ __align__(16) Value shared[];
#if POOLED
    scratch += (long long)blockIdx.x * SCRATCH;
    for (long long pair = blockIdx.x; pair < (long long)rows * m; pair += gridDim.x)
        one_pair(a, b, first, (int)(pair / m), (int)(pair % m), m, which, shared, scratch, out);
#else
    one_pair(a, b, first, blockIdx.y, ALONE ? blockIdx.x * WARPS + threadIdx.x / 32 : blockIdx.x, m, which, shared, scratch, out);
#endif
}

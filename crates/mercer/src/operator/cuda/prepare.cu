// Conversion of points and values to the layout of the tiles, and the sum of the partial results.
//
// #define SOURCE      type of the input points and values, float or double
// #define TARGET      type of the tiles, float or double
// #define HALF        whether points are f16, multiplied by SCALE = 2^e, in blocks of eight points and coordinates: [n_pad/8, D/8, 8, 8]
// #define ROUND_TF32  whether points are rounded to TF32
// #define VIEWS, VIEW_LIST: V(view, first coordinate in the target, width in the target, first in the source, width in the source)
// #define DIAGONAL    κ(x,x) in double from norms[view]
// #define D, SOURCE_D width of a point in the target and in the source
// #define LOW         whether to write low parts: what rounding removed from the points
// #define LOW_FIRST   the first coordinate of low parts in the source, 0 if there are none
// #define DUPLICATES       whether the last coordinate in the source is a name: equal points have the same, above 0; others 0
// #define NC          columns of one pass
// #define TRANSPOSED  whether values are for tensor cores
// #define HALVES      2 if values are split into hi and lo, else 1
// #define PARTIAL     type of the partial sums

// Rounds to the nearest TF32, ties away from zero. Infinity and NaN are kept.
INLINE float to_tf32(float x) {
    const unsigned int bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) == 0x7f800000u) return x;
    return __uint_as_float((bits + 0x1000u) & 0xffffe000u);
}

// A coordinate as the tiles have it, its value, and where coordinate f of a point is.
#if HALF
typedef unsigned short coordinate;
INLINE coordinate to_half(float x) {
    unsigned short y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
INLINE float from_half(coordinate x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
INLINE coordinate rounded(SOURCE x) { return to_half((float)(x * (SOURCE)SCALE)); }
INLINE TARGET value_of(coordinate x) { return from_half(x) / (float)SCALE; }
INLINE long long place(long long row, int f) { return ((row >> 3) * (D / 8) + (f >> 3)) * 64 + (row & 7) * 8 + (f & 7); }
#else
typedef TARGET coordinate;
INLINE coordinate rounded(SOURCE x) {
#if ROUND_TF32
    return to_tf32((float)x);
#else
    return (TARGET)x;
#endif
}
INLINE TARGET value_of(coordinate x) { return x; }
INLINE long long place(long long row, int f) { return row * D + f; }
#endif

// What rounding to `value` removed from coordinate `at` of a point.
INLINE TARGET low_part(const SOURCE *from, int at, TARGET value) {
    const SOURCE rest = from[at] - (SOURCE)value;
#if LOW_FIRST
    return (TARGET)(rest + from[LOW_FIRST + at]);
#else
    return (TARGET)rest;
#endif
}

// Converts x [·, SOURCE_D] to out [n_pad, D] and xx [VIEWS + 1 + DUPLICATES, n_pad]: the norms of the rounded points in each view,
// κ(x,x) at these norms, and the name. Low parts [n_pad, D] follow the points. Row i of the target is row rows[i] of the
// source, or row i if rows is null; rows from n on repeat the last one. `count` rows from `first` on are written, and the source
// begins with row `first`. One warp per row.
extern "C" __global__ void __launch_bounds__(256)
    prepare_points(const SOURCE *__restrict__ x, const int *__restrict__ rows, coordinate *__restrict__ out,
                   TARGET *__restrict__ xx, int n, int n_pad, int first_row, int count) {
    const int local = blockIdx.x * 8 + (threadIdx.x >> 5), row = first_row + local, lane = threadIdx.x & 31;
    if (local >= count) return;
    const int which = min(row, n - 1) - first_row;
    const SOURCE *from = x + (long long)(rows ? rows[which] : which) * SOURCE_D;
    double norms[VIEWS];
#define V(view, first, width, source_first, source_width)                                       \
    {                                                                                           \
        double norm = 0;                                                                        \
        for (int f = lane; f < width; f += 32) {                                                \
            const coordinate mine = f < source_width ? rounded(from[source_first + f]) : (coordinate)0; \
            const TARGET value = value_of(mine);                                                \
            out[place(row, first + f)] = mine;                                                  \
            if (LOW)                                                                            \
                out[(long long)n_pad * D + place(row, first + f)] =                             \
                    f < source_width ? low_part(from, source_first + f, value) : (TARGET)0;     \
            norm += (double)value * (double)value;                                              \
        }                                                                                       \
        for (int step = 16; step > 0; step >>= 1) norm += __shfl_xor_sync(0xffffffffu, norm, step); \
        if (lane == 0) xx[(long long)view * n_pad + row] = (TARGET)norm;                        \
        norms[view] = norm;                                                                     \
    }
    VIEW_LIST
#undef V
    if (lane == 0) xx[(long long)VIEWS * n_pad + row] = (TARGET)(DIAGONAL);
    if (DUPLICATES && lane == 0) xx[(long long)(VIEWS + 1) * n_pad + row] = (TARGET)from[SOURCE_D - 1];
}

// Copies points of a set, x [x_pad, D] (or blocks of them) and x_norms [VIEWS + 1 + DUPLICATES, x_pad], to out [n_pad, D] and xx: those with the numbers
// `rows`, or those from `first_row` on if rows is null; from n on the last one is repeated. One warp per row.
extern "C" __global__ void __launch_bounds__(256)
    gather_points(const coordinate *__restrict__ x, const TARGET *__restrict__ x_norms, int x_pad, const int *__restrict__ rows,
                  int first_row, coordinate *__restrict__ out, TARGET *__restrict__ xx, int n, int n_pad) {
    const int row = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (row >= n_pad) return;
    const long long from = rows ? rows[min(row, n - 1)] : first_row + min(row, n - 1);
    for (int f = lane; f < D; f += 32) {
        out[place(row, f)] = x[place(from, f)];
        if (LOW) out[(long long)n_pad * D + place(row, f)] = x[(long long)x_pad * D + place(from, f)];
    }
    if (lane < VIEWS + 1 + DUPLICATES) xx[(long long)lane * n_pad + row] = x_norms[(long long)lane * x_pad + from];
}

// Copies columns [c0, c0 + columns) of v [m, ld] to out [m_pad, NC], or, if TRANSPOSED, to out [m_pad/64, HALVES·NC, 64 + 4] for tensor
// cores: tiles as they will be in shared memory, where each group of eight columns of K has the order 0 2 4 6 1 3 5 7. Padding of m is
// zero. One thread per element of [NC, m_pad].
extern "C" __global__ void __launch_bounds__(256)
    prepare_values(const SOURCE *__restrict__ v, TARGET *__restrict__ out, int m, int m_pad, int ld, int c0, int columns) {
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x;
    if (at >= (long long)m_pad * NC) return;
#if TRANSPOSED
    const int c = (int)(at / m_pad), to = (int)(at % m_pad), j = (to & ~7) + ((to & 3) << 1 | (to >> 2 & 1));
#else
    const int j = (int)(at / NC), c = (int)(at % NC);
#endif
    const TARGET x = j < m && c < columns ? (TARGET)v[(long long)j * ld + c0 + c] : (TARGET)0;
#if TRANSPOSED
    TARGET *const tile = out + ((long long)(to >> 6) * HALVES * NC + c) * 68 + (to & 63);
    *tile = to_tf32(x);
#if HALVES == 2
    tile[NC * 68] = to_tf32(x - to_tf32(x));
#endif
#else
    out[at] = x;
#endif
}

// y[i, c0 + c] = Σ_s partial[s, i, c], in order and in double, for partial [splits, n_pad, NC] and y [n, ld].
// One thread per element of [n, columns].
extern "C" __global__ void __launch_bounds__(256)
    reduce_partials(const PARTIAL *__restrict__ partial, SOURCE *__restrict__ y, int splits, int n, int n_pad, int ld, int c0,
                    int columns) {
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x;
    if (at >= (long long)n * columns) return;
    const long long i = at / columns;
    const int c = (int)(at % columns);
    double sum = 0;
    for (int s = 0; s < splits; ++s) sum += (double)partial[((long long)s * n_pad + i) * NC + c];
    y[i * ld + c0 + c] = (SOURCE)sum;
}

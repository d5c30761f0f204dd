// κ of one pair of points from differences of their coordinates, where a matrix product would lose digits; operator/tile/near.rs
// says where.
//
// #define LOW         whether low parts of the points, which rounding removed, lie behind the points
// #define TOGETHER    whether the lanes of a warp compute one value together: such entries are few, and far from each other
// #define VIEWS, STATISTICS, STATISTIC_LIST: as in simt.cu
// #define KAPPA_NEAR  κ of the inner products s[·], the distances d[·] and the norms at axx and byy

INLINE real difference(const real *a, const real *b, long long a_low, long long b_low, int f) {
#if LOW
    return (a[f] - b[f]) + (a[a_low + f] - b[b_low + f]);
#else
    return a[f] - b[f];
#endif
}

#if TOGETHER
#define FIRST (threadIdx.x & 31)
#define STEP 32
INLINE real summed(real x) {
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
#else
#define FIRST 0
#define STEP 1
INLINE real summed(real x) { return x; }
#endif

// a, b [D]: the points; their low parts are a_low and b_low numbers further on. axx, byy: the norms of view v are at v·a_pad
// and v·b_pad.
__device__ __noinline__ real recomputed(const real *a, const real *b, long long a_low, long long b_low, const real *axx,
                                     long long a_pad, const real *byy, long long b_pad) {
    real s[STATISTICS], d[STATISTICS];
#define X(index, from, width, l1)                                     \
    {                                                                 \
        real product = 0, sum = 0;                                    \
        for (int f = from + FIRST; f < from + width; f += STEP) {     \
            const real t = difference(a, b, a_low, b_low, f);         \
            product = m_fma(a[f], b[f], product);                     \
            sum = l1 ? sum + m_abs(t) : m_fma(t, t, sum);             \
        }                                                             \
        s[index] = summed(product), d[index] = summed(sum);           \
    }
    STATISTIC_LIST
#undef X
    return KAPPA_NEAR;
}

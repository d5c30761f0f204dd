// Y = κ(A, B) V without tensor cores, for any statistic or several at once, in float or double; with GRAM, the matrix K.
//
// 16×16 threads compute a tile of 16·TM by 16·TM: the statistics in registers, from chunks of 8 coordinates in shared memory,
// then κ. K passes through shared memory, 64 columns at a time, to be multiplied by V; the sums of the tiles are added in
// double. A point is the concatenation of its views, each padded with zeros to a multiple of 8 coordinates. Rows beyond the
// last point repeat it, so that κ is finite there.
//
// #define TM          rows and columns per thread, 4 or 8
// #define D           width of a point, all views together
// #define NC          columns of V, a multiple of 8
// #define STATISTICS  number of statistics; STATISTIC_LIST: X(index, view's first coordinate, view's width, is it L1?) for each
// #define KAPPA(s, i, j)  κ of the statistics s[·][i][j] and the norms xx[view][i], yy[view][j]
// #define GRAM, VIEWS
// #define NEAR        whether entries for which IS_NEAR(s, i, j) holds are computed by `recomputed` (near.cu)
// #define DUPLICATES       whether the points have names; where two agree, κ is that of a point with itself
// #define GATHERED    whether places may be given: point i of A is point a_places[i] of its set, and likewise B; null is their order
// #define MIRROR      with GRAM and A = B: tiles above the diagonal are computed once and written twice

#define BM (16 * TM)
#define CHUNK 8
#define LDS (BM + 4)
#define EACH (TM / 2)
#define LDK (BM + 4)
#define GROUPS (256 / BM)
#define PER_GROUP (NC / GROUPS)
#define PANEL (CHUNK * LDS)
#define ENTRIES(i, j) UNROLLED(i, TM) UNROLLED(j, TM)

struct __align__(sizeof(real) * EACH) Pack {
    real of[EACH];
};
struct __align__(sizeof(real) * 2) Two {
    real of[2];
};

#if GRAM
#define RESULT real *__restrict__ out, int n, int m, long long ld
#else
// v [b_pad, NC], partial [splits, a_pad, NC]
#define RESULT const real *__restrict__ v, double *__restrict__ partial
#endif

#if GATHERED
#define PLACES const int *__restrict__ a_places, const int *__restrict__ b_places,
#else
#define PLACES
#endif

// Rows (or columns) of a thread: four adjacent ones in each half of the tile.
INLINE int place(int of, int i) { return (i >> 2) * 64 + of * 4 + (i & 3); }

INLINE void put(real *panel, const Pack &pack, int row, int k) {
    UNROLLED(e, EACH) panel[(k + e) * LDS + row] = pack.of[e];
}

// s_ij = Σ_f a_if b_jf, or Σ_f |a_if − b_jf|, over coordinates [from, from + width) of the tile's points.
template <bool L1>
INLINE void statistic(real (&s)[TM][TM], const real *a, const real *b, int from, int width, real *panels) {
    const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    const int row = threadIdx.x * EACH / CHUNK, k0 = threadIdx.x * EACH % CHUNK;
    const real *pa = a + (long long)row * D + from + k0, *pb = b + (long long)row * D + from + k0;
    Pack na = *(const Pack *)pa, nb = *(const Pack *)pb;
    ENTRIES(i, j) s[i][j] = 0;
    __syncthreads();
    put(panels, na, row, k0);
    put(panels + PANEL, nb, row, k0);
    __syncthreads();
    for (int f = 0; f < width; f += CHUNK) {
        const real *now = panels + (f / CHUNK & 1) * 2 * PANEL;
        real *next = panels + (~(f / CHUNK) & 1) * 2 * PANEL;
        if (f + CHUNK < width) {
            na = *(const Pack *)(pa + f + CHUNK);
            nb = *(const Pack *)(pb + f + CHUNK);
        }
        UNROLLED(k, CHUNK) {
            real x[TM], y[TM];
#pragma unroll
            for (int i = 0; i < TM; i += 2) {
                const Two px = *(const Two *)(now + k * LDS + place(ty, i));
                const Two py = *(const Two *)(now + PANEL + k * LDS + place(tx, i));
                x[i] = px.of[0], x[i + 1] = px.of[1], y[i] = py.of[0], y[i + 1] = py.of[1];
            }
            ENTRIES(i, j) {
                if (L1) s[i][j] += m_abs(x[i] - y[j]);
                else s[i][j] = m_fma(x[i], y[j], s[i][j]);
            }
        }
        if (f + CHUNK < width) {
            put(next, na, row, k0);
            put(next + PANEL, nb, row, k0);
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256)
    simt(const real *__restrict__ a, const real *__restrict__ axx, const real *__restrict__ b,
         const real *__restrict__ byy, int a_pad, int b_pad, int tiles, int tiles_per_split, int diagonal,
         PLACES RESULT) {
    extern __shared__ __align__(16) real shared[];
    real *const panels = shared;
    const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    const int row0 = blockIdx.x * BM;
    const int start = blockIdx.y * tiles_per_split, last = min(tiles, start + tiles_per_split);
    const int first = MIRROR ? max(start, (int)blockIdx.x) : start;

    real xx[VIEWS][TM];
    UNROLLED(w, VIEWS)
        UNROLLED(i, TM) xx[w][i] = axx[(long long)w * a_pad + row0 + place(ty, i)];
#if !GRAM
    // V reuses the memory of the panels after the statistics are computed.
    real *const ks = panels + 4 * PANEL, *const vs = panels;
    const int mine = threadIdx.x % BM, group = threadIdx.x / BM;
    double total[PER_GROUP] = {};
#endif

    for (int tile = first; tile < last; ++tile) {
        const int column0 = tile * BM;
        real s[STATISTICS][TM][TM], yy[VIEWS][TM];
#define X(index, from, width, l1) \
    statistic<l1>(s[index], a + (long long)row0 * D, b + (long long)column0 * D, from, width, panels);
        STATISTIC_LIST
#undef X
        UNROLLED(w, VIEWS)
            UNROLLED(j, TM) yy[w][j] = byy[(long long)w * b_pad + column0 + place(tx, j)];
#if NEAR
        unsigned long long near = 0;
        ENTRIES(i, j)
            if (IS_NEAR(s, i, j)) near |= 1ull << (i * TM + j);
#endif
        ENTRIES(i, j) s[0][i][j] = KAPPA(s, i, j);
#if NEAR
        if (near) {
            ENTRIES(i, j) {
                const long long r = row0 + place(ty, i), c = column0 + place(tx, j);
                if (near >> (i * TM + j) & 1)
                    s[0][i][j] = recomputed(a + r * D, b + c * D, (long long)a_pad * D, (long long)b_pad * D, axx + r, a_pad,
                                         byy + c, b_pad);
            }
        }
#endif
        // Diagonal values were computed in double.
        const real *diag = axx + (long long)VIEWS * a_pad;
#if DUPLICATES
        ENTRIES(i, j) {
            const real name = diag[a_pad + row0 + place(ty, i)];
            if (name > 0 && name == byy[(long long)(VIEWS + 1) * b_pad + column0 + place(tx, j)])
                s[0][i][j] = diag[row0 + place(ty, i)];
        }
#endif
#if GATHERED
        // `diagonal` is far below zero where no two points are the same.
        if (diagonal > -0x20000000) {
            ENTRIES(i, j) {
                const int r = row0 + place(ty, i), c = column0 + place(tx, j);
                if ((a_places ? a_places[r] : r) == (b_places ? b_places[c] : c) + diagonal) s[0][i][j] = diag[r];
            }
        }
#else
        if (column0 + diagonal < row0 + BM && row0 < column0 + diagonal + BM) {
            ENTRIES(i, j)
                if (row0 + place(ty, i) == column0 + diagonal + place(tx, j)) s[0][i][j] = diag[row0 + place(ty, i)];
        }
#endif

#if GRAM
        ENTRIES(i, j) {
            const int r = row0 + place(ty, i), c = column0 + place(tx, j);
            if (r < n && c < m && (!MIRROR || r <= c)) out[r * ld + c] = s[0][i][j];
            if (MIRROR && r < c && c < m) out[c * ld + r] = s[0][i][j];
        }
#else
        UNROLLED(half, TM / 4) {
            if (half > 0) __syncthreads();
            UNROLLED(j, 4)
#pragma unroll
                for (int i = 0; i < TM; i += 2) {
                    const Two pair = {{s[0][i][4 * half + j], s[0][i + 1][4 * half + j]}};
                    *(Two *)(ks + (tx * 4 + j) * LDK + place(ty, i)) = pair;
                }
            const Two *values = (const Two *)(v + (long long)(column0 + 64 * half) * NC);
            for (int i = threadIdx.x; i < 64 * NC / 2; i += 256) ((Two *)vs)[i] = values[i];
            __syncthreads();
            real sum[PER_GROUP] = {};
#pragma unroll 8
            for (int j = 0; j < 64; ++j) {
                const real k = ks[j * LDK + mine];
#pragma unroll
                for (int c = 0; c < PER_GROUP; c += 2) {
                    const Two w = *(const Two *)(vs + j * NC + group * PER_GROUP + c);
                    sum[c] = m_fma(k, w.of[0], sum[c]);
                    sum[c + 1] = m_fma(k, w.of[1], sum[c + 1]);
                }
            }
            UNROLLED(c, PER_GROUP) total[c] += sum[c];
        }
        __syncthreads();
#endif
    }
#if !GRAM
    double *to = partial + ((long long)blockIdx.y * a_pad + row0 + mine) * NC + group * PER_GROUP;
    UNROLLED(c, PER_GROUP) to[c] = total[c];
#endif
}

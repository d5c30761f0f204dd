// Y = κ(A, B) V on tensor cores, without storing K; with GRAM, the matrix K.
//
// A warp handles MT blocks of 16 rows of A; tiles of 64 columns (points of B, their norms, their rows of V) stream
// through shared memory. For each 16 columns: S = A Bᵀ by mma, κ(S, ‖a‖², ‖b‖²) in registers, then K V by a second mma.
// The accumulator of S holds columns 2t and 2t+1 in thread t of four, but the next operand needs t and t+4. Instead of
// moving K, each group of eight columns of V has the order 0 2 4 6 1 3 5 7.
//
// Tensor cores truncate sums where float addition rounds. So each tile starts a new sum, which is added with rounding.
//
// SPLIT: each operand is x = hi + lo in TF32, and each product is hi·hi + hi·lo + lo·hi.
//
// HALF: points are 2^e x in f16, which has as many bits as TF32 and twice its rate (half.rs). Blocks of eight points and eight coordinates
// are contiguous, [n/8, D/8, 8, 8], as ldmatrix and wgmma want them. K and V are TF32 all the same.
//
// GROUP: four warps compute S of all 64 columns together by wgmma. Each of the MT blocks of 64 rows of a group has 16 rows of each warp.
//
// #define D          width of a point, a multiple of 16
// #define NC         columns of V, a multiple of 8
// #define WARPS, MT, MIN_BLOCKS, STAGES, SPLIT, HALF, GROUP, GRAM, UNROLL
// #define UNSCALE    with HALF: 2^(−2e)
// #define NEAR       whether pairs for which is_near holds are computed by `recomputed` (near.cu)
// #define DUPLICATES      whether the points have names; where two agree, κ is that of a point with itself
// #define GATHERED   whether places may be given: point i of A is point a_places[i] of its set, and likewise B; null is their order
// #define MIRROR     with GRAM and A = B: tiles above the diagonal are computed once and written twice

#define BN 64
#define THREADS (32 * WARPS)
#define ROWS (16 * MT * WARPS)
// Rows between the blocks of 16 rows of a warp.
#define APART (GROUP ? 64 : 16)
#if D <= 64
#define DK D
#elif SPLIT
#define DK 16
#elif HALF
#define DK 64
#else
#define DK 32
#endif
#define CHUNKS ((D + DK - 1) / DK)
// Rows of shared memory are an odd multiple of 16 bytes apart, so that eight rows are in different banks. Blocks of HALF are 128 bytes.
#define LDX (HALF ? DK / 2 : DK + 4)
// Words of a point in device memory, and coordinates in 16 bytes.
#define WORDS (HALF ? D / 2 : D)
#define PIECE (HALF ? 8 : 4)
// Products that one instruction adds, in each of 16×8 elements.
#define STEP (HALF ? 16 : 8)
#define LDV (BN + 4)
#define NT (NC / 8)
#define HALVES (SPLIT ? 2 : 1)
#define VALUES (GRAM ? 0 : HALVES * NC * LDV)

#if GRAM
// out [n, ld]: rows and columns beyond n and m are not written.
#define RESULT float *__restrict__ out, int n, int m, long long ld
#define ABSORB(acc, k, v, column) absorb(k, row, column, out, n, m, ld)
#else
// vt [b_pad/BN, HALVES·NC, LDV], each group of eight columns in the order 0 2 4 6 1 3 5 7; partial [splits, a_pad, NC].
#define RESULT const float *__restrict__ vt, float *__restrict__ partial
#define ABSORB(acc, k, v, column) absorb(acc, k, v, lane)
#endif

#if GATHERED
#define PLACES const int *__restrict__ a_places, const int *__restrict__ b_places,
#else
#define PLACES
#endif

struct Row {
    int first; // of this lane: rows first and first+8, and as many APART further on for each block
    float xx[MT][2];
#if DUPLICATES
    float name[MT][2];
#endif
};

// The points of both sides and their norms, κ(x,x) and names, in device memory.
struct Sides {
    const float *a, *axx, *b, *byy;
    long long a_pad, b_pad;
#if GATHERED
    const int *a_places, *b_places;
    int low, high; // the least and the largest place of the warp's rows
#endif
};

// S of a warp's rows and 16 columns, over the DK coordinates in `x` (shared memory, [16, LDX]) and `fa`.
INLINE void dots(float (&s)[MT][2][4], const word (&fa)[MT][DK / STEP][4], const float *x, int lane) {
#if HALF
#pragma unroll
    for (int k = 0; k < DK / 16; ++k) {
        word fb[4];
        load4(fb, x + ((lane >> 4) * (DK / 8) + 2 * k + (lane >> 3 & 1)) * 32 + (lane & 7) * 4);
        UNROLLED(q, 2 * MT) mma_half(s[q >> 1][q & 1], fa[q >> 1][k], fb[2 * (q & 1)], fb[2 * (q & 1) + 1]);
    }
#else
#if SPLIT
    float low[2][2][4] = {};
#endif
#pragma unroll
    for (int k = 0; k < DK / 8; k += 2) {
        word fb[2][4];
        const float *p = x + (lane & 7) * LDX + k * 8 + (lane >> 3) * 4;
        load4(fb[0], p);
        load4(fb[1], p + 8 * LDX);
        UNROLLED(h, 2) {
#if SPLIT
            word al[2][4], bl[2][2];
            UNROLLED(i, 4) {
                al[0][i] = low_half_here(fa[0][k + h][i]);
                al[1][i] = low_half_here(fa[1][k + h][i]);
                bl[i >> 1][i & 1] = low_half_here(fb[i >> 1][2 * h + (i & 1)]);
            }
            UNROLLED(q, 4) {
                const int i = q >> 1, j = q & 1;
                mma(low[i][j], al[i], fb[j][2 * h], fb[j][2 * h + 1]);
                mma(s[i][j], fa[i][k + h], fb[j][2 * h], fb[j][2 * h + 1]);
            }
            UNROLLED(q, 4) mma(low[q >> 1][q & 1], fa[q >> 1][k + h], bl[q & 1][0], bl[q & 1][1]);
#else
            UNROLLED(q, 4) mma(s[q >> 1][q & 1], fa[q >> 1][k + h], fb[q & 1][2 * h], fb[q & 1][2 * h + 1]);
#endif
        }
    }
#if SPLIT
    UNROLLED(q, 16) s[q >> 3][q >> 2 & 1][q & 3] += low[q >> 3][q >> 2 & 1][q & 3];
#endif
#endif
}

#if GROUP
// S of 64 rows of a group and of all columns of a tile, block `i`: += of 16 coordinates in `a` and `x` (shared memory), or = if not `add`.
INLINE void group_mma(float (&s)[BN / 16][MT][2][4], int i, const word (&a)[4], const float *x, int add) {
    // Steps of 16 bytes between blocks of coordinates (8) and of points (DK).
    const unsigned long long b = (address(x) & 0x3ffffu) >> 4 | 8ull << 16 | (unsigned long long)DK << 32;
#define S4(j, h) "+f"(s[j][i][h][0]), "+f"(s[j][i][h][1]), "+f"(s[j][i][h][2]), "+f"(s[j][i][h][3])
    asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
                 "{%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}"
                 : S4(0, 0), S4(0, 1), S4(1, 0), S4(1, 1), S4(2, 0), S4(2, 1), S4(3, 0), S4(3, 1)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
#undef S4
}
// Waits for all products; nothing of S is read before.
INLINE void group_end(float (&s)[BN / 16][MT][2][4]) {
    group_wait();
    UNROLLED(j, BN / 16)
        UNROLLED(q, 8 * MT) asm volatile("" : "+f"(s[j][q >> 3][q >> 2 & 1][q & 3])::"memory");
}
#endif

#if HALF
#define UNSCALED(s) ((s) * UNSCALE)
#else
#define UNSCALED(s) (s)
#endif

// Replaces S by κ for a warp's rows and 16 columns; yy are the norms of this lane's pair of columns, of which `place` is the first.
INLINE void evaluate(float (&s)[MT][2][4], const Row &row, const float *yy, const Sides &of, int place) {
#if NEAR
    unsigned int near = 0;
#endif
    UNROLLED(q, 8 * MT) {
        const int i = q >> 3, j = q >> 2 & 1, e = q & 3;
        const float2 y = *(const float2 *)(yy + 8 * j);
#if NEAR
        if (is_near(s[i][j][e], row.xx[i][e >> 1], e & 1 ? y.y : y.x)) near |= 1u << q;
#endif
        s[i][j][e] = kappa(UNSCALED(s[i][j][e]), row.xx[i][e >> 1], e & 1 ? y.y : y.x);
    }
#if NEAR
    // The lanes of the warp compute one such entry after the other together.
    for (unsigned int lanes = __ballot_sync(0xffffffffu, near != 0); lanes != 0; lanes &= lanes - 1) {
        const int who = __ffs(lanes) - 1, r0 = __shfl_sync(0xffffffffu, row.first, who), c0 = __shfl_sync(0xffffffffu, place, who);
        for (unsigned int left = __shfl_sync(0xffffffffu, near, who); left != 0; left &= left - 1) {
            const int which = __ffs(left) - 1, r = r0 + 16 * (which >> 3) + 8 * (which >> 1 & 1), c = c0 + 8 * (which >> 2 & 1) + (which & 1);
            const float value = recomputed(of.a + (long long)r * D, of.b + (long long)c * D, of.a_pad * D, of.b_pad * D, of.axx + r,
                                        of.a_pad, of.byy + c, of.b_pad);
            UNROLLED(q, 8 * MT)
                if (q == which && (threadIdx.x & 31) == who) s[q >> 3][q >> 2 & 1][q & 3] = value;
        }
    }
#endif
#if DUPLICATES
    UNROLLED(q, 8 * MT) {
        const int i = q >> 3, j = q >> 2 & 1, e = q & 3;
        const float name = row.name[i][e >> 1];
        if (name > 0 && name == of.byy[2 * of.b_pad + place + 8 * j + (e & 1)])
            s[i][j][e] = of.axx[of.a_pad + row.first + APART * i + 8 * (e >> 1)];
    }
#endif
}

// Values of points with themselves (`column` is the row that the pair's first point has) were computed in double, because a formula
// may turn a rounding error ε of the distance of a point to itself into √ε.
INLINE void settle(float (&k)[MT][2][4], const Row &row, const Sides &of, int column, int place) {
    const float *diag = of.axx + of.a_pad;
    UNROLLED(q, 8 * MT) {
        const int i = q >> 3, j = q >> 2 & 1, e = q & 3, r = row.first + APART * i + 8 * (e >> 1);
#if GATHERED
        const int c = 8 * j + (e & 1), mine = of.a_places ? of.a_places[r] : r;
        if (mine == (of.b_places ? of.b_places[place + c] + column - place : column + c)) k[i][j][e] = diag[r];
#else
        if (r == column + 8 * j + (e & 1)) k[i][j][e] = diag[r];
#endif
    }
}

#if GATHERED
// Columns that are a list may meet any row. `diagonal` is far below zero where no two points are the same.
#define MEETS(row0, column, width) (sides.b_places ? diagonal > FAR : (column) <= sides.high && sides.low < (column) + (width))
#define FAR (-0x20000000)
#else
#define MEETS(row0, column, width) meets_diagonal(row0, column, width)
#endif
INLINE bool meets_diagonal(int row0, int column, int width) { return column < row0 + APART * (MT - 1) + 16 && row0 < column + width; }

#if GRAM
// Writes a warp's rows and 16 columns of K.
INLINE void absorb(const float (&k)[MT][2][4], const Row &row, int column, RESULT) {
    UNROLLED(q, 8 * MT) {
        const int i = q >> 3, j = q >> 2 & 1, e = q & 3;
        const int r = row.first + APART * i + 8 * (e >> 1), c = column + 8 * j + (e & 1);
        if (r < n && c < m && (!MIRROR || r <= c)) out[r * ld + c] = k[i][j][e];
        if (MIRROR && r < c && c < m) out[c * ld + r] = k[i][j][e];
    }
}
#else
// acc += K V over 16 columns.
INLINE void absorb(float (&acc)[MT][NT][4], const float (&values)[MT][2][4], const float *v, int lane) {
    UNROLLED(j, 2) {
        word k[MT][4];
#if SPLIT
        word kl[MT][4];
#endif
        UNROLLED(q, 4 * MT) {
            const int i = q >> 2, e = q & 3, place = (e & 1) * 2 + (e >> 1);
#if SPLIT
            k[i][place] = __float_as_uint(values[i][j][e]);
            kl[i][place] = low_half(values[i][j][e]);
#else
            k[i][place] = tf32(values[i][j][e]);
#endif
        }
        // Lanes 16 and up read the next eight columns of V, or the same ones again if there are no more.
#pragma unroll
        for (int c = 0; c < NT; c += 2) {
            const int beside = c + 1 < NT ? 8 : 0;
            const float *p = v + (c * 8 + (lane >> 4) * beside + (lane & 7)) * LDV + 8 * j + (lane >> 3 & 1) * 4;
            word fv[4];
            load4(fv, p);
#if SPLIT
            word fl[4];
            load4(fl, p + NC * LDV);
#endif
            UNROLLED(i, MT) {
                UNROLLED(h, c + 1 < NT ? 2 : 1) {
#if SPLIT
                    mma(acc[i][c + h], kl[i], fv[2 * h], fv[2 * h + 1]);
                    mma(acc[i][c + h], k[i], fl[2 * h], fl[2 * h + 1]);
#endif
                    mma(acc[i][c + h], k[i], fv[2 * h], fv[2 * h + 1]);
                }
            }
        }
    }
}

INLINE void copy_values(float *to, const float *vt, int tile) {
    for (int i = threadIdx.x; i < VALUES / 4; i += THREADS) copy16(to + 4 * i, vt + (long long)tile * VALUES + 4 * i);
}
#endif

INLINE void add(float (&sum)[MT][NT][4], const float (&term)[MT][NT][4]) {
    UNROLLED(q, 4 * MT * NT) sum[q / (4 * NT)][(q >> 2) % NT][q & 3] += term[q / (4 * NT)][(q >> 2) % NT][q & 3];
}

// Copies coordinates [from, from + DK) of `count` points from device memory to [count, LDX] in shared memory.
INLINE void copy_points(float *to, const float *x, int count, int from) {
    const int pieces = DK / PIECE;
    for (int i = threadIdx.x; i < count * pieces; i += THREADS) {
#if HALF
        // Blocks of eight points: [count/8, DK/8] of them, of [count/8, D/8].
        const int blocks = i / (8 * pieces), within = i % (8 * pieces), f = from + within / 8 * 8;
        float *const place = to + 4 * i;
        const float *const source = x + (blocks * D + from + within) * 4ll;
#else
        const int r = i / pieces, f = from + i % pieces * PIECE;
        float *const place = to + r * LDX + f - from;
        const float *const source = x + (long long)r * D + f;
#endif
        if (D % DK == 0 || f < D) copy16(place, source);
        else *(float4 *)place = make_float4(0.f, 0.f, 0.f, 0.f);
    }
}
INLINE void copy_norms(float *to, const float *yy, int tile) {
    if (threadIdx.x < BN / 4) copy16(to + threadIdx.x * 4, yy + tile * BN + threadIdx.x * 4);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    tensor(const float *__restrict__ a, const float *__restrict__ axx, const float *__restrict__ b,
           const float *__restrict__ byy, int a_pad, int b_pad, int tiles, int tiles_per_split, int diagonal,
           PLACES RESULT) {
    extern __shared__ __align__(16) float shared[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    #if GROUP
    const int row0 = blockIdx.x * ROWS + (warp >> 2) * 64 * MT + (warp & 3) * 16;
#else
    const int row0 = blockIdx.x * ROWS + warp * 16 * MT;
#endif
    const int start = blockIdx.y * tiles_per_split, last = min(tiles, start + tiles_per_split);
    const int first = MIRROR ? max(start, (int)blockIdx.x * ROWS / BN) : start;

    Row row;
    row.first = row0 + (lane >> 2);
    UNROLLED(q, 2 * MT) row.xx[q >> 1][q & 1] = axx[row.first + APART * (q >> 1) + 8 * (q & 1)];
#if DUPLICATES
    UNROLLED(q, 2 * MT) row.name[q >> 1][q & 1] = axx[2 * (long long)a_pad + row.first + APART * (q >> 1) + 8 * (q & 1)];
#endif
#if GATHERED
    int low = row0, high = row0 + APART * (MT - 1) + 15;
    if (a_places) {
        low = high = a_places[row0 + APART * (lane >> 4) * (MT - 1) + (lane & 15)];
        for (int step = 16; step > 0; step >>= 1) {
            low = min(low, __shfl_xor_sync(0xffffffffu, low, step));
            high = max(high, __shfl_xor_sync(0xffffffffu, high, step));
        }
    }
    const Sides sides = {a, axx, b, byy, a_pad, b_pad, a_places, b_places, low, high};
#else
    const Sides sides = {a, axx, b, byy, a_pad, b_pad};
#endif

    float total[MT][NT][4] = {}; // unused by GRAM
    // The columns of this lane's pair in the first eight; a diagonal element has row == column.
    const int pair = 2 * (lane & 3);

    // Norms and values of a tile.
    auto fetch_side = [&](float *to, int tile) {
        copy_norms(to, byy, tile);
#if !GRAM
        copy_values(to + BN, vt, tile);
#endif
    };

#if CHUNKS == 1
    // The warp's points stay in registers.
    word fa[MT][D / STEP][4];
    UNROLLED(i, MT)
        UNROLLED(k, D / STEP)
            UNROLLED(q, 4) {
                const int r = row.first + APART * i + 8 * (q & 1);
#if HALF
                fa[i][k][q] = __float_as_uint(a[((r >> 3) * (D / 8ll) + 2 * k + (q >> 1)) * 32 + (r & 7) * 4 + (lane & 3)]);
#else
                fa[i][k][q] = __float_as_uint(a[(long long)r * D + 8 * k + (lane & 3) + 4 * (q >> 1)]);
#endif
            }

    const int STAGE = BN * LDX + BN + VALUES;
#if GROUP
    // The first warp fetches a tile AHEAD of the others into a buffer that all warps have left: warps may be a few tiles apart.
    const int AHEAD = STAGES - STAGES / 2;
    __shared__ barrier full[STAGES], empty[STAGES];
    if (threadIdx.x < STAGES) {
        barrier_start(full + threadIdx.x, 1);
        barrier_start(empty + threadIdx.x, WARPS);
        barriers_show();
    }
    __syncthreads();
    auto fetch = [&](int tile) {
        if (tile >= last) return;
        const int at = (tile - first) % STAGES, round = (tile - first) / STAGES;
        float *to = shared + at * STAGE;
        if (round > 0) barrier_wait(empty + at, (round - 1) & 1);
        if (lane == 0) {
            barrier_expect(full + at, 4 * STAGE);
            copy_block(to, b + (long long)tile * BN * WORDS, 4 * BN * LDX, full + at);
            copy_block(to + BN * LDX, byy + tile * BN, 4 * BN, full + at);
#if !GRAM
            copy_block(to + BN * LDX + BN, vt + (long long)tile * VALUES, 4 * VALUES, full + at);
#endif
        }
    };
    if (warp == 0)
        for (int ahead = 0; ahead < AHEAD; ++ahead) fetch(first + ahead);

    for (int tile = first; tile < last; ++tile) {
        if (warp == 0) fetch(tile + AHEAD);
        const int at = (tile - first) % STAGES, column = tile * BN + diagonal;
        barrier_wait(full + at, (tile - first) / STAGES & 1);
        const float *x = shared + at * STAGE, *yy = x + BN * LDX;
        float s[BN / 16][MT][2][4], acc[MT][NT][4] = {};
        group_begin();
        UNROLLED(k, D / 16)
            UNROLLED(i, MT) group_mma(s, i, fa[i][k], x + 64 * k, k);
        group_end(s);
        UNROLLED(j, BN / 16) evaluate(s[j], row, yy + 16 * j + pair, sides, tile * BN + 16 * j + pair);
        if (MEETS(row0, column, BN)) {
            UNROLLED(j, BN / 16) settle(s[j], row, sides, column + 16 * j + pair, tile * BN + 16 * j + pair);
        }
        UNROLLED(j, BN / 16) ABSORB(acc, s[j], yy + BN + 16 * j, tile * BN + 16 * j + pair);
        __syncwarp();
        if (lane == 0) barrier_arrive(empty + at);
        add(total, acc);
    }
#else
    auto fetch = [&](int tile) {
        if (tile < last) {
            float *to = shared + (tile - first) % STAGES * STAGE;
            copy_points(to, b + (long long)tile * BN * WORDS, BN, 0);
            fetch_side(to + BN * LDX, tile);
        }
        copies_commit();
    };
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) fetch(first + ahead);

    for (int tile = first; tile < last; ++tile) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        // All warps have finished with the buffer of the previous tile: load the next tile into it.
        fetch(tile + STAGES - 1);
        const float *x = shared + (tile - first) % STAGES * STAGE, *yy = x + BN * LDX;
        float acc[MT][NT][4] = {};
#pragma unroll UNROLL
        for (int j = 0; j < BN; j += 16) {
            const int column = tile * BN + j + diagonal;
            float s[MT][2][4] = {};
            dots(s, fa, x + j * LDX, lane);
            evaluate(s, row, yy + j + pair, sides, tile * BN + j + pair);
            if (MEETS(row0, column, 16)) settle(s, row, sides, column + pair, tile * BN + j + pair);
            ABSORB(acc, s, yy + BN + j, tile * BN + j + pair);
        }
        add(total, acc);
    }
#endif
#else
    // Chunks of coordinates of the points of both sides pass through; S of all 64 columns stays in registers.
    const int STAGE = (ROWS + BN) * LDX, SIDE = BN + VALUES;
    float *const beside = shared + STAGES * STAGE;
    auto fetch = [&](int step) {
        const int tile = first + step / CHUNKS, from = step % CHUNKS * DK;
        if (tile < last) {
            float *to = shared + step % STAGES * STAGE;
            copy_points(to, a + (long long)blockIdx.x * ROWS * WORDS, ROWS, from);
            copy_points(to + ROWS * LDX, b + (long long)tile * BN * WORDS, BN, from);
            if (from == 0) fetch_side(beside + (tile & 1) * SIDE, tile);
        }
        copies_commit();
    };
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) fetch(ahead);

    int step = 0;
    for (int tile = first; tile < last; ++tile) {
        float s[BN / 16][MT][2][4] = {};
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS; ++chunk, ++step) {
            copies_wait<STAGES - 2>();
            __syncthreads();
            fetch(step + STAGES - 1);
            const float *x = shared + step % STAGES * STAGE;
            word fa[MT][DK / STEP][4];
            UNROLLED(i, MT) {
#if HALF
                const float *mine = x + (warp * 16 * MT + 16 * i + (lane & 8)) * LDX + (lane >> 4) * 32 + (lane & 7) * 4;
                UNROLLED(k, DK / 16) load4(fa[i][k], mine + 64 * k);
#else
                const float *mine = x + (warp * 16 * MT + 16 * i + (lane & 15)) * LDX + (lane >> 4) * 4;
                UNROLLED(k, DK / 8) load4(fa[i][k], mine + 8 * k);
#endif
            }
            UNROLLED(j, BN / 16) {
                float part[MT][2][4] = {};
                dots(part, fa, x + (ROWS + 16 * j) * LDX, lane);
                UNROLLED(q, 8 * MT) s[j][q >> 3][q >> 2 & 1][q & 3] += part[q >> 3][q >> 2 & 1][q & 3];
            }
        }
        const float *yy = beside + (tile & 1) * SIDE;
        float acc[MT][NT][4] = {};
        UNROLLED(j, BN / 16) {
            const int column = tile * BN + 16 * j + diagonal;
            evaluate(s[j], row, yy + 16 * j + pair, sides, tile * BN + 16 * j + pair);
            if (MEETS(row0, column, 16)) settle(s[j], row, sides, column + pair, tile * BN + 16 * j + pair);
            ABSORB(acc, s[j], yy + BN + 16 * j, tile * BN + 16 * j + pair);
        }
        add(total, acc);
    }
#endif

#if !GRAM
    UNROLLED(q, 2 * MT * NT) {
        const int i = q / (2 * NT), h = q & 1, c = (q >> 1) % NT;
        float2 *to = (float2 *)(partial + ((long long)blockIdx.y * a_pad + row.first + APART * i + 8 * h) * NC + 8 * c + pair);
        *to = make_float2(total[i][c][2 * h], total[i][c][2 * h + 1]);
    }
#endif
}

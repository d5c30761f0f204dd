// Eigenvalues and eigenvectors of a symmetric matrix by two-sided Jacobi rotations, and the whitened problem
// Pi a = mu Sigma a. Follows small.cu.
//
// A sweep meets every pair of rows once, in rounds of pairs that share no row. A round has two phases: one thread for each
// pair finds its rotation, then one thread for each pair of pairs rotates its 2x2 block. The matrix is in shared memory where
// it fits. Every rotation is written to a log as t, the tangent of its angle; rotate_vectors applies the log to the rows of
// the vectors, which do not depend on each other, in as many warps as there are rows.
//
// jacobi_f32 finds rotations V that nearly diagonalise the matrix. Its rounding does not matter: a rotation is exact in double
// for any t. conjugate takes V^T A V in double, and jacobi_f64 finds what little is left.

#define SWEEPS 32

extern __shared__ __align__(16) double room[];

// The two players of a pair in a round of a tournament among m (even).
__device__ __forceinline__ void players(int m, int round, int pair, int& i, int& j) {
    int rounds = m - 1, up = round + pair, down = round - pair;
    i = pair == 0 ? rounds : up >= rounds ? up - rounds : up;
    j = down < 0 ? down + rounds : down;
}

// Entry (i, j) of a symmetric matrix of which the lower half is stored, rows `row` numbers apart.
#define LOWER(i, j) (max(i, j) * row + min(i, j))

// A rotation: cosine and sine.
template <class Real> struct __align__(2 * sizeof(Real)) Turn {
    Real c, s;
};

// 1/sqrt(1 + t^2), in double by one step of third order from the float.
__device__ __forceinline__ void turn(float t, Turn<float>& out) {
    out.c = rsqrtf(fmaf(t, t, 1.0f));
    out.s = out.c * t;
}
__device__ __forceinline__ void turn(float t, Turn<double>& out) {
    double x = fma((double)t, (double)t, 1.0), y = rsqrtf(fmaf(t, t, 1.0f)), e = fma(-x * y, y, 1.0);
    out.c = fma(y * e, fma(0.375, e, 0.5), y);
    out.s = out.c * t;
}

// The tangent of the angle that makes entry (i, j) zero up to the rounding of a float; zero where the entry is below
// `nothing`: rotating by rounding errors would mix the vectors of equal eigenvalues without end.
template <class Real> __device__ __forceinline__ float tangent(int row, const Real* a, int i, int j, Real nothing) {
    Real x = a[LOWER(i, j)];
    if (!(fabs(x) > nothing)) return 0.0f;
    float h = (float)(a[j * row + j] - a[i * row + i]), d = (float)(2 * x), square = fmaf(h, h, d * d);
    return __fdividef(d, h + copysignf(square * rsqrtf(square), h));
}

// Rotates the block of two pairs of rows, first <= second as `both` packs them: from the left by the turn of the first, from
// the right by that of the second. With first = second, (j, k) is (i, l).
template <class Real> __device__ __forceinline__ void rotate_block(int m, Real* a, int round, int both, const Turn<Real>* turns) {
    const int row = m + 1, first = both >> 16, second = both & 0xffff;
    int i, j, k, l;
    players(m, round, first, i, j);
    players(m, round, second, k, l);
    const Turn<Real> left = turns[first], right = turns[second];
    Real *ik = a + LOWER(i, k), *il = a + LOWER(i, l), *jk = a + LOWER(j, k), *jl = a + LOWER(j, l);
    Real x = left.c * *ik - left.s * *jk, y = left.c * *il - left.s * *jl;
    Real z = left.s * *ik + left.c * *jk, w = left.s * *il + left.c * *jl;
    *ik = right.c * x - right.s * y;
    *il = right.s * x + right.c * y;
    *jk = right.c * z - right.s * w;
    *jl = right.s * z + right.c * w;
}

// Pairs first <= second number e of a triangle whose halves are folded into a rectangle.
__device__ int folded(int pairs, int e) {
    int odd = 1 - pairs % 2, width = pairs + odd, first = e / width, second = first + e % width;
    if (second >= pairs) {
        first = pairs - odd - first;
        second = first + second - pairs;
    }
    return first << 16 | second;
}

// Blocks of a round that a thread keeps the numbers of; more are found anew each time.
#define KEPT 4

// Rotates g [m, m], m even, rows m + 1 numbers apart, until its off-diagonal entries are `nothing`, in at most `most` sweeps.
// log [most (m - 1), m/2] receives the tangents. Returns the sweeps made; `left`: the squares below the diagonal.
template <class Real>
__device__ int sweeps(int m, Real* g, Turn<Real>* turns, Real nothing, int most, float* log, double& left) {
    const int pairs = m / 2, row = m + 1, blocks = pairs * (pairs + 1) / 2, rounds = m - 1;
    int kept[KEPT], sweep = 0;
    for (int it = 0; it < KEPT; ++it) kept[it] = folded(pairs, threadIdx.x + it * blockDim.x);
    while (true) {
        left = 0.0;
        MINE(i, m) for (int j = 0; j < i; ++j) left = fma((double)g[i * row + j], (double)g[i * row + j], left);
        left = block_sum(left);
        if (sweep == most || left <= 0.5 * m * m * nothing * nothing) return sweep;
        for (int round = 0; round < rounds; ++round) {
            MINE(pair, pairs) {
                int i, j;
                players(m, round, pair, i, j);
                float t = tangent(row, g, i, j, nothing);
                turn(t, turns[pair]);
                log[((u64)sweep * rounds + round) * pairs + pair] = t;
            }
            __syncthreads();
#pragma unroll
            for (int it = 0; it < KEPT; ++it)
                if (threadIdx.x + it * blockDim.x < blocks) rotate_block(m, g, round, kept[it], turns);
            for (int e = threadIdx.x + KEPT * blockDim.x; e < blocks; e += blockDim.x)
                rotate_block(m, g, round, folded(pairs, e), turns);
            __syncthreads();
        }
        ++sweep;
    }
}

// The norm of a symmetric matrix a [n, n], of which the lower half is read.
__device__ double norm_of(int n, const double* a) {
    double norm = 0.0;
    MINE(e, n * n) {
        int i = e / n, j = e % n;
        if (j <= i) norm = fma(a[e], a[e] * (i == j ? 1.0 : 2.0), norm);
    }
    return sqrt(block_sum(norm));
}

// g [m, m], rows m + 1 numbers apart, = a [n, n] times a number, in its lower half; a row of zeros where m > n.
template <class Real> __device__ void fill(int n, int m, const double* a, double scale, Real* g) {
    MINE(e, m * m) {
        int i = e / m, j = e % m;
        if (j <= i) g[i * (m + 1) + j] = i < n ? (Real)(a[i * n + j] * scale) : (Real)0;
    }
    __syncthreads();
}

// The log of rotations that nearly diagonalise a [n, n] (its lower half is read), and the count of rounds in it. Notes PROBLEM
// where a is not finite. Shared memory holds m numbers, m = n rounded up to even, and, where room_fits, m (m + 1) more;
// otherwise work does.
extern "C" __global__ void __launch_bounds__(1024) jacobi_f32(int n, const double* a, int room_fits, float* work, u32* control,
                                                             float* log, u32* count) {
    const int m = n + n % 2;
    float* g = room_fits ? (float*)room + m : work;
    double norm = norm_of(n, a), left;
    bool bad = spoiled(control, isfinite(norm) ? 0 : PROBLEM);
    int made = 0;
    if (!bad && norm > 0.0) {
        fill(n, m, a, 1.0 / norm, g);
        made = sweeps(m, g, (Turn<float>*)room, 1e-7f, SWEEPS / 2, log, left);
    }
    if (threadIdx.x == 0) *count = made * (m - 1);
}

// Eigenvalues of a [n, n], descending; place [n]: where each of them went. Otherwise as above; notes PROBLEM where the
// rotations do not converge.
extern "C" __global__ void __launch_bounds__(1024) jacobi_f64(int n, const double* a, int room_fits, double* work, u32* control,
                                                             float* log, u32* place, u32* count, double* values) {
    const int m = n + n % 2, row = m + 1;
    const double nothing = 1e-15;
    double* g = room_fits ? room + m : work;
    double norm = norm_of(n, a), left = 0.0;
    int made = 0;
    bool bad = spoiled(control, isfinite(norm) ? 0 : PROBLEM);
    if (!bad) {
        fill(n, m, a, norm > 0.0 ? 1.0 / norm : 0.0, g);
        made = sweeps(m, g, (Turn<double>*)room, nothing, SWEEPS, log, left);
        spoiled(control, left <= 0.5 * m * m * nothing * nothing ? 0 : PROBLEM);
    }
    if (threadIdx.x == 0) *count = made * (m - 1);
    MINE(j, n) {
        int before = 0;
        double mine = bad ? 0.0 : g[j * row + j];
        for (int i = 0; i < n && !bad; ++i) before += g[i * row + i] > mine || (g[i * row + i] == mine && i < j);
        place[j] = bad ? j : before;
        values[bad ? j : before] = mine * norm;
    }
}

// out = V^T A V [n, n], a column for each block; the lower half of A is read. Shared memory holds n numbers.
extern "C" __global__ void conjugate(int n, const double* a, const double* v, double* out) {
    const int row = n, column = blockIdx.x;
    MINE(i, n) {
        double total = 0.0;
        for (int k = 0; k < n; ++k) total = fma(a[LOWER(i, k)], v[k * n + column], total);
        room[i] = total;
    }
    __syncthreads();
    MINE(i, n) {
        double total = 0.0;
        for (int k = 0; k < n; ++k) total = fma(v[k * n + i], room[k], total);
        out[i * n + column] = total;
    }
}

// Rounds whose rotations are fetched ahead, and pairs of a round that each lane has then.
#define AHEAD 8
#define FEW 2

__device__ __forceinline__ void rotate_pair(int m, int round, int pair, Turn<double> by, double* v) {
    int i, j;
    players(m, round, pair, i, j);
    double x = v[i], y = v[j];
    v[i] = by.c * x - by.s * y;
    v[j] = by.s * x + by.c * y;
}

// The rotations of a log applied to row blockIdx.x of `start` [n, n], of the identity where that is null: vectors [n, n],
// column j at place[j], or at j where that is null. A warp for each row; shared memory holds m numbers.
extern "C" __global__ void rotate_vectors(int n, const float* log, const u32* count, const double* start, const u32* place,
                                          double* vectors) {
    const int m = n + n % 2, pairs = m / 2, rounds = m - 1, lane = threadIdx.x, all = *count;
    double* v = room;
    for (int i = lane; i < m; i += 32) v[i] = !start ? i == blockIdx.x : i < n ? start[(u64)blockIdx.x * n + i] : 0.0;
    __syncwarp();
    int round = 0, done = 0;
    if (pairs <= 32 * FEW)
        for (; done + AHEAD <= all; done += AHEAD) {
            Turn<double> ahead[AHEAD][FEW];
#pragma unroll
            for (int t = 0; t < AHEAD; ++t)
#pragma unroll
                for (int q = 0; q < FEW; ++q)
                    if (lane + 32 * q < pairs) turn(log[(u64)(done + t) * pairs + lane + 32 * q], ahead[t][q]);
#pragma unroll
            for (int t = 0; t < AHEAD; ++t) {
#pragma unroll
                for (int q = 0; q < FEW; ++q)
                    if (lane + 32 * q < pairs) rotate_pair(m, round, lane + 32 * q, ahead[t][q], v);
                __syncwarp();
                round = round + 1 == rounds ? 0 : round + 1;
            }
        }
    for (; done < all; ++done) {
        for (int pair = lane; pair < pairs; pair += 32) {
            Turn<double> by;
            turn(log[(u64)done * pairs + pair], by);
            rotate_pair(m, round, pair, by, v);
        }
        __syncwarp();
        round = round + 1 == rounds ? 0 : round + 1;
    }
    for (int i = lane; i < n; i += 32) vectors[(u64)blockIdx.x * n + (place ? place[i] : i)] = v[i];
}

// W = U diag(values)^(-1/2) over the directions above `floor` times the largest eigenvalue, of which there are `rank`; the
// other columns are zero. U, W [p, p], values [p] descending.
extern "C" __global__ void whiten(int p, double floor, const double* values, const double* u, double* w, u32* rank) {
    double above = 0.0;
    MINE(i, p) above += values[i] > floor * values[0] && values[i] > 0.0;
    const u64 kept = (u64)block_sum(above);
    if (blockIdx.x == 0 && threadIdx.x == 0) *rank = kept;
    EACH(e, (u64)p * p) {
        u64 j = e % p;
        w[e] = j < kept ? u[e] / sqrt(values[j]) : 0.0;
    }
}

// out = (T + T^T)/2 [p, p], in which the directions from `rank` on, where T is zero, have eigenvalues below all others.
extern "C" __global__ void symmetric_part(int p, const u32* rank, const double* t, double* out) {
    double norm = 0.0;
    MINE(e, p * p) norm = fma(t[e], t[e], norm);
    norm = sqrt(block_sum(norm));
    const int kept = *rank;
    MINE(e, p * p) {
        int i = e / p, j = e % p;
        out[e] = i < kept || i != j ? 0.5 * (t[e] + t[j * p + i]) : norm > 0.0 ? -2.0 * norm : -1.0;
    }
}

// out [k] = the first values [k], zero from `rank` on.
extern "C" __global__ void take_top(int k, const u32* rank, const double* values, double* out) {
    MINE(j, k) out[j] = j < (int)*rank ? values[j] : 0.0;
}

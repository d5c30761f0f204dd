// Eigenvalues and eigenvectors of a symmetric matrix by two-sided Jacobi rotations, and the whitened problem
// Pi a = mu Sigma a. Follows small.cu.
//
// A sweep meets every pair of rows once, in rounds of pairs that share no row. A round has two phases: one thread for each
// pair finds its rotation, then one thread for each pair of pairs rotates its 2x2 block. jacobi keeps the matrix in shared
// memory where it fits and writes every rotation to `log`; rotate_vectors applies them to the rows of the identity, which do
// not depend on each other, in as many warps as there are rows.

#define SWEEPS 24
// Off-diagonal norm, relative to the norm of the matrix, at which the diagonal holds the eigenvalues.
#define CONVERGED 1e-15

extern __shared__ __align__(16) double room[];

// The two players of a pair in a round of a tournament among m (even).
__device__ __forceinline__ void players(int m, int round, int pair, int& i, int& j) {
    int rounds = m - 1, up = round + pair, down = round - pair;
    i = pair == 0 ? rounds : up >= rounds ? up - rounds : up;
    j = down < 0 ? down + rounds : down;
}

// Entry (i, j) of a symmetric matrix of which the lower half is stored, rows `row` numbers apart.
#define LOWER(i, j) (max(i, j) * row + min(i, j))

// The sum of squares below the diagonal; each thread takes every so many-th row.
__device__ double off_diagonal(int m, int row, const double* a) {
    double total = 0.0;
    MINE(e, m * m) {
        int i = e / m, j = e % m;
        if (j < i) total = fma(a[i * row + j], a[i * row + j], total);
    }
    return block_sum(total);
}

// The rotation (c, s) that makes entry (i, j) zero, and the diagonal after it.
__device__ void annihilate(int row, double* a, int i, int j, double& c, double& s) {
    double x = a[LOWER(i, j)], p = a[i * row + i], q = a[j * row + j];
    c = 1.0, s = 0.0;
    // The matrix has norm one: what is skipped is far below its rounding.
    if (fabs(x) < 1e-30) return;
    // t = tan of the angle, the smaller root: t = sign(h) d/(|h| + sqrt(h^2 + d^2)), h = q - p, d = 2x
    double h = q - p, d = 2.0 * x, t = d / (h + copysign(sqrt(fma(h, h, d * d)), h));
    c = rsqrt(fma(t, t, 1.0));
    s = c * t;
    a[i * row + i] = p - t * x;
    a[j * row + j] = q + t * x;
    a[LOWER(i, j)] = 0.0;
}

// Rotates the block of two pairs of rows, (first, second) as `both` packs them: from the left by the rotation of the first,
// from the right by that of the second.
__device__ __forceinline__ void rotate_block(int m, double* a, int round, int both, const double2* rotations) {
    const int row = m + 1, first = both >> 16, second = both & 0xffff;
    int i, j, k, l;
    players(m, round, first, i, j);
    players(m, round, second, k, l);
    const double c = rotations[first].x, s = rotations[first].y, e = rotations[second].x, f = rotations[second].y;
    double *ik = a + LOWER(i, k), *il = a + LOWER(i, l), *jk = a + LOWER(j, k), *jl = a + LOWER(j, l);
    double x = c * *ik - s * *jk, y = c * *il - s * *jl, z = s * *ik + c * *jk, w = s * *il + c * *jl;
    *ik = e * x - f * y;
    *il = f * x + e * y;
    *jk = e * z - f * w;
    *jl = f * z + e * w;
}

// Pairs `first` < `second` number e of a triangle whose halves are folded into a rectangle.
__device__ int folded(int pairs, int e) {
    int odd = pairs % 2, width = pairs - 1 + odd, first = e / width, second = first + 1 + e % width;
    if (second >= pairs) {
        first = pairs - 1 - odd - first;
        second = first + 1 + second - pairs;
    }
    return first << 16 | second;
}

// Blocks of a round that a thread keeps the numbers of; more are found anew each time.
#define KEPT 4

// Eigenvalues of a [n, n] (its lower half is read), descending; log [SWEEPS (m - 1), m/2] of the rotations, (c, s) each, m = n
// rounded up to even; place [n]: where each eigenvalue went; count: the rounds that were made. Notes PROBLEM where there is no
// solution. Shared memory holds m numbers, and, where room_fits, m (m + 1) more; otherwise work does.
extern "C" __global__ void __launch_bounds__(1024) jacobi(int n, const double* a, int room_fits, double* work, u32* control,
                                                          double* log, u32* place, u32* count, double* values) {
    const int m = n + n % 2, pairs = m / 2, row = m + 1, blocks = pairs * (pairs - 1) / 2, rounds = m - 1;
    double2* rotations = (double2*)room;
    double* g = room_fits ? room + m : work;
    double norm = 0.0;
    MINE(e, n * n) {
        int i = e / n, j = e % n;
        if (j <= i) norm = fma(a[e], a[e] * (i == j ? 1.0 : 2.0), norm);
    }
    norm = sqrt(block_sum(norm));
    if (spoiled(control, isfinite(norm) ? 0 : PROBLEM)) {
        if (threadIdx.x == 0) *count = 0;
        MINE(j, n) place[j] = j, values[j] = 0.0;
        return;
    }
    double inverse = norm > 0.0 ? 1.0 / norm : 0.0;
    MINE(e, m * m) {
        int i = e / m, j = e % m;
        if (j <= i) g[i * row + j] = i < n ? a[i * n + j] * inverse : 0.0;
    }
    int kept[KEPT];
    for (int it = 0; it < KEPT; ++it) kept[it] = folded(pairs, threadIdx.x + it * blockDim.x);
    __syncthreads();
    const double small = 0.5 * CONVERGED * CONVERGED;
    double off = off_diagonal(m, row, g);
    int sweep = 0;
    for (; sweep < SWEEPS && off > small; ++sweep) {
        for (int round = 0; round < rounds; ++round) {
            MINE(pair, pairs) {
                int i, j;
                double2 turn;
                players(m, round, pair, i, j);
                annihilate(row, g, i, j, turn.x, turn.y);
                rotations[pair] = turn;
                ((double2*)log)[((u64)sweep * rounds + round) * pairs + pair] = turn;
            }
            __syncthreads();
#pragma unroll
            for (int it = 0; it < KEPT; ++it)
                if (threadIdx.x + it * blockDim.x < blocks) rotate_block(m, g, round, kept[it], rotations);
            for (int e = threadIdx.x + KEPT * blockDim.x; e < blocks; e += blockDim.x)
                rotate_block(m, g, round, folded(pairs, e), rotations);
            __syncthreads();
        }
        off = off_diagonal(m, row, g);
    }
    spoiled(control, off <= small ? 0 : PROBLEM);
    if (threadIdx.x == 0) *count = sweep * rounds;
    MINE(j, n) {
        double mine = g[j * row + j];
        int before = 0;
        for (int i = 0; i < n; ++i) before += g[i * row + i] > mine || (g[i * row + i] == mine && i < j);
        place[j] = before;
        values[before] = mine * norm;
    }
}

// Rounds whose rotations are fetched ahead, and pairs of a round that each lane has then.
#define AHEAD 8
#define FEW 2

__device__ __forceinline__ void rotate_pair(int m, int round, int pair, double2 turn, double* v) {
    int i, j;
    players(m, round, pair, i, j);
    double x = v[i], y = v[j];
    v[i] = turn.x * x - turn.y * y;
    v[j] = turn.y * x + turn.x * y;
}

// The rotations of jacobi applied to row blockIdx.x of the identity: vectors [n, n], an eigenvector in each column. A warp for
// each row; shared memory holds m numbers.
extern "C" __global__ void rotate_vectors(int n, const double* log, const u32* place, const u32* count, double* vectors) {
    const int m = n + n % 2, pairs = m / 2, rounds = m - 1, lane = threadIdx.x, all = *count;
    const double2* turns = (const double2*)log;
    double* v = room;
    for (int i = lane; i < m; i += 32) v[i] = i == blockIdx.x ? 1.0 : 0.0;
    __syncwarp();
    int round = 0, done = 0;
    if (pairs <= 32 * FEW)
        for (; done + AHEAD <= all; done += AHEAD) {
            double2 ahead[AHEAD][FEW];
#pragma unroll
            for (int t = 0; t < AHEAD; ++t)
#pragma unroll
                for (int q = 0; q < FEW; ++q)
                    if (lane + 32 * q < pairs) ahead[t][q] = turns[(u64)(done + t) * pairs + lane + 32 * q];
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
        for (int pair = lane; pair < pairs; pair += 32) rotate_pair(m, round, pair, turns[(u64)done * pairs + pair], v);
        __syncwarp();
        round = round + 1 == rounds ? 0 : round + 1;
    }
    for (int i = lane; i < n; i += 32) vectors[(u64)blockIdx.x * n + place[i]] = v[i];
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

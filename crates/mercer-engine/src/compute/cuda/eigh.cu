// Eigenvalues and eigenvectors of a symmetric matrix by two-sided Jacobi rotations, and the whitened problem
// Pi a = mu Sigma a. Follows small.cu.
//
// Pairs of rows that share no row are rotated at the same time, a round; the pairs of the next round follow by moving rows
// between slots as players of a tournament change seats, so that slots 2k and 2k + 1 always meet and every address stays the
// same. After m - 1 rounds, a sweep, every pair has met once and every row is back in its slot. One thread for each pair finds
// its rotation; then one thread for each two pairs rotates their 2x2 block and writes it to where its entries go next.
//
// Every rotation is written to a log as the tangent of its angle. rotate_vectors applies the log to the rows of the vectors,
// which do not depend on each other, in as many warps as there are rows.
//
// jacobi_f32 finds rotations V that nearly diagonalise the matrix. Its rounding does not matter: a rotation is exact in double
// for any tangent. conjugate takes V^T A V in double, and jacobi_f64 finds what little is left.

#define SWEEPS 32

extern __shared__ __align__(16) double room[];

// Where the row in a slot of m (even) goes after a round: slot 0 stays, the others go round, up along the even slots and down
// along the odd ones.
__device__ __forceinline__ int next_slot(int m, int slot) {
    if (slot == 0 || m == 2) return slot;
    if (slot % 2 == 0) return slot == m - 2 ? m - 1 : slot + 2;
    return slot == 1 ? 2 : slot - 2;
}

// A symmetric matrix is kept as the blocks of two pairs of slots, first <= second: entry (2 first + q/2, 2 second + q%2) of
// block e is number q blocks + e. Of the two equal entries of a block with first = second only the upper one counts.
__device__ __forceinline__ int block_of(int pairs, int first, int second) {
    return first * pairs - first * (first - 1) / 2 + second - first;
}

// What a thread knows of a block: its pairs, and where its entries go after a round.
struct Block {
    int first, second, to[4];
};

__device__ Block block(int m, int e) {
    const int pairs = m / 2, blocks = pairs * (pairs + 1) / 2;
    Block b = {0, e, {}};
    while (b.first < pairs && b.second >= pairs - b.first) b.second -= pairs - b.first++;
    b.second += b.first;
    for (int q = 0; q < 4; ++q) {
        int i = next_slot(m, 2 * b.first + q / 2), j = next_slot(m, 2 * b.second + q % 2);
        int low = min(i, j), high = max(i, j);
        b.to[q] = (low % 2 * 2 + high % 2) * blocks + block_of(pairs, low / 2, high / 2);
    }
    return b;
}

// A rotation: cosine and sine.
template <class Real> struct __align__(2 * sizeof(Real)) Turn {
    Real c, s;
};

// From its tangent; the cosine 1/sqrt(1 + t^2) in double by one step of third order from the float.
__device__ __forceinline__ void turn(float t, Turn<float>& out) {
    out.c = rsqrtf(fmaf(t, t, 1.0f));
    out.s = out.c * t;
}
__device__ __forceinline__ void turn(float t, Turn<double>& out) {
    double x = fma((double)t, (double)t, 1.0), y = rsqrtf(fmaf(t, t, 1.0f)), e = fma(-x * y, y, 1.0);
    out.c = fma(y * e, fma(0.375, e, 0.5), y);
    out.s = out.c * t;
}

// The tangent of the angle that makes the entry x between p and q on the diagonal zero up to the rounding of a float; zero
// where x is below `nothing`: rotating by rounding errors would mix the vectors of equal eigenvalues without end.
template <class Real> __device__ __forceinline__ float tangent(Real p, Real x, Real q, Real nothing) {
    float h = (float)(q - p), d = (float)(2 * x), square = fmaf(h, h, d * d);
    float t = __fdividef(d, h + copysignf(square * rsqrtf(square), h));
    return fabs(x) > nothing ? t : 0.0f;
}

// The entries of block e.
template <class Real> struct Four {
    Real p, q, r, s;
};

template <class Real> __device__ __forceinline__ Four<Real> entries(int blocks, int e, const Block& b, const Real* from) {
    Real upper = from[blocks + e], lower = from[2 * blocks + e];
    return {from[e], upper, b.first == b.second ? upper : lower, from[3 * blocks + e]};
}

// Rotates a block from the left by the turn of its first pair and from the right by that of its second, and puts its entries
// to their next places in `to`.
template <class Real> __device__ __forceinline__ void rotate_block(const Block& b, const Four<Real>& v, const Turn<Real>* turns, Real* to) {
    const Turn<Real> left = turns[b.first], right = turns[b.second];
    Real x = left.c * v.p - left.s * v.r, y = left.c * v.q - left.s * v.s;
    Real z = left.s * v.p + left.c * v.r, w = left.s * v.q + left.c * v.s;
    Real upper = right.s * x + right.c * y;
    to[b.to[0]] = right.c * x - right.s * y;
    to[b.to[1]] = upper;
    to[b.to[2]] = b.first == b.second ? upper : right.c * z - right.s * w;
    to[b.to[3]] = right.s * z + right.c * w;
}

// Entry j of the diagonal.
template <class Real> __device__ __forceinline__ Real diagonal(int pairs, int j, const Real* from) {
    return from[j % 2 * 3 * (pairs * (pairs + 1) / 2) + block_of(pairs, j / 2, j / 2)];
}

// Up to where entries off the diagonal are zero. Between two rows whose diagonal entries are below `low`, half of the least
// eigenvalue that is wanted, they only have to be so small that no eigenvalue of those rows comes near that one.
template <class Real> struct Zero {
    Real nothing, low, loose;

    __device__ __forceinline__ Real of(Real p, Real q) const { return p < low && q < low ? loose : nothing; }
};

// For the `top` largest eigenvalues; for all where `top` is m.
template <class Real> __device__ __forceinline__ Zero<Real> zero(int m, int top, Real nothing, const Real* from) {
    __shared__ Real least;
    MINE(j, m) {
        const Real mine = diagonal(m / 2, j, from);
        int before = 0;
        for (int i = 0; i < m; ++i) {
            const Real other = diagonal(m / 2, i, from);
            before += other > mine || (other == mine && i < j);
        }
        if (before == top - 1) least = mine;
    }
    __syncthreads();
    const Real wanted = max(least, (Real)0);
    __syncthreads();
    return {nothing, wanted / 2, max(nothing, wanted / (10 * m))};
}

// The squares of the entries of block e that lie above the diagonal, in units of what counts as zero; none of a block beyond
// the last.
template <class Real>
__device__ __forceinline__ double squares(int m, int e, const Block& b, Zero<Real> zero, const Real* from) {
    const int pairs = m / 2, blocks = pairs * (pairs + 1) / 2;
    double total = 0.0;
    if (e < blocks)
        for (int q = 0; q < 4; ++q)
            if (b.first != b.second || q == 1) {
                Real unit = zero.of(diagonal(pairs, 2 * b.first + q / 2, from), diagonal(pairs, 2 * b.second + q % 2, from));
                double share = from[q * blocks + e] / unit;
                total = fma(share, share, total);
            }
    return total;
}

// Threads of a block at most, and blocks of a matrix that each keeps what it knows of; it finds that anew for more.
#define MOST 768
#define KEPT 3

// Rotates the matrix of m (even) rows in `from` until its off-diagonal entries are zero, as far as its `top` largest eigenpairs
// need it, in at most `most` sweeps. The m (m/2 + 1) numbers there and as many after them change places with every round.
// log [most (m - 1), m/2] receives the tangents, and room the diagonal [m]. Returns the sweeps made; `done`: whether the
// entries are zero. Inlined, so that the compiler knows which kind of memory `from` is in.
template <class Real>
__device__ __forceinline__ int sweeps(int m, int top, Real nothing, Real* from, int most, float* log, bool& done) {
    Turn<Real>* turns = (Turn<Real>*)room;
    Real* to = from + m * (m / 2 + 1);
    const int pairs = m / 2, blocks = pairs * (pairs + 1) / 2, rounds = m - 1;
    Block kept[KEPT];
#pragma unroll
    for (int it = 0; it < KEPT; ++it) kept[it] = block(m, min((int)(threadIdx.x + it * blockDim.x), blocks - 1));
    for (int sweep = 0;; ++sweep) {
        const Zero<Real> small = zero(m, top, nothing, from);
        double left = 0.0;
#pragma unroll
        for (int it = 0; it < KEPT; ++it) left += squares(m, threadIdx.x + it * blockDim.x, kept[it], small, from);
        for (int e = threadIdx.x + KEPT * blockDim.x; e < blocks; e += blockDim.x) left += squares(m, e, block(m, e), small, from);
        done = block_sum(left) <= 0.5 * m * m;
        if (sweep == most || done) {
            MINE(j, m) ((Real*)room)[j] = diagonal(pairs, j, from);
            __syncthreads();
            return sweep;
        }
        for (int round = 0; round < rounds; ++round) {
            MINE(k, pairs) {
                int e = block_of(pairs, k, k);
                const Real p = from[e], q = from[3 * blocks + e];
                float t = tangent(p, from[blocks + e], q, small.of(p, q));
                turn(t, turns[k]);
                log[((u64)sweep * rounds + round) * pairs + k] = t;
            }
            __syncthreads();
            // All are read before the first is written, so that they do not wait for each other.
            Four<Real> values[KEPT];
#pragma unroll
            for (int it = 0; it < KEPT; ++it)
                if (it * blockDim.x < blocks)
                    values[it] = entries(blocks, min((int)(threadIdx.x + it * blockDim.x), blocks - 1), kept[it], from);
#pragma unroll
            for (int it = 0; it < KEPT; ++it)
                if (threadIdx.x + it * blockDim.x < blocks) rotate_block(kept[it], values[it], turns, to);
            for (int e = threadIdx.x + KEPT * blockDim.x; e < blocks; e += blockDim.x) {
                const Block b = block(m, e);
                rotate_block(b, entries(blocks, e, b, from), turns, to);
            }
            Real* other = from;
            from = to, to = other;
            __syncthreads();
        }
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

// The blocks of a [n, n] times a number; its lower half is read. Zeros in a last row where m > n.
template <class Real> __device__ __forceinline__ void fill(int n, int m, const double* a, double scale, Real* out) {
    const int blocks = m / 2 * (m / 2 + 1) / 2;
    MINE(e, blocks) {
        const Block b = block(m, e);
        for (int q = 0; q < 4; ++q) {
            int i = 2 * b.first + q / 2, j = 2 * b.second + q % 2, low = min(i, j), high = max(i, j);
            out[q * blocks + e] = high < n ? (Real)(a[(u64)high * n + low] * scale) : (Real)0;
        }
    }
    __syncthreads();
}

// The sweeps of a [n, n] times a number, in `work`.
template <class Real>
__device__ __forceinline__ int diagonalise(int n, int m, const double* a, double scale, int top, Real nothing, Real* work, int most,
                                           float* log, bool& done) {
    fill(n, m, a, scale, work);
    return sweeps(m, top, nothing, work, most, log, done);
}

// The log of rotations that nearly diagonalise a [n, n] (its lower half is read) as far as its `top` largest eigenpairs need
// it, and the count of rounds in it. Notes PROBLEM
// where a is not finite. Shared memory holds m numbers, m = n rounded up to even, and, where room_fits, 2 m (m/2 + 1) more;
// otherwise work does.
extern "C" __global__ void __launch_bounds__(MOST) jacobi_f32(int n, const double* a, int top, int room_fits, float* work,
                                                             u32* control, float* log, u32* count) {
    const int m = n + n % 2;
    double norm = norm_of(n, a);
    int made = 0;
    bool done;
    if (!spoiled(control, isfinite(norm) ? 0 : PROBLEM) && norm > 0.0) {
        if (room_fits) made = diagonalise(n, m, a, 1.0 / norm, top, 1e-7f, (float*)room + m, SWEEPS / 2, log, done);
        else made = diagonalise(n, m, a, 1.0 / norm, top, 1e-7f, work, SWEEPS / 2, log, done);
    }
    if (threadIdx.x == 0) *count = made * (m - 1);
}

// The `top` largest eigenvalues of a [n, n] and estimates of the others, descending; place [n]: where each of them went.
// `nothing` is what may be left off the diagonal, as a share of the norm of a: so large is the error of the vectors, and its
// square that of the values. Otherwise as above; notes PROBLEM where the rotations do not converge.
extern "C" __global__ void __launch_bounds__(MOST) jacobi_f64(int n, const double* a, int top, double nothing, int room_fits,
                                                             double* work, u32* control, float* log, u32* place, u32* count,
                                                             double* values) {
    const int m = n + n % 2;
    double norm = norm_of(n, a), scale = norm > 0.0 ? 1.0 / norm : 0.0;
    int made = 0;
    const bool bad = spoiled(control, isfinite(norm) ? 0 : PROBLEM);
    if (!bad) {
        bool done;
        if (room_fits) made = diagonalise(n, m, a, scale, top, nothing, room + m, SWEEPS, log, done);
        else made = diagonalise(n, m, a, scale, top, nothing, work, SWEEPS, log, done);
        spoiled(control, done ? 0 : PROBLEM);
    }
    if (threadIdx.x == 0) *count = made * (m - 1);
    MINE(j, n) {
        int before = bad ? j : 0;
        double mine = bad ? 0.0 : room[j];
        for (int i = 0; i < n && !bad; ++i) before += room[i] > mine || (room[i] == mine && i < j);
        place[j] = before;
        values[before] = mine * norm;
    }
}

// out = V^T A V [n, n], a column for each block; the lower half of A is read. Shared memory holds n numbers.
extern "C" __global__ void conjugate(int n, const double* a, const double* v, double* out) {
    const int column = blockIdx.x;
    MINE(i, n) {
        double total = 0.0;
        for (int k = 0; k < n; ++k) total = fma(a[max(i, k) * n + min(i, k)], v[k * n + column], total);
        room[i] = total;
    }
    __syncthreads();
    MINE(i, n) {
        double total = 0.0;
        for (int k = 0; k < n; ++k) total = fma(v[k * n + i], room[k], total);
        out[i * n + column] = total;
    }
}

// Rounds whose tangents are fetched ahead.
#define AHEAD 8

// Applies `all` rounds of a log to the m (even) numbers in `from`, one warp; each lane has FEW pairs at most. `from` points
// to them at the end.
template <int FEW> __device__ void rotate_row(int m, int all, const float* log, double*& from, double* to) {
    const int pairs = m / 2, lane = threadIdx.x;
    int pair[FEW], up[FEW], down[FEW], done = 0;
    float tangents[AHEAD][FEW];
    // Lanes without a pair read the last one's and write nothing.
#pragma unroll
    for (int q = 0; q < FEW; ++q) {
        pair[q] = min(lane + 32 * q, pairs - 1);
        up[q] = next_slot(m, 2 * pair[q]), down[q] = next_slot(m, 2 * pair[q] + 1);
    }
    auto fetch = [&](int first) {
#pragma unroll
        for (int t = 0; t < AHEAD; ++t)
#pragma unroll
            for (int q = 0; q < FEW; ++q) tangents[t][q] = log[(u64)min(first + t, all - 1) * pairs + pair[q]];
    };
    if (all > 0) fetch(0);
    while (done < all) {
        Turn<double> turns[AHEAD][FEW];
#pragma unroll
        for (int t = 0; t < AHEAD; ++t)
#pragma unroll
            for (int q = 0; q < FEW; ++q) turn(tangents[t][q], turns[t][q]);
        fetch(done + AHEAD);
#pragma unroll
        for (int t = 0; t < AHEAD; ++t) {
            if (done == all) break;
#pragma unroll
            for (int q = 0; q < FEW; ++q) {
                const Turn<double> by = turns[t][q];
                double x = from[2 * pair[q]], y = from[2 * pair[q] + 1];
                if (lane + 32 * q < pairs) {
                    to[up[q]] = by.c * x - by.s * y;
                    to[down[q]] = by.s * x + by.c * y;
                }
            }
            double* other = from;
            from = to, to = other;
            ++done;
            __syncwarp();
        }
    }
}

// The same for any number of pairs.
__device__ void rotate_long_row(int m, int all, const float* log, double*& from, double* to) {
    const int pairs = m / 2;
    for (int done = 0; done < all; ++done) {
        for (int k = threadIdx.x; k < pairs; k += 32) {
            Turn<double> by;
            turn(log[(u64)done * pairs + k], by);
            double x = from[2 * k], y = from[2 * k + 1];
            to[next_slot(m, 2 * k)] = by.c * x - by.s * y;
            to[next_slot(m, 2 * k + 1)] = by.s * x + by.c * y;
        }
        double* other = from;
        from = to, to = other;
        __syncwarp();
    }
}

// The rotations of a log applied to row blockIdx.x of `start` [n, n], of the identity where that is null: vectors [n, n],
// column j at place[j], or at j where that is null. A warp for each row; shared memory holds 2 m numbers.
extern "C" __global__ void __launch_bounds__(32) rotate_vectors(int n, const float* log, const u32* count, const double* start,
                                                                const u32* place, double* vectors) {
    const int m = n + n % 2, lane = threadIdx.x, all = *count;
    double* from = room;
    for (int i = lane; i < m; i += 32) from[i] = !start ? i == blockIdx.x : i < n ? start[(u64)blockIdx.x * n + i] : 0.0;
    __syncwarp();
    if (m <= 64) rotate_row<1>(m, all, log, from, room + m);
    else if (m <= 128) rotate_row<2>(m, all, log, from, room + m);
    else rotate_long_row(m, all, log, from, room + m);
    for (int i = lane; i < n; i += 32) vectors[(u64)blockIdx.x * n + (place ? place[i] : i)] = from[i];
}

// The first-order rotation of the kept rows of a nearly diagonal A [p, p] away from the others: out = I + E with
// E_ij = A_ij/(A_jj - A_ii) for i not kept and j kept, zero where that is not small.
extern "C" __global__ void away_from_rest(int p, double floor, const double* a, double* out) {
    const double least = floor * largest_diagonal(p, a);
    MINE(e, p * p) {
        const int i = e / p, j = e % p;
        const double from = a[i * p + i], to = a[j * p + j], x = a[e];
        const bool small = from <= least && to > least && fabs(x) < 0.1 * (to - from);
        out[e] = i == j ? 1.0 : small ? x / (to - from) : 0.0;
    }
}

// L of A = L L^T [p, p], by rows, over the rows that are kept: those whose diagonal entry is above `floor` times the largest,
// and still above half of that without the rows before. A is nearly diagonal. kept [p]: one for those rows; returns how many.
__device__ __forceinline__ u32 factor_rows(int p, double floor, const double* a, double* l, u32* kept) {
    const double least = floor * largest_diagonal(p, a);
    u32 rank = 0;
    MINE(e, p * p) l[e] = a[e];
    __syncthreads();
    for (int i = 0; i < p; ++i) {
        const double pivot = l[i * p + i];
        const bool keep = a[i * p + i] > least && pivot > 0.5 * least;
        __syncthreads();
        if (threadIdx.x == 0) kept[i] = keep;
        if (!keep) continue;
        ++rank;
        const double root = sqrt(pivot);
        for (int r = i + threadIdx.x; r < p; r += blockDim.x) l[r * p + i] = r == i ? root : l[r * p + i] / root;
        __syncthreads();
        const int rest = p - 1 - i;
        MINE(e, rest * rest) {
            int r = i + 1 + e / rest, c = i + 1 + e % rest;
            if (c <= r) l[r * p + c] -= l[r * p + i] * l[c * p + i];
        }
        __syncthreads();
    }
    return rank;
}

// The same, in shared memory where it holds p^2 numbers; l receives the factor.
extern "C" __global__ void factor_kept(int p, double floor, const double* a, int room_fits, double* l, u32* kept, u32* rank) {
    u32 count;
    if (room_fits) {
        count = factor_rows(p, floor, a, room, kept);
        MINE(e, p * p) l[e] = room[e];
    } else count = factor_rows(p, floor, a, l, kept);
    if (threadIdx.x == 0) *rank = count;
}

// W = V L^-T [p, p] over the kept columns, the others zero: W^T V A V^T W = I there. A row for each block, of one warp; shared
// memory holds p numbers.
extern "C" __global__ void __launch_bounds__(32) whiten(int p, const double* v, const double* l, const u32* kept, double* w) {
    const u64 row = (u64)blockIdx.x * p;
    for (int j = 0; j < p; ++j) {
        double total = 0.0;
        for (int i = threadIdx.x; i < j; i += 32) total = fma(room[i], l[j * p + i], total);
        for (int step = 16; step; step >>= 1) total += __shfl_xor_sync(0xffffffffu, total, step);
        if (threadIdx.x == 0) room[j] = kept[j] ? (v[row + j] - total) / l[j * p + j] : 0.0;
        __syncwarp();
    }
    for (int j = threadIdx.x; j < p; j += 32) w[row + j] = room[j];
}

// out = (T + T^T)/2 [p, p], in which the directions that are not kept, where T is zero, have eigenvalues below all others.
extern "C" __global__ void symmetric_part(int p, const u32* kept, const double* t, double* out) {
    double norm = 0.0;
    MINE(e, p * p) norm = fma(t[e], t[e], norm);
    norm = sqrt(block_sum(norm));
    MINE(e, p * p) {
        int i = e / p, j = e % p;
        out[e] = kept[i] || i != j ? 0.5 * (t[e] + t[j * p + i]) : norm > 0.0 ? -2.0 * norm : -1.0;
    }
}

// out [k] = the first values [k], zero from `rank` on.
extern "C" __global__ void take_top(int k, const u32* rank, const double* values, double* out) {
    MINE(j, k) out[j] = j < (int)*rank ? values[j] : 0.0;
}

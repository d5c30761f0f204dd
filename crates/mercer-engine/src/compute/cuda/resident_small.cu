// Dense problems of a few hundred rows at most, each solved by one block in double precision, so that a training step with
// an eigenproblem or a Cholesky factor in it need not pass through the host. Everything is in an order that never changes.

#define WARPS (THREADS / 32)
#define EPSILON 2.220446049250313e-16
#define SWEEPS 40

// A matrix that fits, for the problem that is being solved.
extern __shared__ double room[];

__device__ double warp_sum(double v) {
    for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

// Over the block; every thread receives the result.
__device__ double block_sum(double v) {
    __shared__ double part[WARPS];
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    double sum = 0.0;
    for (int w = 0; w < WARPS; ++w) sum += part[w];
    return sum;
}

// Makes the rows a and b [n] orthogonal by a rotation, unless they are so to rounding. Rows have norms of about
// sqrt(square). Returns whether they were farther than `far` from it. One warp.
__device__ bool rotate(int n, double* a, double* b, double square, double far) {
    double dot = 0.0, gap = 0.0;
    for (int r = threadIdx.x % 32; r < n; r += 32) {
        double x = a[r], y = b[r];
        dot = fma(x, y, dot);
        // |b|^2 - |a|^2 without the cancellation of two large sums
        gap = fma(y - x, y + x, gap);
    }
    dot = warp_sum(dot);
    gap = warp_sum(gap);
    if (fabs(dot) <= EPSILON * square) return false;
    double zeta = gap / (2.0 * dot), t = copysign(1.0 / (fabs(zeta) + sqrt(fma(zeta, zeta, 1.0))), zeta);
    double c = 1.0 / sqrt(fma(t, t, 1.0)), s = c * t;
    for (int r = threadIdx.x % 32; r < n; r += 32) {
        double x = a[r], y = b[r];
        a[r] = c * x - s * y;
        b[r] = s * x + c * y;
    }
    return fabs(dot) > far;
}

// Eigenvalues of the symmetric g [n, n], descending, and its eigenvectors as the rows of `vectors` [n, n], by one-sided
// Jacobi rotations: g + shift, whose eigenvalues lie between shift/2 and 3 shift/2, is rotated until its rows are
// orthogonal, and they are then its eigenvectors times its eigenvalues. A sweep meets every pair of rows once, in rounds of
// pairs that share no row, a warp for each pair. Uses up g; `norms` [n]. Returns whether it converged.
__device__ __noinline__ bool jacobi(int n, double* g, double* norms, double* values, double* vectors) {
    if (n == 0) return true;
    double sum = 0.0;
    for (int e = threadIdx.x; e < n * n; e += THREADS) sum = fma(g[e], g[e], sum);
    sum = block_sum(sum);
    if (!isfinite(sum)) return false;
    double shift = sum > 0.0 ? 2.0 * sqrt(sum) : 1.0, square = shift * shift;
    for (int i = threadIdx.x; i < n; i += THREADS) g[i * n + i] += shift;
    __syncthreads();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // A tournament: with an odd number one sits out each round.
    const int players = n + n % 2, rounds = players - 1;
    const double far = 8.0 * sqrt((double)n) * EPSILON * square;
    bool done = false;
    for (int sweep = 0; sweep < SWEEPS && !done; ++sweep) {
        bool large = false;
        for (int round = 0; round < rounds; ++round) {
            for (int pair = warp; pair < players / 2; pair += WARPS) {
                int i = pair ? (round + pair) % rounds : rounds, j = (round + rounds - pair) % rounds;
                if (i < n && j < n) large |= rotate(n, g + (u64)i * n, g + (u64)j * n, square, far);
            }
            __syncthreads();
        }
        // The last sweep has rotated what little was left.
        done = !__syncthreads_or(large);
    }
    for (int j = warp; j < n; j += WARPS) {
        double norm = 0.0;
        for (int r = lane; r < n; r += 32) norm = fma(g[(u64)j * n + r], g[(u64)j * n + r], norm);
        norm = sqrt(warp_sum(norm));
        if (lane == 0) norms[j] = norm;
    }
    __syncthreads();
    for (int j = warp; j < n; j += WARPS) {
        double mine = norms[j], before = 0.0;
        for (int i = lane; i < n; i += 32) before += norms[i] > mine || (norms[i] == mine && i < j);
        int place = (int)warp_sum(before);
        if (lane == 0) values[place] = mine - shift;
        for (int r = lane; r < n; r += 32) vectors[(u64)place * n + r] = g[(u64)j * n + r] / mine;
    }
    __syncthreads();
    return done;
}

// jacobi by itself, of a [n, n], whose lower half is read; failed becomes 1 where it does not converge. room_fits: whether
// shared memory holds [n, n]; work [n, n + 1].
extern "C" __global__ void __launch_bounds__(THREADS) eigenpairs(int n, const double* a, int room_fits, double* work,
                                                                double* values, double* vectors, u32* failed) {
    double* g = room_fits ? room : work + n;
    for (int e = threadIdx.x; e < n * n; e += THREADS) g[e] = a[max(e / n, e % n) * n + min(e / n, e % n)];
    __syncthreads();
    bool good = jacobi(n, g, work, values, vectors);
    if (threadIdx.x == 0) *failed = !good;
}

// out [m, n] = x [m, k] y [k, n], all stored with these numbers from one row to the next; four rows of out at a time.
template <class Y>
__device__ void product(int m, int n, int k, const double* x, int x_row, const Y* y, int y_row, double* out, int out_row) {
    for (int e = threadIdx.x; e < (m + 3) / 4 * n; e += THREADS) {
        int i = e / n * 4, j = e % n;
        const double* rows[4];
        double sum[4] = {0.0, 0.0, 0.0, 0.0};
        for (int q = 0; q < 4; ++q) rows[q] = x + (u64)min(i + q, m - 1) * x_row;
        for (int l = 0; l < k; ++l) {
            double v = y[(u64)l * y_row + j];
            for (int q = 0; q < 4; ++q) sum[q] = fma(rows[q][l], v, sum[q]);
        }
        for (int q = 0; q < 4 && i + q < m; ++q) out[(u64)(i + q) * out_row + j] = sum[q];
    }
    __syncthreads();
}

// Ritz: the top k pairs of Pi a = mu Sigma a [p, p] within the directions of Sigma above `floor` of its largest, as the
// matrices of g = image Kphi + own phi: image = -(2/points) sum_j a_j a_j^T, own = (2/points) sum_j mu_j a_j a_j^T; the loss
// -sum_j mu_j and the eigenvalues mu, zero for those that are missing. work: f64 [5 p + 2, p]. One block.
extern "C" __global__ void __launch_bounds__(THREADS) ritz(int p, int k, double points, double floor, const float* sigma,
                                                          const float* pi, int room_fits, double* work, u32* control,
                                                          double* record, float* image, float* own) {
    bool psi = finite(p * p, sigma), action = finite(p * p, pi);
    if (spoiled(control, !psi ? PSI : !action ? IMAGE : 0)) return;
    const u64 square = (u64)p * p;
    double *values = work, *norms = values + p, *w = norms + p, *turned = w + square, *y = turned + square, *t = y + square;
    double* g = room_fits ? room : t + square;
    // Sigma = U diag(lambda) U^T
    for (int e = threadIdx.x; e < p * p; e += THREADS) g[e] = sigma[max(e / p, e % p) * p + min(e / p, e % p)];
    __syncthreads();
    bool good = jacobi(p, g, norms, values, w);
    int rank = 0;
    while (rank < p && values[rank] > floor * values[0] && values[rank] > 0.0) ++rank;
    // W = U diag(lambda)^(-1/2), a direction in each row
    for (int e = threadIdx.x; e < rank * p; e += THREADS) {
        w[e] /= sqrt(values[e / p]);
        turned[(u64)(e % p) * p + e / p] = w[e];
    }
    __syncthreads();
    // T = W^T Pi W, made symmetric
    product(rank, p, p, w, p, pi, p, y, p);
    product(rank, rank, p, y, p, turned, p, t, rank);
    for (int e = threadIdx.x; e < rank * rank; e += THREADS) g[e] = 0.5 * (t[e] + t[e % rank * rank + e / rank]);
    __syncthreads();
    good &= jacobi(rank, g, norms, values, t);
    // A = W V for the first of V, a pair in each row of y
    int count = min(k, rank);
    product(count, p, rank, t, rank, w, p, y, p);
    for (int e = threadIdx.x; e < p * p; e += THREADS) {
        double plain = 0.0, weighted = 0.0;
        for (int j = 0; j < count; ++j) {
            double v = y[(u64)j * p + e / p] * y[(u64)j * p + e % p];
            plain += v;
            weighted = fma(values[j], v, weighted);
        }
        image[e] = (float)(plain * (-2.0 / points));
        own[e] = (float)(weighted * (2.0 / points));
    }
    double loss = 0.0;
    for (int j = 0; j < count; ++j) loss -= values[j];
    if (spoiled(control, !good ? PROBLEM : !isfinite(loss) ? LOSS : 0)) return;
    double* out = record + (u64)control[STEP] * (k + 1);
    if (threadIdx.x == 0) out[0] = loss;
    for (int j = threadIdx.x; j < k; j += THREADS) out[1 + j] = j < count ? values[j] : 0.0;
}

// l [k, k] <- its lower Cholesky factor; whether there is one.
__device__ bool cholesky(int k, double* l) {
    for (int i = 0; i < k; ++i) {
        double pivot = l[i * k + i];
        __syncthreads();
        if (!(pivot > 0.0)) return false;
        double root = sqrt(pivot);
        for (int r = i + threadIdx.x; r < k; r += THREADS) l[r * k + i] = r == i ? root : l[r * k + i] / root;
        __syncthreads();
        int rest = k - 1 - i;
        for (int e = threadIdx.x; e < rest * rest; e += THREADS) {
            int r = i + 1 + e / rest, c = i + 1 + e % rest;
            if (c <= r) l[r * k + c] -= l[r * k + i] * l[c * k + i];
        }
        __syncthreads();
    }
    return true;
}

// X [k, k] <- L^-1 X, or L^-T X
__device__ void solve(int k, const double* l, bool transposed, double* x) {
    for (int n = 0; n < k; ++n) {
        int i = transposed ? k - 1 - n : n;
        for (int c = threadIdx.x; c < k; c += THREADS) x[i * k + c] /= l[i * k + i];
        __syncthreads();
        for (int e = threadIdx.x; e < (k - 1 - n) * k; e += THREADS) {
            int r = transposed ? e / k : i + 1 + e / k, c = e % k;
            x[r * k + c] -= (transposed ? l[i * k + r] : l[r * k + i]) * x[i * k + c];
        }
        __syncthreads();
    }
}

// X [k, k], symmetric, <- L^-1 X L^-T; `half` [k, k]
__device__ void rotated(int k, const double* l, double* half, double* x) {
    solve(k, l, false, x);
    for (int e = threadIdx.x; e < k * k; e += THREADS) half[e % k * k + e / k] = x[e];
    __syncthreads();
    solve(k, l, false, half);
    for (int e = threadIdx.x; e < k * k; e += THREADS) x[e] = half[e];
    __syncthreads();
}

// SpIN: with Sigma's moving average = L L^T and Lambda = L^-1 Pi L^-T, the matrix of g = image Kpsi, image =
// -(2/points) A^T, A = L^-T diag(L)^-1; what the Jacobian is weighed with, mask_bi = 2 G_bi, G = L^-T triu(Lambda
// diag(L)^-1); the loss -Tr Lambda, and the eigenvalues diag(L^-1 U L^-T) from U = apart (Pi - D) + self D, D = own/size, Pi
// without the batch's bias. own null: own = Sigma gram[0], and gram null: no bias. share: how much of the Jacobian's average
// stays and how much the new one counts. work: f64 [5 k, k]. One block.
extern "C" __global__ void __launch_bounds__(THREADS) spin(int k, double points, double apart, double self, double size,
                                                          double decay, const float* gram, const float* own,
                                                          const float* sigma, const float* pi, int room_fits, double* work,
                                                          double* average, u32* control, double* record, float* image,
                                                          float* mask, float* share) {
    bool psi = finite(k * k, sigma), action = finite(k * k, pi);
    if (threadIdx.x < 2) share[threadIdx.x] = threadIdx.x ? 0.0f : 1.0f;
    if (spoiled(control, !psi ? PSI : !action ? IMAGE : 0)) return;
    bool begun = control[BEGUN] != 0;
    __syncthreads();
    double trace = 0.0;
    for (int e = threadIdx.x; e < k * k; e += THREADS) {
        average[e] = begun ? average[e] * decay + sigma[e] * (1.0 - decay) : (double)sigma[e];
        if (e / k == e % k) trace += average[e];
    }
    trace = block_sum(trace);
    if (threadIdx.x == 0) {
        control[BEGUN] = 1;
        share[0] = begun ? (float)decay : 0.0f;
        share[1] = begun ? (float)(1.0 - decay) : 1.0f;
    }
    const u64 square = (u64)k * k;
    double *lambda = work, *half = lambda + square, *a = half + square, *g = a + square;
    double* l = room_fits ? room : g + square;
    // As much of the identity is added as it takes: functions may coincide.
    double mean = fmax(trace / k, 2.2250738585072014e-308), jitter = 1e-7 * mean;
    bool good;
    while (true) {
        for (int e = threadIdx.x; e < k * k; e += THREADS) l[e] = average[e] + (e / k == e % k ? jitter : 0.0);
        __syncthreads();
        good = cholesky(k, l);
        if (good || jitter > mean || !isfinite(jitter)) break;
        jitter *= 10.0;
        __syncthreads();
    }
    if (spoiled(control, good ? 0 : PROBLEM)) return;
    for (int e = threadIdx.x; e < k * k; e += THREADS) lambda[e] = 0.5 * ((double)pi[e] + pi[e % k * k + e / k]);
    __syncthreads();
    rotated(k, l, half, lambda);
    for (int e = threadIdx.x; e < k * k; e += THREADS) {
        int j = e / k, i = e % k;
        a[e] = i == j ? 1.0 / l[e] : 0.0;
        g[e] = j <= i ? lambda[e] / l[i * k + i] : 0.0;
    }
    __syncthreads();
    solve(k, l, true, a);
    solve(k, l, true, g);
    double loss = 0.0, all = 0.0;
    for (int i = 0; i < k; ++i) loss -= lambda[i * k + i];
    for (int e = threadIdx.x; e < k * k; e += THREADS) {
        image[e] = (float)(a[e % k * k + e / k] * (-2.0 / points));
        mask[e] = 2.0f * (float)g[e];
    }
    __syncthreads();
    for (int e = threadIdx.x; e < k * k; e += THREADS) {
        int turned = e % k * k + e / k;
        double r = 0.5 * ((double)pi[e] + pi[turned]), d = 0.0;
        if (own) d = 0.5 * ((double)own[e] + own[turned]) / size;
        else if (gram) d = 0.5 * ((double)sigma[e] + sigma[turned]) * gram[0] / size;
        lambda[e] = (r - d) * apart + d * self;
    }
    __syncthreads();
    rotated(k, l, half, lambda);
    for (int i = 0; i < k; ++i) all += lambda[i * k + i];
    if (spoiled(control, isfinite(loss) && isfinite(all) ? 0 : LOSS)) return;
    double* out = record + (u64)control[STEP] * (k + 1);
    if (threadIdx.x == 0) out[0] = loss;
    for (int j = threadIdx.x; j < k; j += THREADS) out[1 + j] = lambda[j * k + j];
}

#define EACH(i, n) for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x)

// out_ib = G_b psi_ib, psi and out [k, b, c], `total` numbers each; G_b [c, c] the block of point b with itself, `stride`
// numbers after that of the point before.
extern "C" __global__ void weigh(u64 total, u64 b, u64 c, u64 stride, const float* gram, const float* psi, float* out) {
    EACH(i, total) {
        const float* row = gram + i / c % b * stride + i % c * c;
        const float* values = psi + i / c * c;
        float sum = 0.0f;
        for (u64 o = 0; o < c; ++o) sum = fmaf(row[o], values[o], sum);
        out[i] = sum;
    }
}

// out_i = scale psi_one for every function i; psi and out [k, values], `total` numbers each.
extern "C" __global__ void spread(u64 total, u64 values, u64 one, float scale, const float* psi, float* out) {
    EACH(i, total) out[i] = scale * psi[one * values + i % values];
}

// average <- share_0 average + share_1 fresh [n]; what does not count is not looked at.
extern "C" __global__ void blend(u64 n, const float* share, const float* fresh, float* average) {
    float stays = share[0], counts = share[1];
    if (counts == 0.0f) return;
    EACH(i, n) average[i] = stays == 0.0f ? fresh[i] : fmaf(counts, fresh[i], stays * average[i]);
}

// gradient_q += sum_b mask_bi J_b,q [k own], i the network that q is a parameter of; jacobian: where each J_b is.
extern "C" __global__ void masked_sum(u64 own, u64 k, const u64* jacobian, const float* mask, float* gradient) {
    EACH(q, k * own) {
        float sum = gradient[q];
        for (u64 b = 0; b < k; ++b) sum = fmaf(mask[b * k + q / own], ((const float*)jacobian[b])[q], sum);
        gradient[q] = sum;
    }
}

// What a training step needs beside the primitives so that nothing of it passes through the host.

// The step's row numbers, and its points: out[i] = x[rows[step, i]], rows of d numbers.
extern "C" __global__ void begin_step(u64 b, u64 d, const u32* control, const u32* rows, u32* now, const float* x, float* out) {
    const u32* mine = rows + (u64)control[STEP] * b;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < b * d; i += (u64)gridDim.x * blockDim.x) {
        u32 row = mine[i / d];
        if (i % d == 0) now[i / d] = row;
        out[i] = x[(u64)row * d + i % d];
    }
}

// Over a block of THREADS, in an order that never changes; every thread receives the result.
__device__ double block_sum(double v) {
    __shared__ double shared[THREADS];
    __syncthreads();
    shared[threadIdx.x] = v;
    for (u32 half = THREADS / 2; half; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    __syncthreads();
    return shared[0];
}
__device__ double block_max(double v) {
    __shared__ double shared[THREADS];
    __syncthreads();
    shared[threadIdx.x] = v;
    for (u32 half = THREADS / 2; half; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] = fmax(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads();
    return shared[0];
}

// own_i = (1/bc) sum_b psi_ib^T G_b psi_ib, one block for each i; psi [k, b, c], G_b [c, c] the block of point b with itself,
// `stride` numbers after that of the point before.
extern "C" __global__ void own_diagonal(int b, int c, u64 stride, const float* gram, const float* psi, double* own) {
    const float* mine = psi + (u64)blockIdx.x * b * c;
    double sum = 0.0;
    for (int i = threadIdx.x; i < b * c; i += THREADS) {
        const float* row = gram + i / c * stride + i % c * c;
        const float* values = mine + i / c * c;
        for (int o = 0; o < c; ++o) sum += (double)row[o] * values[o] * mine[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) own[blockIdx.x] = sum / (b * c);
}

// R_ii over all n points from its value over a batch of b and the batch's pairs of a point with itself,
// own = (1/bc) mean_b kappa_bb psi_ib^2: (1 - 1/n) (R - own) b/(b - 1) + own b/n.
__device__ double unbiased(double r, double own, double n, double b) {
    return b < 2.0 ? r : (r - own) * ((1.0 - 1.0 / n) * b / (b - 1.0)) + own * (b / n);
}

// M = L^-1 for R = L D L^T [k, k], by rows of M and `image` [k]: row i is what is left of function i once those before it are
// taken out; a remainder below `least` takes nothing out of the later ones.
__device__ void eliminate(int k, double least, const float* r, double* m, double* image) {
    for (int e = threadIdx.x; e < k * k; e += THREADS) m[e] = e / k == e % k ? 1.0 : 0.0;
    for (int i = 0; i < k; ++i) {
        __syncthreads();
        for (int j = i + threadIdx.x; j < k; j += THREADS) {
            double sum = 0.0;
            for (int l = 0; l <= i; ++l) sum = fma(m[i * k + l], (double)r[l * k + j], sum);
            image[j] = sum;
        }
        __syncthreads();
        double pivot = image[i];
        if (!(pivot > least)) continue;
        for (int e = threadIdx.x; e < (k - 1 - i) * (i + 1); e += THREADS) {
            int j = i + 1 + e / (i + 1), l = e % (i + 1);
            m[j * k + l] -= image[j] / pivot * m[i * k + l];
        }
    }
    __syncthreads();
}

// NeuralEF: from C = <psi,psi>, R = <psi,Kpsi> [k, k] the matrix of g = M Kpsi, M = -(2/points) (1 on the diagonal,
// -R_ij/R_ii at (j, i) below it), the loss -sum_j (R_jj - sum_{i<j} R_ij^2/R_ii) and the eigenvalues R_jj without bias.
// With average not null the coefficients are those of R's moving average; with joint not null, f64 [k + 1, k], M is what
// eliminate finds. own null: every kappa(x, x) is G_00.
// trace: the kernel's trace, which the batch's G is yet to be divided by. drawn: the points whose `points` values these
// are, of n; one where R has no bias. One block.
extern "C" __global__ void neuralef(int k, double points, double drawn, double n, double trace, double tiny,
                                    const float* gram, const double* own, const float* c, const float* r, double decay, double* average,
                                    double* joint, u32* control, double* record, float* m) {
    bool psi = finite(k * k, c), image = finite(k * k, r);
    if (spoiled(control, !psi ? PSI : !image ? IMAGE : 0)) return;
    u32 step = control[STEP], begun = control[BEGUN];
    __syncthreads();
    if (average) {
        for (int e = threadIdx.x; e < k * k; e += THREADS)
            average[e] = begun ? average[e] * decay + r[e] * (1.0 - decay) : (double)r[e];
        if (threadIdx.x == 0) control[BEGUN] = 1;
    }
    __syncthreads();
#define R(e) (average ? average[e] : (double)r[e])
    double largest = 0.0;
    for (int i = threadIdx.x; i < k; i += THREADS) largest = fmax(largest, R(i * k + i));
    largest = block_max(largest);
    if (joint) eliminate(k, tiny * largest, r, joint, joint + k * k);
    double loss = 0.0;
    for (int e = threadIdx.x; e < k * k; e += THREADS) {
        int j = e / k, i = e % k;
        double v = i == j ? 1.0 : 0.0, pivot = R(i * k + i);
        if (joint) v = joint[e];
        else if (i < j && pivot > tiny * largest) v = -R(i * k + j) / pivot;
        m[e] = (float)(v * (-2.0 / points));
        loss -= v * r[i * k + j];
    }
#undef R
    loss = block_sum(loss);
    if (spoiled(control, isfinite(loss) ? 0 : LOSS)) return;
    double* out = record + (u64)step * (k + 1);
    if (threadIdx.x == 0) out[0] = loss;
    for (int j = threadIdx.x; j < k; j += THREADS) {
        double self = own ? own[j] : (double)c[j * k + j] * gram[0];
        out[1 + j] = unbiased(r[j * k + j], self / (trace * points), n, drawn);
    }
}

// Nested: from Lambda, Lambda' [k, k] over the two halves of the batch, of `first` and `second` values, and R, the matrices
// of g's parts in the halves, (2/first) M o Lambda' and (2/second) M o Lambda; the loss -2 sum_l m_l R_ll +
// sum M o Lambda o Lambda', and the quotients R_ll/C_ll. joint: m_l = (k - l)/k, M_lm = m_max(l,m); else m_l = 1 and
// M_lm = 1 where m <= l. One block.
extern "C" __global__ void nested(int k, double first, double second, double drawn, double n, double trace, int joint,
                                  const float* gram, const double* own, const float* lambda, const float* other,
                                  const float* r, u32* control, double* record, float* m_first, float* m_second) {
    bool one = finite(k * k, lambda), two = finite(k * k, other), image = finite(k * k, r);
    if (spoiled(control, !(one && two) ? PSI : !image ? IMAGE : 0)) return;
    u32 step = control[STEP];
    double points = first + second, loss = 0.0;
    for (int e = threadIdx.x; e < k * k; e += THREADS) {
        int l = e / k, o = e % k;
        double big = joint ? (double)(k - max(l, o)) / k : (o <= l ? 1.0 : 0.0);
        m_first[e] = (float)(big * other[e] * (2.0 / first));
        m_second[e] = (float)(big * lambda[e] * (2.0 / second));
        loss += big * lambda[e] * other[e];
        if (l == o) loss -= 2.0 * (joint ? (double)(k - l) / k : 1.0) * r[e];
    }
    loss = block_sum(loss);
    if (spoiled(control, isfinite(loss) ? 0 : LOSS)) return;
    double* out = record + (u64)step * (k + 1);
    if (threadIdx.x == 0) out[0] = loss;
    for (int j = threadIdx.x; j < k; j += THREADS) {
        double norm = (first * lambda[j * k + j] + second * other[j * k + j]) / points;
        double self = own ? own[j] : norm * gram[0];
        double value = unbiased(r[j * k + j], self / (trace * points), n, drawn);
        out[1 + j] = norm > 0.0 ? value / norm : 0.0;
    }
}

// Ends a step's gradient: its squared norm from the partial sums of squares, a NaN (on which the update does nothing) once
// a step of the chunk was not finite; the step's learning rate and corrections; the count. current: norm, then rates.
extern "C" __global__ void judge(u32 blocks, const double* part, const float* rates, u32* control, float* current) {
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < blocks; i += THREADS) sum += part[i];
    float norm = (float)block_sum(sum);
    if (threadIdx.x == 0) {
        u32 step = control[STEP];
        if (!control[BAD] && !isfinite(norm)) {
            control[BAD] = step + 1;
            control[WHAT] = GRADIENT;
        }
        current[0] = control[BAD] ? __int_as_float(0x7fffffff) : norm;
        for (int i = 0; i < 3; ++i) current[1 + i] = rates[3 * (u64)step + i];
        control[STEP] = step + 1;
    }
}

// Small dense matrices in double precision, row by row, and the control of a sequence of steps. Kernels of one block unless
// EACH is used. Sums are taken in an order that never changes.

#define EACH(i, n) for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (u64)gridDim.x * blockDim.x)
#define MINE(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)

struct Sum {
    __device__ double operator()(double a, double b) const { return a + b; }
};
struct Max {
    __device__ double operator()(double a, double b) const { return fmax(a, b); }
};

// Joins zero and the numbers of a block, whose size is a multiple of 32; every thread receives the result.
template <class Join> __device__ double block_fold(double v, Join join) {
    __shared__ double part[32];
    for (int step = 16; step; step >>= 1) v = join(v, __shfl_xor_sync(0xffffffffu, v, step));
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    double all = 0.0;
    for (int w = 0; w < blockDim.x / 32; ++w) all = join(all, part[w]);
    return all;
}

__device__ double block_sum(double v) { return block_fold(v, Sum()); }
__device__ double block_max(double v) { return block_fold(v, Max()); }

// ---- Control: see control.cuh.

// rows = table[step], out = x[rows]; table [., b], x [., d], out [b, d].
extern "C" __global__ void begin_step(u64 b, u64 d, const u32* control, const u32* table, u32* rows, const float* x, float* out) {
    const u32* mine = table + (u64)control[STEP] * b;
    EACH(i, b * d) {
        u32 row = mine[i / d];
        if (i % d == 0) rows[i / d] = row;
        out[i] = x[(u64)row * d + i % d];
    }
}

// Notes `what` if one of x [n] is not finite, unless a failure was noted.
__device__ void check(int n, const double* x, int what, u32* control) {
    bool bad = false;
    MINE(i, n) bad |= !isfinite(x[i]);
    spoiled(control, __syncthreads_or(bad) ? what : 0);
}

// Up to three matrices, the first one first; null where there are fewer.
extern "C" __global__ void check_finite(u32* control, int n0, const double* x0, int what0, int n1, const double* x1, int what1,
                                        int n2, const double* x2, int what2) {
    check(n0, x0, what0, control);
    if (x1) check(n1, x1, what1, control);
    if (x2) check(n2, x2, what2, control);
}

// record[step] = (loss, values), unless one of them is not finite; values [k], `stride` numbers apart.
extern "C" __global__ void record_step(int k, const double* loss, const double* values, int stride, u32* control, double* record) {
    bool bad = !isfinite(loss[0]);
    MINE(j, k) bad |= !isfinite(values[(u64)j * stride]);
    if (spoiled(control, __syncthreads_or(bad) ? LOSS : 0)) return;
    double* out = record + (u64)control[STEP] * (k + 1);
    if (threadIdx.x == 0) out[0] = loss[0];
    MINE(j, k) out[1 + j] = values[(u64)j * stride];
}

// Ends a step: the gradient's squared norm from partial sums of squares, NaN (with which the update does nothing) once a step
// was not finite; the step's learning rate and corrections; the count. current: norm, then rates.
extern "C" __global__ void end_step(int blocks, const double* part, const float* rates, u32* control, float* current) {
    double sum = 0.0;
    MINE(i, blocks) sum += part[i];
    float norm = (float)block_sum(sum);
    bool bad = spoiled(control, isfinite(norm) ? 0 : GRADIENT);
    if (threadIdx.x == 0) {
        u32 step = control[STEP];
        current[0] = bad ? __int_as_float(0x7fffffff) : norm;
        for (int i = 0; i < 3; ++i) current[1 + i] = rates[3 * (u64)step + i];
        control[STEP] = step + 1;
    }
}

// ---- Between f32 and f64.

extern "C" __global__ void widen(u64 n, const float* x, double* out) {
    EACH(i, n) out[i] = x[i];
}

// c and r [n] from two forms [2, n] in f32, which must be finite.
extern "C" __global__ void widen_forms(int n, const float* forms, u32* control, double* c, double* r) {
    bool bad_c = false, bad_r = false;
    MINE(i, n) {
        float one = forms[i], two = forms[n + i];
        bad_c |= !isfinite(one), bad_r |= !isfinite(two);
        c[i] = one, r[i] = two;
    }
    int any_c = __syncthreads_or(bad_c), any_r = __syncthreads_or(bad_r);
    spoiled(control, any_c ? PSI : any_r ? IMAGE : 0);
}

// out = scale M [m, n] in f32, or of its transpose, M [n, m].
extern "C" __global__ void narrow(u64 m, u64 n, double scale, int transposed, const double* x, float* out) {
    EACH(i, m * n) out[i] = (float)(x[transposed ? i % n * m + i / n : i] * scale);
}

// out_ib = G_b t_ib, t and out [k, b, c], `total` numbers each; G_b [c, c], `stride` numbers after the one before it.
extern "C" __global__ void weigh(u64 total, u64 b, u64 c, u64 stride, const float* gram, const float* t, float* out) {
    EACH(i, total) {
        const float* row = gram + i / c % b * stride + i % c * c;
        const float* values = t + i / c * c;
        float sum = 0.0f;
        for (u64 o = 0; o < c; ++o) sum = fmaf(row[o], values[o], sum);
        out[i] = sum;
    }
}

// out_q += scale sum_b M_bi t_bq, i = q / own; M [k, k] or its transpose, t [k, k own], out [k own].
extern "C" __global__ void add_rows(u64 own, u64 k, float scale, int transposed, const double* m, const float* t, float* out) {
    EACH(q, k * own) {
        u64 i = q / own;
        float sum = out[q];
        for (u64 b = 0; b < k; ++b) sum = fmaf(scale * (float)m[transposed ? i * k + b : b * k + i], t[b * k * own + q], sum);
        out[q] = sum;
    }
}

// ---- Entry by entry.

extern "C" __global__ void multiply(u64 n, const double* a, const double* b, double* out) {
    EACH(i, n) out[i] = a[i] * b[i];
}

// out_i = a_i / b_i, zero where b_i <= 0.
extern "C" __global__ void divide(u64 n, const double* a, u64 a_stride, const double* b, u64 b_stride, double* out) {
    EACH(i, n) out[i] = b[i * b_stride] > 0.0 ? a[i * a_stride] / b[i * b_stride] : 0.0;
}

// value_i = max(0, 1 - sqrt(v_i + epsilon)), and its derivative by v_i on the diagonal of slope [n, n].
extern "C" __global__ void hinge(u64 n, const double* v, u64 stride, double epsilon, double* value, double* slope) {
    EACH(e, n * n) {
        u64 i = e / n;
        double deviation = sqrt(fmax(v[i * stride], 0.0) + epsilon);
        bool own = i == e % n;
        if (own) value[i] = fmax(0.0, 1.0 - deviation);
        slope[e] = own && deviation < 1.0 ? -0.5 / deviation : 0.0;
    }
}

// out = alpha sum A o B, or with A o B^T, or that added; A [m, n].
extern "C" __global__ void inner(int m, int n, double alpha, const double* a, const double* b, int turned, int add, double* out) {
    double sum = 0.0;
    MINE(e, m * n) sum = fma(a[e], b[turned ? e % n * m + e / n : e], sum);
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[0] = (add ? out[0] : 0.0) + alpha * sum;
}

// out = alpha sum_i v_i, or that added.
extern "C" __global__ void sum(int n, double alpha, const double* v, int stride, int add, double* out) {
    double total = 0.0;
    MINE(i, n) total += v[(u64)i * stride];
    total = block_sum(total);
    if (threadIdx.x == 0) out[0] = (add ? out[0] : 0.0) + alpha * total;
}

// out = (R - D) apart + D self, D = own at_0/size; at null: D = own/size; own null: out = R.
extern "C" __global__ void without_bias(u64 n, const double* r, const double* own, const float* at, double size, double apart,
                                        double self, double* out) {
    EACH(i, n) {
        double d = own ? own[i] * (at ? at[0] : 1.0) / size : 0.0;
        out[i] = own ? (r[i] - d) * apart + d * self : r[i];
    }
}

// average = decay average + (1 - decay) fresh [n], or fresh at first; nothing once a step was not finite. state: whether it
// has begun (a word), then how much of the old value stays and how much the new one counts (floats).
extern "C" __global__ void average(int n, double decay, const double* fresh, const u32* control, u32* state, double* value) {
    bool begun = state[0] != 0, bad = control[BAD] != 0;
    __syncthreads();
    if (!bad) MINE(i, n) value[i] = begun ? value[i] * decay + fresh[i] * (1.0 - decay) : fresh[i];
    if (threadIdx.x == 0) {
        float* shares = (float*)(state + 1);
        shares[0] = bad ? 1.0f : begun ? (float)decay : 0.0f;
        shares[1] = bad ? 0.0f : begun ? (float)(1.0 - decay) : 1.0f;
        if (!bad) state[0] = 1;
    }
}

// mean = shares_0 mean + shares_1 fresh [n]; an old or new value that does not count is not read.
extern "C" __global__ void blend(u64 n, const float* shares, const float* fresh, float* mean) {
    float stays = shares[0], counts = shares[1];
    if (counts == 0.0f) return;
    EACH(i, n) mean[i] = stays == 0.0f ? fresh[i] : fmaf(counts, fresh[i], stays * mean[i]);
}

// out = A diag(w) [m, n].
extern "C" __global__ void times_columns(u64 m, u64 n, const double* a, const double* w, u64 stride, double* out) {
    EACH(i, m * n) out[i] = a[i] * w[i % n * stride];
}

// ---- Triangular factors.

__device__ double largest_diagonal(int k, const double* r) {
    double largest = 0.0;
    MINE(i, k) largest = fmax(largest, r[i * k + i]);
    return block_max(largest);
}

// M [k, k]: one on the diagonal, -R_ij/R_ii at (j, i) below it, zero where R_ii <= tiny max R_ll.
extern "C" __global__ void quotients(int k, double tiny, const double* r, double* m) {
    double least = tiny * largest_diagonal(k, r);
    MINE(e, k * k) {
        int j = e / k, i = e % k;
        double pivot = r[i * k + i];
        m[e] = i == j ? 1.0 : i < j && pivot > least ? -r[i * k + j] / pivot : 0.0;
    }
}

// M = L^-1 for R = L D L^T [k, k], row by row; pivots <= tiny max R_ll are skipped. image [k].
extern "C" __global__ void inverse_unit_lower(int k, double tiny, const double* r, double* m, double* image) {
    double least = tiny * largest_diagonal(k, r);
    MINE(e, k * k) m[e] = e / k == e % k ? 1.0 : 0.0;
    for (int i = 0; i < k; ++i) {
        __syncthreads();
        for (int j = i + threadIdx.x; j < k; j += blockDim.x) {
            double total = 0.0;
            for (int l = 0; l <= i; ++l) total = fma(m[i * k + l], r[l * k + j], total);
            image[j] = total;
        }
        __syncthreads();
        double pivot = image[i];
        if (!(pivot > least)) continue;
        MINE(e, (k - 1 - i) * (i + 1)) {
            int j = i + 1 + e / (i + 1), l = e % (i + 1);
            m[j * k + l] -= image[j] / pivot * m[i * k + l];
        }
    }
}

// l [k, k] <- its lower Cholesky factor; whether there is one.
__device__ bool factor(int k, double* l) {
    for (int i = 0; i < k; ++i) {
        double pivot = l[i * k + i];
        __syncthreads();
        if (!(pivot > 0.0)) return false;
        double root = sqrt(pivot);
        for (int r = i + threadIdx.x; r < k; r += blockDim.x) l[r * k + i] = r == i ? root : l[r * k + i] / root;
        __syncthreads();
        int rest = k - 1 - i;
        MINE(e, rest * rest) {
            int r = i + 1 + e / rest, c = i + 1 + e % rest;
            if (c <= r) l[r * k + c] -= l[r * k + i] * l[c * k + i];
        }
        __syncthreads();
    }
    return true;
}

// L of A + jitter I = L L^T [k, k], the jitter 1e-7 of the mean of A's diagonal and ten times more until there is one.
extern "C" __global__ void cholesky(int k, const double* a, u32* control, double* l) {
    if (spoiled(control, 0)) return;
    double trace = 0.0;
    MINE(i, k) trace += a[i * k + i];
    double mean = fmax(block_sum(trace) / k, 2.2250738585072014e-308), jitter = 1e-7 * mean;
    bool good;
    while (true) {
        MINE(e, k * k) l[e] = a[e] + (e / k == e % k ? jitter : 0.0);
        __syncthreads();
        good = factor(k, l);
        if (good || jitter > mean || !isfinite(jitter)) break;
        jitter *= 10.0;
        __syncthreads();
    }
    spoiled(control, good ? 0 : PROBLEM);
}

// X [k, k] <- L^-1 X, or L^-T X
__device__ void solve(int k, const double* l, bool transposed, double* x) {
    for (int n = 0; n < k; ++n) {
        int i = transposed ? k - 1 - n : n;
        MINE(c, k) x[i * k + c] /= l[i * k + i];
        __syncthreads();
        MINE(e, (k - 1 - n) * k) {
            int r = transposed ? e / k : i + 1 + e / k, c = e % k;
            x[r * k + c] -= (transposed ? l[i * k + r] : l[r * k + i]) * x[i * k + c];
        }
        __syncthreads();
    }
}

// out = L^-1 (A + A^T)/2 L^-T [k, k]; half [k, k].
extern "C" __global__ void congruence(int k, const double* l, const double* a, double* half, double* out) {
    MINE(e, k * k) half[e] = 0.5 * (a[e] + a[e % k * k + e / k]);
    __syncthreads();
    solve(k, l, false, half);
    MINE(e, k * k) out[e] = half[e % k * k + e / k];
    __syncthreads();
    solve(k, l, false, out);
}

// out = L^-T triu(X) diag(L)^-1 [k, k].
extern "C" __global__ void solve_upper(int k, const double* l, const double* x, double* out) {
    MINE(e, k * k) {
        int j = e / k, i = e % k;
        out[e] = j <= i ? x[e] / l[i * k + i] : 0.0;
    }
    __syncthreads();
    solve(k, l, true, out);
}

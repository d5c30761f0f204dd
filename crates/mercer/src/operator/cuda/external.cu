// Points of another library, read where they lie: x [n, d] with strides `sr` and `sc` in numbers, counted from its first one.
//
// #define SOURCE  type of the points, float or double

#define INLINE __device__ __forceinline__
typedef unsigned long long u64;

INLINE u64 mixed(u64 hash, u64 bits, int turn, u64 factor) { return ((hash << turn | hash >> (64 - turn)) ^ bits) * factor; }
INLINE u64 first_mixed(u64 hash, u64 bits) { return mixed(hash, bits, 23, 0x9E3779B97F4A7C15ull); }
INLINE u64 second_mixed(u64 hash, u64 bits) { return mixed(hash, bits ^ bits >> 32, 41, 0xC2B2AE3D27D4EB4Full); }

INLINE double warp_sum(double v) {
    for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}
INLINE double warp_max(double v) {
    for (int step = 16; step > 0; step >>= 1) v = fmax(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}

// keys [n, 2]: equal points have equal keys, and 128 bits keep all others apart; −0 counts as 0. `bad` becomes the smallest
// i·d + j of a number that is not finite. One warp per row.
extern "C" __global__ void __launch_bounds__(256)
    survey(const SOURCE *__restrict__ x, long long sr, long long sc, int n, int d, u64 *__restrict__ keys, u64 *bad) {
    const int row = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (row >= n) return;
    u64 a = lane + 1, b = lane + 101;
    for (int j = lane; j < d; j += 32) {
        const double v = (double)x[row * sr + j * sc];
        if (!(fabs(v) <= 1.7976931348623157e308)) atomicMin(bad, (u64)row * d + j);
        const u64 bits = (u64)__double_as_longlong(v + 0.0);
        a = first_mixed(a, bits), b = second_mixed(b, bits);
    }
    for (int step = 16; step > 0; step >>= 1) {
        a = first_mixed(a, __shfl_down_sync(0xffffffffu, a, step));
        b = second_mixed(b, __shfl_down_sync(0xffffffffu, b, step));
    }
    if (lane == 0) keys[2 * (long long)row] = a, keys[2 * (long long)row + 1] = b;
}

// means [d] of the columns, in double. One block per column.
extern "C" __global__ void __launch_bounds__(256)
    column_means(const SOURCE *__restrict__ x, long long sr, long long sc, int n, double *__restrict__ means) {
    __shared__ double sums[256];
    const SOURCE *column = x + blockIdx.x * sc;
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += 256) sum += (double)column[i * sr];
    sums[threadIdx.x] = sum;
    for (int half = 128; half > 0; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) means[blockIdx.x] = sums[0] / n;
}

// out[i, j] = x[rows[i], j], or x[i, j] if rows is null: [n, d] in order. One thread per number.
extern "C" __global__ void __launch_bounds__(256)
    gather(const SOURCE *__restrict__ x, long long sr, long long sc, const int *__restrict__ rows, SOURCE *__restrict__ out, int n, int d) {
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x;
    if (at >= (long long)n * d) return;
    const long long i = at / d, j = at % d;
    out[at] = x[(rows ? rows[i] : i) * sr + j * sc];
}

#define OVER_NORM 1
#define PERIODIC 2

// (x − m) − t, exactly, for t = x − m as it is rounded.
INLINE double rounded_off(double x, double m, double t) {
    const double part = t - x;
    return (x - (t - part)) - (m + part);
}

// One view of the points: t = (x − shift)/scale, either of which may be null, then by `lift` (PERIODIC divides by the scale last)
//   0          t
//   OVER_NORM  t/‖t‖^p, the origin stays itself
//   PERIODIC   cos(2π(x − shift)/p)/scale, then sin(2π(x − shift)/p)/scale
// with p = `parameter`. It is written to the columns from `first` on of out [n, width], and what rounding removed from it
// (of points that are shifted and no more; else 0) to those from `low` + `first` on, if low > 0. Where `out` is null nothing is written.
// Of `norms`, the first becomes at most every ‖·‖² above 0 of the view, and the second at least every ‖·‖², as the bits of doubles. One
// warp per row.
extern "C" __global__ void __launch_bounds__(256)
    pack_view(const SOURCE *__restrict__ x, long long sr, long long sc, int n, int d, const double *__restrict__ shift,
              const double *__restrict__ scale, int lift, double parameter, double *__restrict__ out, int width, int first, int low,
              u64 *norms) {
    const int row = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (row >= n) return;
    const SOURCE *from = x + row * sr;
    double *to = out ? out + (long long)row * width + first : nullptr;
#define SEEN(j) (((double)from[(j) * sc] - (shift ? shift[j] : 0.0)) / (scale && lift != PERIODIC ? scale[j] : 1.0))
    double most = 0, factor = 1;
    if (lift == OVER_NORM) {
        for (int j = lane; j < d; j += 32) most = fmax(most, fabs(SEEN(j)));
        most = warp_max(most);
        double sum = 0;
        if (most > 0)
            for (int j = lane; j < d; j += 32) sum += SEEN(j) / most * (SEEN(j) / most);
        sum = warp_sum(sum);
        if (most > 0) factor = pow(most, 1 - parameter) / pow(sum, 0.5 * parameter);
    }
    double norm = 0;
    for (int j = lane; j < d; j += 32) {
        double value = SEEN(j), second = 0, rest = 0;
        if (lift == OVER_NORM) {
            value = most > 0 ? value / most * factor : value;
        } else if (lift == PERIODIC) {
            const double angle = 6.283185307179586 * (fmod(value, parameter) / parameter);
            const double last = scale ? scale[j] : 1.0;
            value = cos(angle) / last, second = sin(angle) / last;
        } else if (shift && !scale) {
            rest = rounded_off((double)from[j * sc], shift[j], value);
        }
        norm += value * value + second * second;
        if (!to) continue;
        to[j] = value;
        if (lift == PERIODIC) to[d + j] = second;
        if (low > 0) to[low + j] = rest;
        if (low > 0 && lift == PERIODIC) to[low + d + j] = 0;
    }
#undef SEEN
    norm = warp_sum(norm);
    if (lane == 0 && norm > 0) atomicMin(norms, (u64)__double_as_longlong(norm));
    if (lane == 0) atomicMax(norms + 1, (u64)__double_as_longlong(norm));
}

// The last number of each row of out [n, width]. One thread per row.
extern "C" __global__ void __launch_bounds__(256) put_names(const double *__restrict__ names, double *__restrict__ out, int n, int width) {
    const long long row = (long long)blockIdx.x * 256 + threadIdx.x;
    if (row < n) out[(row + 1) * width - 1] = names[row];
}

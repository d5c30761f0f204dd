// How operators that are no kernels act on a batch: what of it is not a matrix product.

typedef unsigned int u32;
typedef unsigned long long u64;

#define EACH(i, n) for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (u64)gridDim.x * blockDim.x)

// Sampled functions first, first + 1, ... at all m values, part [count, m], into columns of f [m, samples].
extern "C" __global__ void lay_samples(u64 count, u64 m, u64 samples, u64 first, const float* part, float* f) {
    EACH(i, count * m) f[i % m * samples + first + i / m] = part[i];
}

// out[a, b] = k[rows[a], rows[b]]; k [n, n], out [batch, batch].
extern "C" __global__ void gather_block(u64 batch, u64 n, const u32* rows, const float* k, float* out) {
    EACH(i, batch * batch) out[i] = k[rows[i / batch] * n + rows[i % batch]];
}

// psi[j, p, o] *= w[p]; psi [k, b, c], `total` numbers.
extern "C" __global__ void times_weights(u64 total, u64 b, u64 c, const float* w, float* psi) {
    EACH(i, total) psi[i] *= w[i / c % b];
}

// The jet of the points x [b, d] themselves: x, then the unit vectors for each partial derivative, then nothing.
extern "C" __global__ void points_jet(u64 b, u64 d, const float* x, float* out) {
    EACH(i, (d + 2) * b * d) {
        u64 order = i / (b * d);
        out[i] = order == 0 ? x[i] : order == 1 + i % d ? 1.0f : 0.0f;
    }
}

// |x|/scale, never quite zero.
__device__ double radius(u64 d, double scale, const float* x) {
    double square = 0.0;
    for (u64 a = 0; a < d; ++a) square += x[a] / scale * (x[a] / scale);
    return fmax(sqrt(square), 1e-12);
}

__device__ float radial_value(u64 d, double scale, const float* x, u64 unit, double rho) {
    return unit == d ? 0.5 * log1p(rho * rho) : x[unit] / scale / (1.0 + rho);
}

// t/(1 + rho) and ln(1 + rho^2)/2 with t = x/scale, rho = |t|; x [b, d], y [b, d + 1].
extern "C" __global__ void radial(u64 b, u64 d, double scale, const float* x, float* y) {
    EACH(i, b * (d + 1)) {
        const float* point = x + i / (d + 1) * d;
        y[i] = radial_value(d, scale, point, i % (d + 1), radius(d, scale, point));
    }
}

// The same, its d partial derivatives and its Laplacian: y [d + 2, b, d + 1].
extern "C" __global__ void radial_jet(u64 b, u64 d, double scale, const float* x, float* y) {
    u64 per = b * (d + 1);
    EACH(i, per) {
        const float* point = x + i / (d + 1) * d;
        u64 unit = i % (d + 1);
        double rho = radius(d, scale, point), h = 1.0 / (1.0 + rho), w = 1.0 / (1.0 + rho * rho);
        double t = unit == d ? 0.0 : point[unit] / scale;
        y[i] = radial_value(d, scale, point, unit, rho);
        for (u64 a = 0; a < d; ++a) {
            double ta = point[a] / scale;
            double slope = unit == d ? ta * w : (unit == a ? h : 0.0) - t * ta * h * h / rho;
            y[(1 + a) * per + i] = slope / scale;
        }
        double laplacian = unit == d ? (1.0 - rho * rho) * w * w + (d - 1.0) * w
                                     : t * (2.0 * h * h * h - (d + 1.0) * h * h / rho);
        y[(1 + d) * per + i] = laplacian / (scale * scale);
    }
}

// (shift f - H f)/scale with H f = -lap f - grad ln q . grad f + U f from the jets [k, d + 2, b] of k functions; the point p of
// the batch has grad ln q and U in row rows[p] of local [., d + 1].
extern "C" __global__ void hamiltonian(u64 k, u64 b, u64 d, double shift, double scale, const u32* rows, const float* local,
                                       const float* jet, float* out) {
    EACH(i, k * b) {
        const float* here = local + rows[i % b] * (d + 1);
        const float* f = jet + i / b * (d + 2) * b + i % b;
        double drift = 0.0;
        for (u64 a = 0; a < d; ++a) drift += (double)here[a] * f[(1 + a) * b];
        double image = (double)here[d] * f[0] - f[(1 + d) * b] - drift;
        out[i] = (shift * f[0] - image) / scale;
    }
}

// list[place + s] = neighbour s of point rows[p], one block for each p of the batch; places [steps, b] holds where the
// neighbours of each point begin. control: see control.cuh.
extern "C" __global__ void list_neighbours(const u32* control, const u32* places, const u32* rows, const u32* starts,
                                           const u32* neighbours, u32* list) {
    u32 p = blockIdx.x, first = starts[rows[p]], degree = starts[rows[p] + 1] - first;
    u32 place = places[(u64)control[0] * gridDim.x + p];
    for (u32 s = threadIdx.x; s < degree; s += blockDim.x) list[place + s] = neighbours[first + s];
}

// f + (P f - f)/shift at the points rows[p], P f = sum_s shares_s f(neighbour s); psi, out [k, b]. there [k, m] holds f at
// the list of list_neighbours, or, without places, at all m points.
extern "C" __global__ void walk(u64 k, u64 b, u64 m, double shift, const u32* control, const u32* places, const u32* rows,
                                const u32* starts, const u32* neighbours, const double* shares, const float* there,
                                const float* psi, float* out) {
    EACH(i, k * b) {
        u32 row = rows[i % b], first = starts[row], degree = starts[row + 1] - first;
        u32 place = places ? places[control[0] * b + i % b] : 0;
        const float* values = there + i / b * m;
        double walked = 0.0, f = psi[i];
        for (u32 s = 0; s < degree; ++s) walked += shares[first + s] * values[places ? place + s : neighbours[first + s]];
        out[i] = f + (walked - f) / shift;
    }
}

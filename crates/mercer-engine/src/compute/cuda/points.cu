// Functions at points: rows and blocks that are gathered, weights, derivatives, and sums over a sparse matrix.

typedef unsigned int u32;
typedef unsigned long long u64;

#define EACH(i, n) for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (u64)gridDim.x * blockDim.x)

// Rows of part [count, m] into the columns first, first + 1, ... of out [m, columns].
extern "C" __global__ void place_columns(u64 count, u64 m, u64 columns, u64 first, const float* part, float* out) {
    EACH(i, count * m) out[i % m * columns + first + i / m] = part[i];
}

// out[a, b] = k[rows[a], rows[b]]; k [n, n], out [batch, batch].
extern "C" __global__ void gather_block(u64 batch, u64 n, const u32* rows, const float* k, float* out) {
    EACH(i, batch * batch) out[i] = k[rows[i / batch] * n + rows[i % batch]];
}

// psi[j, p, o] *= w[p]; psi [k, b, c], `total` numbers.
extern "C" __global__ void scale_points(u64 total, u64 b, u64 c, const float* w, float* psi) {
    EACH(i, total) psi[i] *= w[i / c % b];
}

// out[j, p, o] = psi[j, p', o], where p' is p + 1 for an even p and p - 1 for an odd one; psi, out [k, b, c], `total` numbers.
extern "C" __global__ void swap_pairs(u64 total, u64 c, const float* psi, float* out) {
    EACH(i, total) {
        u64 point = i / c;
        out[i] = psi[(point ^ 1) * c + i % c];
    }
}

// out[j, p, o] = psi[j, first + p, o]; psi [k, all, c], out [k, b, c], `total` numbers.
extern "C" __global__ void take_points(u64 total, u64 all, u64 b, u64 c, u64 first, const float* psi, float* out) {
    EACH(i, total) {
        u64 point = i / c;
        out[i] = psi[(point / b * all + first + point % b) * c + i % c];
    }
}

// out[j, p, o] = psi[j, p - first, o], and zero where psi has no such point; psi [k, b, c], out [k, all, c], `total` numbers.
extern "C" __global__ void place_points(u64 total, u64 all, u64 b, u64 c, u64 first, const float* psi, float* out) {
    EACH(i, total) {
        u64 point = i / c, place = point % all;
        bool own = place >= first && place < first + b;
        out[i] = own ? psi[(point / all * b + place - first) * c + i % c] : 0.0f;
    }
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

// t/(1 + rho) and ln(1 + rho^2)/2 with t = x/scale, rho = |t|; x [b, d], y [b, d + 1]. With `jet` also the d partial
// derivatives and the Laplacian: y [d + 2, b, d + 1].
extern "C" __global__ void radial(u64 b, u64 d, double scale, int jet, const float* x, float* y) {
    u64 per = b * (d + 1);
    EACH(i, per) {
        const float* point = x + i / (d + 1) * d;
        u64 unit = i % (d + 1);
        double rho = radius(d, scale, point), t = unit == d ? 0.0 : point[unit] / scale;
        y[i] = unit == d ? 0.5 * log1p(rho * rho) : t / (1.0 + rho);
        if (!jet) continue;
        double h = 1.0 / (1.0 + rho), w = 1.0 / (1.0 + rho * rho);
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

// (shift f - L f)/scale with L f = -lap f - v . grad f + u f from the jets [k, d + 2, b, c] of k functions; the point p of the
// batch has v and u in row rows[p] of field [., d + 1].
extern "C" __global__ void elliptic(u64 k, u64 b, u64 c, u64 d, double shift, double scale, const u32* rows, const double* field,
                                    const float* jet, float* out) {
    u64 m = b * c;
    EACH(i, k * m) {
        const double* here = field + rows[i % m / c] * (d + 1);
        const float* f = jet + i / m * (d + 2) * m + i % m;
        double drift = 0.0;
        for (u64 a = 0; a < d; ++a) drift += here[a] * f[(1 + a) * m];
        double image = here[d] * f[0] - f[(1 + d) * m] - drift;
        out[i] = (shift * f[0] - image) / scale;
    }
}

// list[place + s] = column s of row rows[p] of a sparse matrix, one block for each p of the batch; places [steps, b] holds where
// the columns of each row begin in the list. control: see control.cuh.
extern "C" __global__ void list_columns(const u32* control, const u32* places, const u32* rows, const u32* starts,
                                        const u32* columns, u32* list) {
    u32 p = blockIdx.x, first = starts[rows[p]], count = starts[rows[p] + 1] - first;
    u32 place = places[(u64)control[0] * gridDim.x + p];
    for (u32 s = threadIdx.x; s < count; s += blockDim.x) list[place + s] = columns[first + s];
}

// f + (P f - f)/shift in the rows rows[p] of a sparse matrix P; psi, out [k, b]. there [k, m] holds f at the list of
// list_columns, or, without places, at all m columns.
extern "C" __global__ void sparse_rows(u64 k, u64 b, u64 m, double shift, const u32* control, const u32* places, const u32* rows,
                                       const u32* starts, const u32* columns, const double* values, const float* there,
                                       const float* psi, float* out) {
    EACH(i, k * b) {
        u32 row = rows[i % b], first = starts[row], count = starts[row + 1] - first;
        u32 place = places ? places[control[0] * b + i % b] : 0;
        const float* at = there + i / b * m;
        double sum = 0.0, f = psi[i];
        for (u32 s = 0; s < count; ++s) sum += values[first + s] * at[places ? place + s : columns[first + s]];
        out[i] = f + (sum - f) / shift;
    }
}

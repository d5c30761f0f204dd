// Y = κ(A, B) V for points of many coordinates: a matrix product of the library has computed the inner products S = A Bᵀ of a
// block of K, and this kernel does the rest. S is read once, and K is never written.
//
// A block of 256 threads has R rows of S; thread t has the columns t, t + 256, … Sums are in float: over the columns of a thread,
// then over the threads, always in the same order.
//
// #define D           width of a point
// #define NC          columns of V, a multiple of 8
// #define NEAR, TWINS as in tensor.cu; places may always be given

#define R (NC <= 8 ? 8 : NC <= 16 ? 4 : 2)
#define FAR (-0x20000000)

// s [n, m]: of the points from r0 on in A and from c0 on in B. v [b_pad, NC]; partial [n, NC].
extern "C" __global__ void __launch_bounds__(256)
    wide(const float *__restrict__ a, const float *__restrict__ axx, const float *__restrict__ b, const float *__restrict__ byy,
         int a_pad, int b_pad, int diagonal, const int *__restrict__ a_places, const int *__restrict__ b_places,
         const float *__restrict__ s, int n, int m, int r0, int c0, const float *__restrict__ v, float *__restrict__ partial) {
    __shared__ float totals[8][R * NC];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, first = blockIdx.x * R;
    const float *diag = axx + a_pad;
    float sums[R][NC] = {}, xx[R];
    int row[R], mine[R]; // rows beyond the last one repeat it
    UNROLLED(i, R) {
        row[i] = min(first + i, n - 1);
        xx[i] = axx[r0 + row[i]];
        mine[i] = a_places ? a_places[r0 + row[i]] : r0 + row[i];
    }
    for (int j = threadIdx.x; j < m; j += 256) {
        const int c = c0 + j, other = (b_places ? b_places[c] : c) + diagonal;
        const float yy = byy[c];
        float values[NC];
        UNROLLED(q, NC / 4) {
            const float4 four = *(const float4 *)(v + (long long)c * NC + 4 * q);
            values[4 * q] = four.x, values[4 * q + 1] = four.y, values[4 * q + 2] = four.z, values[4 * q + 3] = four.w;
        }
#if TWINS
        const float name = byy[2 * (long long)b_pad + c];
#endif
        UNROLLED(i, R) {
            const float product = s[(long long)row[i] * m + j];
            float k = kappa(product, xx[i], yy);
#if NEAR
            if (is_near(product, xx[i], yy)) {
                const long long r = r0 + row[i];
                k = renewed(a + r * D, b + (long long)c * D, (long long)a_pad * D, (long long)b_pad * D, axx + r, a_pad, byy + c,
                            b_pad);
            }
#endif
#if TWINS
            if (name > 0 && name == axx[2 * (long long)a_pad + r0 + row[i]]) k = diag[r0 + row[i]];
#endif
            if (diagonal > FAR && mine[i] == other) k = diag[r0 + row[i]];
            UNROLLED(e, NC) sums[i][e] = m_fma(k, values[e], sums[i][e]);
        }
    }
    UNROLLED(i, R)
        UNROLLED(e, NC) {
            float sum = sums[i][e];
            for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
            if (lane == 0) totals[warp][i * NC + e] = sum;
        }
    __syncthreads();
    const int at = threadIdx.x;
    if (at >= R * NC || first + at / NC >= n) return;
    float sum = 0;
    for (int w = 0; w < 8; ++w) sum += totals[w][at];
    partial[(long long)first * NC + at] = sum;
}

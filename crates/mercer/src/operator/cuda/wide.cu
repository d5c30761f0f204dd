// Y = κ(A, B) V, and Y = κ(A, B)ᵀ V, for points of many coordinates: a matrix product of the library has computed the inner products
// S = A Bᵀ of a block of K, and these kernels do the rest. S is read once, and K is never written.
//
// Sums are in float, always in the same order.
//
// #define D           width of a point
// #define NC          columns of V, a multiple of 8
// #define NEAR, DUPLICATES as in tensor.cu; places may always be given

#define R (NC <= 8 ? 8 : NC <= 16 ? 4 : 2)
#define FAR (-0x20000000)
// Rows of S that a block of `wide_transposed` sums up.
#define CHUNK 512

// What an entry needs of its row in A: the row, its place in its set, norm and name; and of its column in B.
struct Row { long long at; int place; float xx, name; };
struct Column { long long at; int place; float yy, name; };

// κ of row and column, from their inner product.
INLINE float entry(const float *__restrict__ a, const float *__restrict__ axx, const float *__restrict__ b, const float *__restrict__ byy,
                   int a_pad, int b_pad, int diagonal, float product, const Row &row, const Column &column) {
    float k = kappa(product, row.xx, column.yy);
#if NEAR
    if (is_near(product, row.xx, column.yy))
        k = recomputed(a + row.at * D, b + column.at * D, (long long)a_pad * D, (long long)b_pad * D, axx + row.at, a_pad, byy + column.at, b_pad);
#endif
#if DUPLICATES
    if (column.name > 0 && column.name == row.name) k = axx[a_pad + row.at];
#endif
    if (diagonal > FAR && row.place == column.place) k = axx[a_pad + row.at];
    return k;
}

INLINE Row row_at(const float *__restrict__ axx, int a_pad, const int *__restrict__ places, long long at) {
    Row row = {at, places ? places[at] : (int)at, axx[at], 0.0f};
#if DUPLICATES
    row.name = axx[2 * (long long)a_pad + at];
#endif
    return row;
}

INLINE Column column_at(const float *__restrict__ byy, int b_pad, const int *__restrict__ places, int diagonal, long long at) {
    Column column = {at, (places ? places[at] : (int)at) + diagonal, byy[at], 0.0f};
#if DUPLICATES
    column.name = byy[2 * (long long)b_pad + at];
#endif
    return column;
}

INLINE void load_values(float (&values)[NC], const float *__restrict__ v) {
    UNROLLED(q, NC / 4) {
        const float4 four = *(const float4 *)(v + 4 * q);
        values[4 * q] = four.x, values[4 * q + 1] = four.y, values[4 * q + 2] = four.z, values[4 * q + 3] = four.w;
    }
}

// s [n, m]: of the points from r0 on in A and from c0 on in B. v [b_pad, NC]; partial [n, NC].
// A block of 256 threads has R rows of S; thread t has the columns t, t + 256, …
extern "C" __global__ void __launch_bounds__(256)
    wide(const float *__restrict__ a, const float *__restrict__ axx, const float *__restrict__ b, const float *__restrict__ byy,
         int a_pad, int b_pad, int diagonal, const int *__restrict__ a_places, const int *__restrict__ b_places,
         const float *__restrict__ s, int n, int m, int r0, int c0, const float *__restrict__ v, float *__restrict__ partial) {
    __shared__ float totals[8][R * NC];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, first = blockIdx.x * R;
    float sums[R][NC] = {};
    Row rows[R]; // those beyond the last one repeat it
    UNROLLED(i, R) rows[i] = row_at(axx, a_pad, a_places, r0 + min(first + i, n - 1));
    for (int j = threadIdx.x; j < m; j += 256) {
        const Column column = column_at(byy, b_pad, b_places, diagonal, c0 + j);
        float values[NC];
        load_values(values, v + column.at * NC);
        UNROLLED(i, R) {
            const float product = s[(rows[i].at - r0) * m + j];
            const float k = entry(a, axx, b, byy, a_pad, b_pad, diagonal, product, rows[i], column);
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

// The product with the transpose of the same block. v [a_pad, NC]; partial [chunks of rows, m, NC].
// A block of 256 threads has as many columns of S, one a thread, and CHUNK rows: blockIdx.x and blockIdx.y.
extern "C" __global__ void __launch_bounds__(256)
    wide_transposed(const float *__restrict__ a, const float *__restrict__ axx, const float *__restrict__ b, const float *__restrict__ byy,
                    int a_pad, int b_pad, int diagonal, const int *__restrict__ a_places, const int *__restrict__ b_places,
                    const float *__restrict__ s, int n, int m, int r0, int c0, const float *__restrict__ v, float *__restrict__ partial) {
    const int j = blockIdx.x * 256 + threadIdx.x, first = blockIdx.y * CHUNK, last = min(first + CHUNK, n);
    if (j >= m) return;
    const Column column = column_at(byy, b_pad, b_places, diagonal, c0 + j);
    float sums[NC] = {};
#pragma unroll 4
    for (int i = first; i < last; ++i) {
        const Row row = row_at(axx, a_pad, a_places, r0 + i);
        float values[NC];
        load_values(values, v + row.at * NC);
        const float k = entry(a, axx, b, byy, a_pad, b_pad, diagonal, s[(long long)i * m + j], row, column);
        UNROLLED(e, NC) sums[e] = m_fma(k, values[e], sums[e]);
    }
    float *to = partial + ((long long)blockIdx.y * m + j) * NC;
    UNROLLED(e, NC) to[e] = sums[e];
}

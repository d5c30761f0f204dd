// Enough of CUDA to run a kernel on the host, one thread of the block after the other: every CUDA thread is a fibre that
// gives way at barriers and at the warp's collective instructions (mma, ldmatrix, shuffles). Shared memory starts as
// rubbish, writes past its end and misaligned copies stop the program, ldmatrix reports bank conflicts.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <ucontext.h>
#include <vector>

using std::isfinite;
using std::max;
using std::min;
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __noinline__
#define __shared__ static
#define __align__(n) alignas(n)
#define __logf logf
#define __sinf sinf
#define __cosf cosf

struct float2 {
    float x, y;
};
struct double2 {
    double x, y;
};
struct float4 {
    float x, y, z, w;
};
static inline float2 make_float2(float a, float b) { return {a, b}; }
static inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
static inline unsigned __float_as_uint(float x) {
    unsigned u;
    memcpy(&u, &x, 4);
    return u;
}
static inline float __uint_as_float(unsigned u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}
static inline float __int_as_float(int i) { return __uint_as_float(i); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float rsqrt(float x) { return 1 / sqrtf(x); }
static inline void sincos(float x, float *s, float *c) { sincosf(x, s, c); }

struct Index {
    int x, y, z;
};
struct Warp {
    int arrived = 0, generation = 0;
    char in[32][64], out[32][64];
};
static Index threadIdx, blockIdx, blockDim, gridDim;
// The third index of every block of a launch.
static int block_z = 0;
static ucontext_t home;
static std::vector<ucontext_t> fibres;
static std::vector<bool> finished;
static std::vector<Warp> warps;
static int current, block_arrived, block_generation, block_threads;
static std::vector<char> shared_memory;
static size_t shared_limit;
static std::function<void()> entry;

[[noreturn]] static void fail(const char *what) {
    printf("FAIL: %s\n", what);
    exit(1);
}
static void give_way() { swapcontext(&fibres[current], &home); }
static void fibre() {
    entry();
    finished[current] = true;
    give_way();
}

static void __syncthreads() {
    const int generation = block_generation;
    if (++block_arrived == block_threads) {
        block_arrived = 0;
        ++block_generation;
    } else {
        while (generation == block_generation) give_way();
    }
}

// Whether any thread of the block says so; the last one to arrive tells the others.
static bool __syncthreads_or(bool value) {
    static bool pending, result;
    const int generation = block_generation;
    pending |= value;
    if (++block_arrived == block_threads) {
        result = pending, pending = false;
        block_arrived = 0;
        ++block_generation;
    } else {
        while (generation == block_generation) give_way();
    }
    return result;
}

// The last lane to arrive computes `all` from every lane's input.
template <class F> static void collective(const void *in, size_t in_size, void *out, size_t out_size, F all) {
    Warp &warp = warps[threadIdx.x / 32];
    const int lane = threadIdx.x % 32, generation = warp.generation;
    memcpy(warp.in[lane], in, in_size);
    if (++warp.arrived == 32) {
        warp.arrived = 0;
        all(warp);
        ++warp.generation;
    } else {
        while (generation == warp.generation) give_way();
    }
    memcpy(out, warp.out[lane], out_size);
}

template <class T> static T __shfl_xor_sync(unsigned, T value, int step) {
    T result;
    collective(&value, sizeof value, &result, sizeof result, [&](Warp &warp) {
        for (int l = 0; l < 32; ++l) memcpy(warp.out[l], warp.in[l ^ step], sizeof(T));
    });
    return result;
}

// The value of lane `from` among `width` lanes side by side; numbers wrap around.
template <class T> static T __shfl_sync(unsigned, T value, int from, int width = 32) {
    struct In {
        T value;
        int from;
    } in = {value, (int)threadIdx.x % 32 / width * width + (from & (width - 1))};
    T result;
    collective(&in, sizeof in, &result, sizeof result, [](Warp &warp) {
        for (int l = 0; l < 32; ++l) memcpy(warp.out[l], &((const In *)warp.in[((const In *)warp.in[l])->from])->value, sizeof(T));
    });
    return result;
}

static unsigned __ballot_sync(unsigned, bool value) {
    unsigned result;
    collective(&value, 1, &result, 4, [](Warp &warp) {
        unsigned all = 0;
        for (int l = 0; l < 32; ++l) all |= (unsigned)(warp.in[l][0] != 0) << l;
        for (int l = 0; l < 32; ++l) memcpy(warp.out[l], &all, 4);
    });
    return result;
}

static int __ffs(unsigned x) { return __builtin_ffs((int)x); }

static void __syncwarp() {
    char nothing = 0;
    collective(&nothing, 1, &nothing, 1, [](Warp &) {});
}

// D = A B + C of m16n8k8 in TF32: operands cut off to 19 bits.
static void emulated_mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    struct In {
        float c[4];
        unsigned a[4], b[2];
    } in = {{c[0], c[1], c[2], c[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    collective(&in, sizeof in, c, 16, [](Warp &warp) {
        double A[16][8], B[8][8];
        auto tf32 = [](unsigned x) { return (double)__uint_as_float(x & 0xffffe000u); };
        for (int l = 0; l < 32; ++l) {
            const In *in = (const In *)warp.in[l];
            const int g = l / 4, t = l % 4;
            for (int q = 0; q < 4; ++q) A[g + 8 * (q & 1)][t + 4 * (q >> 1)] = tf32(in->a[q]);
            for (int q = 0; q < 2; ++q) B[t + 4 * q][g] = tf32(in->b[q]);
        }
        for (int l = 0; l < 32; ++l) {
            float out[4];
            for (int e = 0; e < 4; ++e) {
                double sum = ((const In *)warp.in[l])->c[e];
                for (int k = 0; k < 8; ++k) sum += A[l / 4 + 8 * (e >> 1)][k] * B[k][2 * (l % 4) + (e & 1)];
                out[e] = (float)sum;
            }
            memcpy(warp.out[l], out, 16);
        }
    });
}

// The value of a number in f16.
static double half_value(unsigned short bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return exponent == 31 ? NAN : bits >> 15 ? -size : size;
}
// The nearest one in f16, ties to even; beyond its range infinity, which half_value refuses.
static unsigned short nearest_half(double x) {
    int exponent;
    frexp(x, &exponent);
    const double unit = ldexp(1, max(exponent, -13) - 11), rounded = nearbyint(fabs(x) / unit) * unit;
    const unsigned short sign = std::signbit(x) ? 0x8000 : 0;
    if (!(rounded < 65520)) return sign | 0x7c00;
    if (rounded < ldexp(1, -14)) return sign | (unsigned short)ldexp(rounded, 24);
    frexp(rounded, &exponent);
    return sign | (unsigned short)((exponent + 14) << 10 | ((int)ldexp(rounded, 11 - exponent) & 1023));
}
static double half_of(unsigned word, int which) { return half_value((unsigned short)(word >> 16 * which)); }

// D = A B + C of m16n8k16 in f16, where `element(in, k, n)` is that of B, given the words b0 and b1 of all lanes.
template <class F> static void emulated_mma_half(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, F element) {
    struct In {
        float c[4];
        unsigned a[4], b[2];
    } in = {{c[0], c[1], c[2], c[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    collective(&in, sizeof in, c, 16, [=](Warp &warp) {
        double A[16][16];
        unsigned b[32][2];
        for (int l = 0; l < 32; ++l) {
            const In *in = (const In *)warp.in[l];
            for (int q = 0; q < 8; ++q) A[l / 4 + 8 * (q >> 1 & 1)][2 * (l % 4) + (q & 1) + 8 * (q >> 2)] = half_of(in->a[q >> 1], q & 1);
            memcpy(b[l], in->b, 8);
        }
        for (int l = 0; l < 32; ++l) {
            float out[4];
            for (int e = 0; e < 4; ++e) {
                double sum = ((const In *)warp.in[l])->c[e];
                for (int k = 0; k < 16; ++k) sum += A[l / 4 + 8 * (e >> 1)][k] * element(b, k, 2 * (l % 4) + (e & 1));
                out[e] = (float)sum;
            }
            memcpy(warp.out[l], out, 16);
        }
    });
}
static void emulated_mma_half(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    emulated_mma_half(c, a, b0, b1, [](const unsigned (*b)[2], int k, int n) { return half_of(b[4 * n + k % 8 / 2][k / 8], k & 1); });
}

// A warp's 16 rows of D = A B + C of wgmma m64n64k16 in f16: eight columns `column` of it. B is in blocks of eight rows of 16 bytes at `x`:
// `across` bytes further on for the next coordinates, `down` bytes for the next columns.
static void emulated_group_mma(float (&c)[4], const unsigned (&a)[4], const float *x, size_t across, size_t down, int column) {
    const char *const b = (const char *)x;
    if ((b - shared_memory.data()) % 16) fail("wgmma reads a block that is not aligned");
    emulated_mma_half(c, a, 0, 0, [=](const unsigned (*)[2], int k, int n) {
        unsigned short bits;
        memcpy(&bits, b + column * down + k / 8 * across + n * 16 + k % 8 * 2, 2);
        return half_value(bits);
    });
}

static void emulated_ldmatrix(unsigned (&r)[4], const float *p) {
    if (((uintptr_t)p - (uintptr_t)shared_memory.data()) % 16) fail("ldmatrix reads a row that is not aligned");
    collective(&p, 8, r, 16, [](Warp &warp) {
        const float *rows[32];
        for (int l = 0; l < 32; ++l) memcpy(&rows[l], warp.in[l], 8);
        for (int block = 0; block < 4; ++block) {
            unsigned banks = 0;
            for (int i = 0; i < 8; ++i) banks |= 1u << (uintptr_t)rows[8 * block + i] / 16 % 8;
            if (banks != 255) fail("ldmatrix has bank conflicts");
        }
        for (int l = 0; l < 32; ++l)
            for (int block = 0; block < 4; ++block) memcpy(warp.out[l] + 4 * block, rows[8 * block + l / 4] + l % 4, 4);
    });
}

static void emulated_copy16(float *to, const float *from) {
    const size_t at = (char *)to - shared_memory.data();
    if (at % 16 || (uintptr_t)from % 16 || at + 16 > shared_limit) fail("cp.async is misaligned or out of bounds");
    memcpy(to, from, 16);
}

// Barriers in shared memory: arrivals that a phase still waits for, bytes that were announced and have not come, and phases so far.
struct Barrier {
    int count, left, bytes, phases;
};
static std::map<const void *, Barrier> barriers;
static void emulated_barrier_start(const void *p, int count) { barriers[p] = {count, count, 0, 0}; }
static void emulated_arrival(const void *p, int arrivals, int bytes) {
    Barrier &barrier = barriers.at(p);
    barrier.left -= arrivals, barrier.bytes += bytes;
    if (barrier.left < 0) fail("too many arrivals at a barrier");
    if (barrier.left == 0 && barrier.bytes == 0) barrier.left = barrier.count, ++barrier.phases;
}
static void emulated_barrier_wait(const void *p, int parity) {
    while ((barriers.at(p).phases & 1) == parity) give_way();
}
static void emulated_copy_block(float *to, const float *from, int bytes, const void *barrier) {
    const size_t at = (char *)to - shared_memory.data();
    if (at % 16 || (uintptr_t)from % 16 || bytes % 16 || at + bytes > shared_limit) fail("a bulk copy is misaligned or out of bounds");
    memcpy(to, from, bytes);
    emulated_arrival(barrier, 0, -bytes);
}

static void launch(int grid_x, int grid_y, int threads, size_t shared_bytes, std::function<void()> kernel) {
    const size_t stack = 1 << 16;
    static std::vector<std::unique_ptr<char[]>> stacks;
    while ((int)stacks.size() < threads) stacks.emplace_back(new char[stack]);
    block_threads = threads, shared_limit = shared_bytes, entry = kernel;
    blockDim = {threads, 1, 1}, gridDim = {grid_x, grid_y, 1};
    for (int block = 0; block < grid_x * grid_y; ++block) {
        shared_memory.assign(shared_bytes + 4096, 0x7f);
        warps.assign((threads + 31) / 32, Warp());
        finished.assign(threads, false);
        fibres.resize(threads);
        for (int t = 0; t < threads; ++t) {
            getcontext(&fibres[t]);
            fibres[t].uc_stack.ss_sp = stacks[t].get();
            fibres[t].uc_stack.ss_size = stack;
            makecontext(&fibres[t], fibre, 0);
        }
        int left = threads;
        for (long round = 0; left > 0; ++round) {
            if (round > 10000000) fail("the block never ends");
            for (current = 0; current < threads; ++current) {
                if (finished[current]) continue;
                threadIdx = {current, 0, 0}, blockIdx = {block % grid_x, block / grid_x, block_z};
                swapcontext(&home, &fibres[current]);
                left -= finished[current];
            }
        }
        for (size_t i = shared_bytes; i < shared_memory.size(); ++i)
            if (shared_memory[i] != 0x7f) fail("a write past the end of shared memory");
    }
}

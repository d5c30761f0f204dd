#!/usr/bin/env python3
"""Runs the CUDA kernels of the fused product on the host and compares them with a sum in double.

    cargo run -p mercer-cli -- devices --sources DIR   # writes the sources
    .ci/emulate_cuda.py DIR [name part]

emulate_cuda.h stands in for the GPU: it finds wrong indices, layouts, bounds, alignment and bank conflicts, but no
races and no speed. Needs a C++ compiler.
"""

import os
import re
import sys

from emulator import HERE, run

PREPARE = os.path.join(HERE, "../crates/mercer/src/operator/cuda/prepare.cu")

# Instructions that have no name in C++, and what stands in for them.
STAND_INS = {
    "INLINE void mma(": "INLINE void mma(float (&c)[4], const word (&a)[4], word b0, word b1) { emulated_mma(c, a, b0, b1); }",
    "INLINE void mma_half(": "INLINE void mma_half(float (&c)[4], const word (&a)[4], word b0, word b1) { emulated_mma_half(c, a, b0, b1); }",
    "INLINE void group_mma(": """INLINE void group_mma(float (&s)[BN / 16][MT][2][4], int i, const word (&a)[4], const float *x, int add) {
    UNROLLED(j, BN / 8) {
        float (&c)[4] = s[j / 2][i][j % 2];
        if (!add) UNROLLED(e, 4) c[e] = 0;
        emulated_group_mma(c, a, x, 128, 16 * DK, j);
    }
}""",
    "INLINE void group_begin(": "INLINE void group_begin() {}",
    "INLINE void group_wait(": "INLINE void group_wait() {}",
    "INLINE word address(const barrier": "",
    "INLINE void barrier_start(": "INLINE void barrier_start(barrier *p, int count) { emulated_barrier_start(p, count); }",
    "INLINE void barriers_show(": "INLINE void barriers_show() {}",
    "INLINE void barrier_arrive(": "INLINE void barrier_arrive(barrier *p) { emulated_arrival(p, 1, 0); }",
    "INLINE void barrier_expect(": "INLINE void barrier_expect(barrier *p, int bytes) { emulated_arrival(p, 1, bytes); }",
    "INLINE void barrier_wait(": "INLINE void barrier_wait(barrier *p, int parity) { emulated_barrier_wait(p, parity); }",
    "INLINE void copy_block(": "INLINE void copy_block(float *to, const float *from, int bytes, barrier *p) { emulated_copy_block(to, from, bytes, p); }",
    "INLINE void group_end(": "INLINE void group_end(float (&s)[BN / 16][MT][2][4]) {}",
    "INLINE word address(const float": "",
    "INLINE coordinate to_half(": "INLINE coordinate to_half(float x) { return nearest_half(x); }",
    "INLINE float from_half(": "INLINE float from_half(coordinate x) { return half_value(x); }",
    "INLINE void load4(": "INLINE void load4(word (&r)[4], const float *p) { emulated_ldmatrix(r, p); }",
    "INLINE void copy16(": "INLINE void copy16(float *to, const float *from) { emulated_copy16(to, from); }",
    "INLINE void copies_commit(": "INLINE void copies_commit() {}",
    "template <int PENDING> INLINE void copies_wait(": "template <int PENDING> INLINE void copies_wait() {}",
    "INLINE word low_half_here(": "INLINE word low_half_here(word x) { return low_half(__uint_as_float(x)); }",
}
FAST = {
    'APPROXIMATE(m_exp2, "ex2")': "INLINE real m_exp2(real x) { return exp2f(x); }",
    'APPROXIMATE(m_sqrt, "sqrt")': "INLINE real m_sqrt(real x) { return sqrtf(x); }",
    'APPROXIMATE(m_rsqrt, "rsqrt")': "INLINE real m_rsqrt(real x) { return 1 / sqrtf(x); }",
    'APPROXIMATE(m_recip, "rcp")': "INLINE real m_recip(real x) { return 1 / x; }",
}
# By what points in f16 are multiplied, so that its use shows.
SCALE = 16.0
# How A and B are taken from one set of points: the points in their order, two lists, a list and a range, a range and a list.
IN_ORDER, LISTS, LIST_AND_RANGE, RANGE_AND_LIST = range(4)
# (source, width of the points, n, m, are they the same points?), or how they are taken instead of the last
CASES = [
    ("product-64-Tf32-16", 64, 300, 300, 1), ("product-64-Tf32-8", 50, 100, 260, 0), ("product-64-Tf32-24", 64, 200, 200, 1),
    ("product-64-Tf32-32", 64, 200, 200, 1), ("product-100-Tf32-32", 100, 300, 200, 0), ("product-784-Tf32-32", 784, 64, 130, 0),
    ("product-3-Tf32-32", 3, 300, 300, 1), ("product-64-Half-16", 64, 300, 300, 1), ("product-64-Half-16", 64, 70, 1000, 0), ("product-64-Half-8", 50, 100, 260, 0),
    ("product-64-Half-24", 64, 200, 200, 1), ("product-64-Half-32", 64, 200, 200, 1), ("product-100-Half-32", 100, 300, 200, 0), ("product-3-Half-32", 3, 300, 300, 1),
    ("ampere-64-Half-16", 64, 300, 300, 1), ("ampere-64-Half-32", 40, 100, 200, 0), ("ampere-gram-64-Half", 64, 210, 210, 1), ("product-64-Split-16", 64, 200, 200, 1), ("product-64-Split-24", 60, 140, 210, 0),
    ("product-100-Split-32", 97, 300, 300, 1), ("product-64-F32-16", 64, 300, 300, 1), ("product-64-F32-32", 64, 100, 300, 0),
    ("product-64-F64-16", 60, 200, 200, 1), ("product-64-F64-8", 64, 100, 300, 0), ("gram-3-Tf32", 3, 100, 210, 0),
    ("gram-64-Tf32", 64, 210, 210, 1), ("gram-64-Half", 64, 210, 210, 1), ("gram-3-Half", 3, 100, 210, 0), ("gram-100-Half", 100, 130, 210, 0), ("gram-784-Tf32", 784, 100, 70, 0), ("gram-100-Split", 100, 200, 200, 1),
    ("gram-100-F32", 100, 150, 260, 0), ("gram-64-F64", 64, 100, 100, 1),
    ("mirrored-3-Tf32", 3, 500, 500, 1), ("mirrored-64-Half", 50, 430, 430, 1), ("mirrored-100-Half", 100, 300, 300, 1), ("mirrored-64-Tf32", 50, 430, 430, 1), ("mirrored-100-Split", 100, 300, 300, 1),
    ("mirrored-784-Tf32", 784, 300, 300, 1), ("mirrored-100-F32", 100, 310, 310, 1), ("mirrored-64-F64", 64, 200, 200, 1),
    # Clusters far apart, and equal points.
    ("near-product-5-Tf32", 5, 200, 200, 1), ("near-product-100-Tf32", 100, 100, 150, 0), ("near-product-64-Split", 64, 200, 200, 1),
    ("near-product-5-Split", 5, 150, 210, 0), ("near-product-100-Split", 100, 100, 130, 0), ("near-product-64-F32", 64, 200, 200, 1),
    ("near-product-5-F64", 5, 150, 210, 0), ("near-gram-5-Split", 5, 100, 210, 0), ("near-gram-64-F32", 64, 150, 150, 0),
    ("near-gram-64-F64", 64, 100, 130, 0), ("near-gram-100-Tf32", 100, 130, 100, 0), ("near-mirrored-5-Split", 5, 300, 300, 1),
    ("near-mirrored-64-Tf32", 64, 200, 200, 1), ("near-mirrored-5-F32", 5, 310, 310, 1), ("near-mirrored-5-F64", 5, 200, 200, 1),
    # Inner products from a matrix product.
    ("wide-784-Tf32-8", 784, 70, 300, 0), ("wide-784-Tf32-16", 780, 90, 90, 1), ("wide-784-Tf32-32", 784, 61, 130, 0),
    ("near-wide-784-Tf32-8", 784, 100, 100, 1), ("near-wide-784-Tf32-16", 784, 50, 110, 0),
    ("wide-784-Tf32-8", 784, 610, 60, 0),
]
# Parts of a set: a point of A may be one of B at another place.
PARTS = [
    ("gathered-64-Half", 64, 200, 210, LISTS), ("gathered-3-Half", 3, 210, 150, LIST_AND_RANGE), ("gathered-100-Half", 100, 150, 200, RANGE_AND_LIST),
    ("gathered-gram-64-Half", 64, 100, 210, LISTS), ("gathered-64-Tf32", 64, 200, 210, LISTS), ("gathered-3-Tf32", 3, 210, 150, LIST_AND_RANGE), ("gathered-100-Tf32", 100, 150, 200, RANGE_AND_LIST),
    ("gathered-64-Split", 60, 150, 200, LISTS), ("gathered-100-Split", 100, 200, 150, LIST_AND_RANGE), ("gathered-64-F32", 64, 150, 200, RANGE_AND_LIST),
    ("gathered-3-F64", 3, 150, 150, LISTS), ("gathered-64-F64", 64, 100, 130, LIST_AND_RANGE), ("gathered-gram-64-Tf32", 64, 100, 210, LISTS),
    ("gathered-gram-100-Split", 100, 210, 100, RANGE_AND_LIST), ("gathered-gram-64-F32", 64, 100, 150, LIST_AND_RANGE), ("gathered-gram-3-F64", 3, 130, 100, LISTS),
    ("near-gathered-5-Tf32", 5, 150, 200, LISTS), ("near-gathered-100-Split", 100, 100, 150, LIST_AND_RANGE), ("near-gathered-64-F32", 64, 150, 150, RANGE_AND_LIST),
    ("near-gathered-5-F64", 5, 100, 150, LISTS), ("wide-784-Tf32-8", 784, 60, 150, LISTS), ("near-wide-784-Tf32-8", 784, 60, 100, LIST_AND_RANGE),
]
BOUND = {"Half": 6e-4, "Tf32": 6e-4, "Split": 5e-7, "F32": 5e-7, "F64": 1e-14}
# The largest error of an entry of a Gram matrix.
WORST = {"Half": 4e-3, "Tf32": 4e-3, "Split": 4e-6, "F32": 2e-6, "F64": 4e-15}

PROGRAM = r"""
#include "emulate_cuda.h"
namespace product {
%(product)s
}
#undef HALVES
#undef HALF
#undef NC
#undef D
#undef INLINE
#undef LOW
#undef DUPLICATES
#undef VIEWS
namespace prepare {
%(prepare)s
}
int main() {
    typedef %(real)s T;
    const int n = %(n)d, m = %(m)d, d = %(d)d, width = %(width)d, rows = %(rows)d, nc = %(nc)d, same = %(same)d;
    const int a_pad = (n + 767) / 768 * 768, b_pad = (m + 767) / 768 * 768, columns = nc - 3, ld = nc + 2;
    std::mt19937 random(1);
    std::normal_distribution<double> normal(0, 1);
    const int source = %(source)d, duplicates = %(duplicates)d;
    // Points of d coordinates, then their names where they have some.
    std::vector<double> x(n * source), y(m * source), v(m * ld);
    auto draw = [&](std::vector<double> &points, int count) {
        for (int i = 0; i < count; ++i) {
            for (int k = 0; k < d; ++k) points[i * source + k] = normal(random) / sqrt((double)d) + %(apart)g * (i %% 3 - 1);
            if (duplicates && i %% 10 == 7) for (int k = 0; k < d; ++k) points[i * source + k] = 0.1 * k - 1;
            if (duplicates) points[(i + 1) * source - 1] = i %% 10 == 7 ? 1 : 0;
        }
    };
    // Places of the points in their set, and the number of one of B minus that of the same one in A: places of the order i, then of the list.
    std::vector<int> a_at(a_pad), b_at(b_pad);
    const int taken = %(taken)d, all = 2 * max(n, m), first = 50;
    if (taken) {
        std::vector<double> set(all * source);
        draw(set, all);
        for (int i = 0; i < a_pad; ++i) a_at[i] = taken == 3 ? first + min(i, n - 1) : min(i, n - 1) * 7 %% all;
        for (int j = 0; j < b_pad; ++j) b_at[j] = taken == 2 ? first + min(j, m - 1) : min(j, m - 1) * 5 %% all;
        for (int i = 0; i < n; ++i) std::copy_n(&set[a_at[i] * source], source, &x[i * source]);
        for (int j = 0; j < m; ++j) std::copy_n(&set[b_at[j] * source], source, &y[j * source]);
    } else {
        draw(x, n);
        draw(y, m);
        for (int i = 0; i < n; ++i) a_at[i] = i;
        for (int j = 0; j < m; ++j) b_at[j] = j;
    }
    for (auto &e : v) e = normal(random) + 0.5;
    if (same) y = x;
    auto numbers = [](size_t count) { return (T *)aligned_alloc(64, (count * sizeof(T) + 63) / 64 * 64); };
    %(point)s *a = (%(point)s *)numbers((size_t)2 * a_pad * width), *b = (%(point)s *)numbers((size_t)2 * b_pad * width);
    T *axx = numbers(3 * a_pad), *byy = numbers(3 * b_pad);
    T *values = numbers((size_t)3 * nc * b_pad);
    launch(a_pad / 8, 1, 256, 0, [&] { prepare::prepare_points(x.data(), nullptr, a, axx, n, a_pad, 0, a_pad); });
    launch(b_pad / 8, 1, 256, 0, [&] { prepare::prepare_points(y.data(), nullptr, b, byy, m, b_pad, 0, b_pad); });
    // Points of a set in another order.
    std::vector<int> backwards(n);
    for (int i = 0; i < n; ++i) backwards[i] = n - 1 - i;
    %(point)s *some = (%(point)s *)numbers((size_t)2 * a_pad * width);
    T *of_some = numbers(3 * a_pad);
    launch(a_pad / 8, 1, 256, 0, [&] { prepare::gather_points(a, axx, a_pad, backwards.data(), 0, some, of_some, n, a_pad); });
    for (int i = 0; i < a_pad; ++i) {
        const int from = max(n - 1 - i, 0);
        bool same_point = of_some[i] == axx[from] && of_some[a_pad + i] == axx[a_pad + from];
        for (int k = 0; k < width; ++k) same_point &= some[prepare::place(i, k)] == a[prepare::place(from, k)];
        if (!same_point) fail("a gathered point is another one");
    }
    auto kappa = [&](int i, int j) {
        double s = 0;
        for (int k = 0; k < d; ++k) s += pow(x[i * source + k] - y[j * source + k], 2);
        const int p = a_at[i], q = b_at[j];
        return ((same || taken) && p == q) || (duplicates && p %% 10 == 7 && q %% 10 == 7) ? 1.25 : exp(-s / 2);
    };
    const int tiles = (m + %(tile)d - 1) / %(tile)d, splits = tiles > 2 ? 2 : 1, each = (tiles + splits - 1) / splits;
    const int diagonal = taken == 2 ? first : taken == 3 ? -first : same || taken ? 0 : -(1 << 30);
    const int *a_places = taken == 1 || taken == 2 ? a_at.data() : nullptr, *b_places = taken == 1 || taken == 3 ? b_at.data() : nullptr;
    double error = 0, size = 0, worst = 0;
    const T *const a_tiles = (const T *)a, *const b_tiles = (const T *)b;
#if GRAM
    std::vector<T> out((size_t)n * (m + 1), (T)9);
    launch((n + rows - 1) / rows, splits, %(threads)d, %(shared)d, [&] {
        product::%(name)s(a_tiles, axx, b_tiles, byy, a_pad, b_pad, tiles, each, diagonal%(places)s, out.data(), n, m, (long long)(m + 1));
    });
    for (int i = 0; i < n; ++i) {
        for (int j = 0; j < m; ++j) {
            const double off = out[i * (m + 1) + j] - kappa(i, j);
            error += off * off, size += pow(kappa(i, j), 2), worst = max(worst, fabs(off));
        }
        if (out[i * (m + 1) + m] != (T)9) fail("wrote beside the matrix");
    }
#else
    launch((b_pad * nc + 255) / 256, 1, 256, 0, [&] { prepare::prepare_values(v.data(), values, m, b_pad, ld, 1, columns); });
    std::vector<%(partial)s> partial((size_t)2 * a_pad * nc, NAN);
    std::vector<double> out(n * ld, 7.0);
    // A product with `rows` rows, each a sum of `count` terms.
    auto compare = [&](const std::vector<double> &product, int rows, int count, auto term) {
        for (int i = 0; i < rows; ++i)
            for (int c = 0; c < ld; ++c) {
                const double got = product[i * ld + c];
                if (c == 0 || c > columns) {
                    if (got != 7.0) fail("wrote beside the columns");
                    continue;
                }
                double want = 0;
                for (int j = 0; j < count; ++j) want += term(i, j, c);
                error += pow(got - want, 2), size += want * want;
            }
    };
#if WIDE
    auto inner_products = [&](int r0, int rows, int c0, int columns) {
        std::vector<float> s(rows * columns);
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j) {
                double sum = 0;
                for (int k = 0; k < width; ++k) sum += (double)a[(r0 + i) * width + k] * b[(c0 + j) * width + k];
                s[i * columns + j] = (float)sum;
            }
        return s;
    };
    // Two blocks of columns and one of rows that is not the first.
    const int half = m / 2;
    for (int split = 0; split < 2; ++split)
        for (int r0 = 0; r0 < n; r0 += 40) {
            const int c0 = split * half, count = split ? m - half : half, some = min(40, n - r0);
            const auto s = inner_products(r0, some, c0, count);
            launch((some + rows - 1) / rows, 1, 256, 0, [&] {
                product::wide(a, axx, b, byy, a_pad, b_pad, diagonal, a_places, b_places, s.data(), some, count, r0, c0, values,
                              partial.data() + ((size_t)split * a_pad + r0) * nc);
            });
        }
    launch((n * columns + 255) / 256, 1, 256, 0, [&] { prepare::reduce_partials(partial.data(), out.data(), 2, n, a_pad, ld, 1, columns); });
    // The product with the transpose, of blocks of 530 rows: the first of them has two chunks.
    std::vector<double> u(n * ld), back(m * ld, 7.0);
    for (auto &e : u) e = normal(random) + 0.5;
    T *of_rows = numbers((size_t)nc * a_pad);
    launch((a_pad * nc + 255) / 256, 1, 256, 0, [&] { prepare::prepare_values(u.data(), of_rows, n, a_pad, ld, 1, columns); });
    for (int c0 : {0, half}) {
        const int count = c0 ? m - half : half, step = 530;
        std::vector<float> sums;
        int chunks = 0;
        for (int r0 = 0; r0 < n; r0 += step) {
            const int some = min(step, n - r0), now = (some + 511) / 512;
            const auto s = inner_products(r0, some, c0, count);
            sums.resize((size_t)(chunks + now) * count * nc, NAN);
            launch((count + 255) / 256, now, 256, 0, [&] {
                product::wide_transposed(a, axx, b, byy, a_pad, b_pad, diagonal, a_places, b_places, s.data(), some, count, r0, c0, of_rows,
                                         sums.data() + (size_t)chunks * count * nc);
            });
            chunks += now;
        }
        launch((count * columns + 255) / 256, 1, 256, 0, [&] { prepare::reduce_partials(sums.data(), back.data() + (size_t)c0 * ld, chunks, count, count, ld, 1, columns); });
    }
    compare(back, m, n, [&](int j, int i, int c) { return kappa(i, j) * u[i * ld + c]; });
#else
    launch((n + rows - 1) / rows, splits, %(threads)d, %(shared)d, [&] {
        product::%(name)s(a_tiles, axx, b_tiles, byy, a_pad, b_pad, tiles, each, diagonal%(places)s, values, partial.data());
    });
    launch((n * columns + 255) / 256, 1, 256, 0, [&] { prepare::reduce_partials(partial.data(), out.data(), splits, n, a_pad, ld, 1, columns); });
#endif
    compare(out, n, m, [&](int i, int j, int c) { return kappa(i, j) * v[j * ld + c]; });
#endif
    printf("%%g %%g\n", sqrt(error / size), worst);
}
"""


def replace_function(text, head, body):
    """`text` with the function that starts with `head` replaced by `body`."""
    start = text.find(head)
    if start < 0:
        return text
    at, depth = text.index("{", start), 0
    while True:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
        if depth == 0:
            return text[:start] + body + text[at:]


def on_the_host(text):
    """CUDA source as C++ against emulate_cuda.h."""
    for head, body in STAND_INS.items():
        text = replace_function(text, head, body)
    for instruction, body in FAST.items():
        text = text.replace(instruction, body)
    text = re.sub(r"extern __shared__ __align__\(16\) (\w+) shared\[\];", r"\1 *shared = (\1 *)shared_memory.data();", text)
    text = re.sub(r"#pragma unroll.*", "", text).replace("__restrict__", "").replace('extern "C" ', "")
    return text.replace("#define INLINE __device__ __forceinline__", "#undef INLINE\n#define INLINE static inline")


def settings(text, d):
    """Launch and layout of a source, from its #defines."""
    number = lambda name: int((re.search(rf"#define {name} (\d+)", text) or [0, 0])[1])
    arithmetic = re.search(r"#define ARITHMETIC (\w+)", text)[1]
    nc, width, gram, halves = number("NC"), number("D"), number("GRAM"), 1 + number("SPLIT")
    real = "double" if arithmetic == "F64" else "float"
    near, low, duplicates = number("NEAR"), number("LOW"), number("DUPLICATES")
    low_first = d if low and real == "double" else 0
    source = d + low_first + duplicates
    found = dict(nc=nc, width=width, real=real, point="unsigned short" if number("HALF") else real, d=d, source=source, duplicates=duplicates, apart=1000.3 if near else 0)
    text = text.replace("#define UNSCALE 1e0f", f"#define UNSCALE {SCALE ** -2}f")
    found["places"] = ", a_places, b_places" if number("GATHERED") else ""
    wide = "    wide(const float" in text
    if wide:
        found |= dict(name="wide", rows=8 if nc <= 8 else 4 if nc <= 16 else 2, tile=64, threads=256, shared=0, partial="float")
        text = "#define WIDE 1\n#define GRAM 0\n" + text
    elif "// arch: " in text:
        half, threads, stages, values = number("HALF"), 32 * number("WARPS"), number("STAGES"), 0 if gram else halves * nc * 68
        rows, words_of = threads // 2 * number("MT"), lambda width: width // 2 if half else width + 4
        words = stages * (64 * words_of(width) + 64 + values)
        if width > 64:
            words = stages * (rows + 64) * words_of(16 if halves == 2 else 64 if half else 32) + 2 * (64 + values)
        found |= dict(name="tensor", rows=rows, tile=64, threads=threads, shared=4 * words, partial="float")
    else:
        rows = 16 * number("TM")
        words = max(32 * (rows + 4), 64 * nc) + (0 if gram else 64 * (rows + 4))
        found |= dict(name="simt", rows=rows, tile=rows, threads=256, shared=words * (8 if real == "double" else 4), partial="double")
    defines = dict(SOURCE="double", TARGET=real, PARTIAL=found["partial"], ROUND_TF32=int(arithmetic == "FAST"), HALF=number("HALF"), SCALE=SCALE, TRANSPOSED=int(found["name"] == "tensor"), HALVES=halves, NC=nc, D=width,
                   SOURCE_D=source, VIEW_LIST=f"V(0, 0, {width}, 0, {d})", VIEWS=1, LOW=low, LOW_FIRST=low_first, DUPLICATES=duplicates,
                   DIAGONAL="1.25 + 0 * norms[0]")  # not 1, so that its use shows
    prepare = "".join(f"#define {name} {value}\n" for name, value in defines.items()) + "#define INLINE __device__ __forceinline__\n" + open(PREPARE, encoding="utf-8").read()
    return found | dict(product=on_the_host(text), prepare=on_the_host(prepare))


def main():
    folder, wanted = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    failed = 0
    for name, d, n, m, same, taken in [(*case, IN_ORDER) for case in CASES] + [(*case[:4], 0, case[4]) for case in PARTS]:
        if wanted not in name:
            continue
        text = open(os.path.join(folder, f"{name}.cu"), encoding="utf-8").read()
        program = PROGRAM % (settings(text, d) | dict(n=n, m=m, same=same, taken=taken))
        said = run(program, "-O1", capture_output=True, text=True).stdout.strip()
        bound, worst = next((b, WORST[arithmetic]) for arithmetic, b in BOUND.items() if f"-{arithmetic}" in name)
        good = re.fullmatch(r"[-+.e\d]+ [-+.e\d]+", said) and all(float(s) <= b for s, b in zip(said.split(), [bound, worst]))
        failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name}{' in parts' if taken else ''}, d = {d}, {n} by {m}: {said}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

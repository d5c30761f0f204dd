#!/usr/bin/env python3
"""Runs the kernels on hidden units on the host and compares them with plain double loops.

    .ci/emulate_hidden.py

emulate_cuda.h stands in for the GPU: it finds wrong indices and wrong mathematics, but no races and no speed. Needs a C++
compiler. The activation is sincos; that of the sources is generated, and checked by the tests of the formulas.
"""

from emulator import kernels, run

PROGRAM = r"""
#include "emulate_cuda.h"
#define INLINE inline
#define UNROLLED(i, n) for (int i = 0; i < (n); ++i)
#define V %d
#define PHI 0
#define WRITE %s
struct Parameters { float v[8]; };
static int formula(int, unsigned column, unsigned width) { return column >= width / 2; }
static void activate(int phi, const Parameters &, float z, float &v, float &s) {
    v = phi ? cosf(z) : sinf(z);
    s = phi ? -sinf(z) : cosf(z);
}
%s
static std::mt19937 source(1);
static std::vector<float> numbers(size_t n) {
    std::normal_distribution<float> law;
    // Tensors start at multiples of 16 bytes, and so does a vector.
    std::vector<float> all(n);
    for (auto &v : all) v = law(source);
    return all;
}
static void near(const char *what, double got, double want, double bound) {
    if (!(fabs(got - want) <= bound * (1 + fabs(want)))) { printf("FAIL: %%s: %%.9g for %%.9g\n", what, got, want); exit(1); }
}
// One launch for each chunk of rows.
static void columns(int n, int k, int m, int per, std::function<void()> kernel) {
    for (block_z = 0; block_z * per < m; ++block_z) launch((n + 31) / 32, k, 256, 0, kernel);
    block_z = 0;
}
static void check(int k, int m, int n, int per, bool has_bias) {
    const int width = n * V, stride = 2 * width + 3, chunks = (m + per - 1) / per;
    auto z = numbers(k * m * width), g = numbers(k * m * width), flow = numbers(k * m), flat = numbers(k * stride + 8);
    const float *bias = has_bias ? flat.data() + 1 : nullptr, *w = flat.data() + width + 2, *top = has_bias ? flat.data() : nullptr;
    Parameters p = {};
    auto u = [&](int i) { return (double)z[i] + (bias ? bias[i / (m * width) * stride + i %% width] : 0.0f); };
    auto second = [&](int i) { return i %% width >= width / 2; };
    auto value = [&](int i) { return second(i) ? cos(u(i)) : sin(u(i)); };
    auto slope = [&](int i) { return second(i) ? -sin(u(i)) : cos(u(i)); };
    auto weight = [&](int i) { return w[i / (m * width) * stride + i %% width]; };
    std::vector<float> y(k * m * width, NAN), dz(k * m * width, NAN), head(k * m, NAN), sums(k * chunks * width, NAN), w_sums = sums;
    columns(n, k, m, per, [&] { hidden_values(m, n, per, p, bias, stride, z.data(), y.data()); });
    for (int i = 0; i < k * m * width; ++i) near("values", y[i], value(i), 1e-6);
    launch((m + 31) / 32, k, 256, 0, [&] { hidden_head(m, n, p, bias, stride, w, stride, top, stride, z.data(), head.data()); });
    for (int r = 0; r < k * m; ++r) {
        double sum = top ? top[r / m * stride] : 0;
        for (int c = 0; c < width; ++c) sum += value(r * width + c) * weight(r * width + c);
        near("head", head[r], sum, 1e-4);
    }
    auto compare = [&](const char *what, bool of_head) {
        std::vector<double> total(sums.size()), w_total(sums.size());
        for (int i = 0; i < k * m * width; ++i) {
            int j = i / (m * width), r = i / width %% m, c = i %% width;
            double want = slope(i) * (of_head ? flow[j * m + r] * weight(i) : g[i]);
            near(what, dz[%d ? (j * width + c) * m + r : i], want, 1e-5);
            total[(j * chunks + r / per) * width + c] += want;
            w_total[(j * chunks + r / per) * width + c] += flow[j * m + r] * value(i);
        }
        for (size_t i = 0; i < sums.size(); ++i) {
            near("sums", sums[i], total[i], 1e-4);
            if (of_head) near("sums of the head", w_sums[i], w_total[i], 1e-4);
        }
        std::fill(dz.begin(), dz.end(), NAN), std::fill(sums.begin(), sums.end(), NAN), std::fill(w_sums.begin(), w_sums.end(), NAN);
    };
    const u64 network = chunks * width, chunk = width;
    columns(n, k, m, per, [&] { hidden_back(m, n, per, p, bias, stride, z.data(), g.data(), dz.data(), sums.data(), network, chunk); });
    compare("back", false);
    columns(n, k, m, per, [&] {
        hidden_head_back(m, n, per, p, bias, stride, w, stride, z.data(), flow.data(), dz.data(), w_sums.data(), network, chunk,
                         sums.data(), network, chunk);
    });
    compare("head_back", true);
}
int main() {
    check(2, 37, 5, 64, true);
    check(1, 150, 40, 70, false);
    check(2, 129, 32, 129, true);
    check(3, 5, 33, 2, true);
    printf("ok: hidden units, %%d at a time, gradients %s\n", V);
}
"""


if __name__ == "__main__":
    text = kernels("mercer-engine/src/compute/cuda/hidden.cu")
    for pack, write in ((1, "as_it_is"), (4, "as_it_is"), (4, "turned")):
        run(PROGRAM % (pack, write, text, write == "turned", write), "-O1", check=True)

#!/usr/bin/env python3
"""Runs the kernels on images in bf16 on the host and compares them with plain double loops.

    .ci/emulate_halves.py

emulate_cuda.h stands in for the GPU: it finds wrong indices and wrong mathematics, but no races and no speed. Needs a C++
compiler.
"""

import sys

from emulator import kernels, run

PROGRAM = r"""
#include <array>
#include <random>
#include "emulate_cuda.h"
namespace kernels {
constexpr float EPSILON = 1e-5f;
%s
}
using namespace kernels;
static std::mt19937 source(1);
static float normal() { static std::normal_distribution<float> law; return law(source); }
static float round16(float x) { return __uint_as_float(nearest(x) << 16); }
struct Images {
    std::vector<Pack> p;
    Images(size_t n, bool random) : p(n / 8) {
        for (size_t i = 0; i < n; ++i) bits()[i] = random ? nearest(normal()) : 0x7fff;
    }
    u16 *bits() { return (u16 *)p.data(); }
    double operator[](size_t i) { return widen(bits()[i]); }
};
static void near(const char *what, double got, double want, double slack) {
    if (!(fabs(got - want) <= fabs(want) / 200 + slack)) { printf("%%s: %%g for %%g\n", what, got, want); fail(what); }
}
static void layouts() {
    const int b = 3, c = 11, plane = 10, groups = 2;
    std::vector<float> x(b * c * plane);
    for (auto &v : x) v = normal();
    Images out(b * plane * 16, false);
    launch(2, 1, 256, 0, [&] { images(b, c, plane, groups, x.data(), out.p.data()); });
    for (int i = 0; i < b * plane * 16; ++i) near("images", out[i], i %% 16 < c ? x[(i / 160 * c + i %% 16) * plane + i / 16 %% plane] : 0, 0);
    const int rows = 6, taps = 9;
    std::vector<float> w(rows * c * taps), back(rows * c * taps, NAN);
    for (auto &v : w) v = normal();
    Images filter(rows * taps * 16, false);
    launch(3, 1, 256, 0, [&] { filters(rows, c, taps, 16, w.data(), filter.bits()); });
    for (int i = 0; i < rows * taps * 16; ++i) near("filters", filter[i], i %% 16 < c ? w[(i / 16 / taps * c + i %% 16) * taps + i / 16 %% taps] : 0, 0);
    launch(3, 1, 256, 0, [&] { filter_gradient(rows, c, taps, 16, filter.bits(), back.data()); });
    for (size_t i = 0; i < w.size(); ++i) near("filter_gradient", back[i], w[i], 0);
    std::vector<float> mean(b * 16, NAN);
    launch(1, 1, 256, 0, [&] { means(b, plane, groups, out.p.data(), mean.data()); });
    for (int i = 0; i < b * 16; ++i) {
        double sum = 0;
        for (int p = 0; p < plane; ++p) sum += out[(i / 16 * plane + p) * 16 + i %% 16];
        near("means", mean[i], sum / plane, 1e-6);
    }
    Images spread(b * plane * 16, false);
    launch(2, 1, 256, 0, [&] { means_back(b, plane, groups, mean.data(), spread.p.data()); });
    for (int i = 0; i < b * plane * 16; ++i) near("means_back", spread[i], mean[i / (plane * 16) * 16 + i %% 16] / plane, 0);
}
static void norms(int rows, int c, int blocks, bool relu, bool sum, bool two) {
    const int n = rows * c, groups = c / 8;
    Images z(n, true), plus(n, true), g(n, true), more(n, true), y(n, false), dz(n, false);
    for (int i = 1; i < n; i += c) z.bits()[i] = nearest(z[i] + 20);
    std::vector<float> statistics(2 * c, NAN), affine(2 * c), grad(2 * c, NAN), part(blocks * 2 * c, NAN);
    for (auto &v : affine) v = normal();
    launch(blocks, 1, 256, 0, [&] { moments(rows, groups, z.p.data(), part.data()); });
    launch(groups, 1, 256, 0, [&] { finish_moments(rows, c, blocks, z.bits(), part.data(), statistics.data()); });
    std::vector<double> mean(c), var(c), product(c), total(c), b(n);
    for (int i = 0; i < n; ++i) mean[i %% c] += z[i] / rows;
    for (int i = 0; i < n; ++i) var[i %% c] += (z[i] - mean[i %% c]) * (z[i] - mean[i %% c]) / rows;
    for (int k = 0; k < c; ++k) {
        if (fabs(statistics[k] - mean[k]) > 1e-5 * (1 + fabs(mean[k])) || fabs(statistics[c + k] - var[k]) > 1e-4) fail("moments");
    }
    auto hat = [&](int i) { return (z[i] - mean[i %% c]) / sqrt(var[i %% c] + 1e-5); };
    launch(blocks, 1, 256, 0, [&] { batch_norm(rows, groups, relu, z.p.data(), statistics.data(), affine.data(), sum ? plus.p.data() : nullptr, y.p.data()); });
    for (int i = 0; i < n; ++i) {
        double v = affine[i %% c] * hat(i) + affine[c + i %% c] + (sum ? plus[i] : 0);
        near("batch_norm", y[i], relu ? std::max(v, 0.0) : v, 1e-3);
        double gradient = round16(g[i] + (two ? more[i] : 0));
        // As the kernel has it: the sign of y, where it is stored, else that of the value.
        b[i] = relu && y[i] <= 0 ? 0 : gradient;
        product[i %% c] += b[i] * hat(i), total[i %% c] += b[i];
    }
    Pack *G = g.p.data(), *M = two ? more.p.data() : nullptr;
    launch(blocks, 1, 256, 0, [&] { batch_norm_sums(rows, groups, relu, z.p.data(), statistics.data(), affine.data(), sum ? y.p.data() : nullptr, G, M, sum ? G : nullptr, part.data()); });
    launch(groups, 1, 256, 0, [&] { finish_sums(c, blocks, part.data(), statistics.data(), grad.data()); });
    for (int k = 0; k < c; ++k) near("dgamma", grad[k], product[k], 1e-2), near("dbeta", grad[c + k], total[k], 1e-2);
    if (sum) for (int i = 0; i < n; ++i) near("what was added", g[i], b[i], 0);
    launch(blocks, 1, 256, 0, [&] { batch_norm_back(rows, groups, relu && !sum, z.p.data(), statistics.data(), affine.data(), grad.data(), G, sum ? nullptr : M, sum ? dz.p.data() : G); });
    for (int i = 0; i < n; ++i) {
        double want = affine[i %% c] / sqrt(var[i %% c] + 1e-5) * (b[i] - total[i %% c] / rows - hat(i) * product[i %% c] / rows);
        near("dz", sum ? dz[i] : g[i], want, 3e-3);
    }
}
int main() {
    layouts();
    for (int how = 0; how < 8; ++how)
        for (auto [rows, c, blocks] : {std::array<int, 3>{5, 8, 1}, {70, 24, 2}, {101, 64, 3}, {9, 2048, 4}}) norms(rows, c, blocks, how & 1, how & 2, how & 4);
    printf("ok: images in bf16\n");
}
"""


if __name__ == "__main__":
    sys.exit(run(PROGRAM % kernels("mercer-engine/src/compute/cuda/halves.cu"), "-O1").returncode)

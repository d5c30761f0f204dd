#!/usr/bin/env python3
"""Runs the kernels on points of other libraries (`operator/cuda/external.cu`) on the host and compares them with plain loops.

    .ci/emulate_external.py

emulate_cuda.h stands in for the GPU: it finds wrong indices and wrong mathematics, but no races and no speed. Needs a C++
compiler.
"""

import sys

from emulator import kernels, run

PROGRAM = r"""
#include "emulate_cuda.h"
typedef unsigned long long word64;
static word64 __double_as_longlong(double x) { word64 u; memcpy(&u, &x, 8); return u; }
static void atomicMin(word64 *at, word64 v) { *at = min(*at, v); }
static void atomicMax(word64 *at, word64 v) { *at = max(*at, v); }
static word64 __shfl_down_sync(unsigned, word64 value, int step) {
    word64 result;
    collective(&value, 8, &result, 8, [&](Warp &warp) {
        for (int l = 0; l < 32; ++l) memcpy(warp.out[l], warp.in[min(l + step, 31)], 8);
    });
    return result;
}
#define SOURCE %(type)s
%(kernels)s
static void check(bool good, const char *what) { if (!good) fail(what); }
static void near(double a, double b, const char *what) {
    if (!(fabs(a - b) <= 4e-15 * (1 + fabs(b)))) { printf("%%.17g and %%.17g: ", a, b); fail(what); }
}
int main() {
    std::mt19937 random(1);
    std::normal_distribution<double> normal(0, 1);
    for (int d : {1, 3, 40}) for (int transposed : {0, 1}) {
        // Every second row of a larger array, or every column of a transposed one.
        const int n = 61;
        const long long sr = transposed ? 1 : 2 * d, sc = transposed ? n + 3 : 1;
        std::vector<SOURCE> x((size_t)(n + 3) * 2 * d + 64);
        for (auto &v : x) v = (SOURCE)(normal(random) + 5);
        auto at = [&](int i, int j) -> SOURCE & { return x[i * sr + j * sc]; };
        for (int j = 0; j < d; ++j) at(7, j) = at(50, j), at(9, j) = j ? at(11, j) : 0, at(3, j) = 0;
        at(9, 0) = -0.0, at(11, 0) = 0.0;
        for (int j = 1; j < d; ++j) at(9, j) = at(11, j);
        std::vector<word64> keys(2 * n);
        word64 bad = ~0ull;
        const int warps_of_rows = (32 * n + 255) / 256;
        launch(warps_of_rows, 1, 256, 0, [&] { survey(x.data(), sr, sc, n, d, keys.data(), &bad); });
        check(bad == ~0ull, "a finite number was taken for another");
        for (int i = 0; i < n; ++i) for (int k = 0; k < i; ++k) {
            bool same = true;
            for (int j = 0; j < d; ++j) same &= at(i, j) == at(k, j);
            const bool equal = keys[2 * i] == keys[2 * k] && keys[2 * i + 1] == keys[2 * k + 1];
            check(same == equal, "keys of equal points, and of no others, are equal");
        }
        std::vector<double> means(d);
        launch(d, 1, 256, 0, [&] { column_means(x.data(), sr, sc, n, means.data()); });
        for (int j = 0; j < d; ++j) {
            double sum = 0;
            for (int i = 0; i < n; ++i) sum += at(i, j);
            near(means[j], sum / n, "a mean");
        }
        const std::vector<int> rows = {5, 0, 60, 5};
        std::vector<SOURCE> some(4 * d), all((size_t)n * d);
        launch((4 * d + 255) / 256, 1, 256, 0, [&] { gather(x.data(), sr, sc, rows.data(), some.data(), 4, d); });
        launch((n * d + 255) / 256, 1, 256, 0, [&] { gather(x.data(), sr, sc, nullptr, all.data(), n, d); });
        for (int j = 0; j < d; ++j) {
            for (int i = 0; i < 4; ++i) check(some[i * d + j] == at(rows[i], j), "gathered rows");
            for (int i = 0; i < n; ++i) check(all[i * d + j] == at(i, j), "all rows");
        }
        std::vector<double> scale(d);
        for (int j = 0; j < d; ++j) scale[j] = 0.5 + j;
        for (int lift : {0, 1, 2}) for (int shifted : {0, 1}) for (int scaled : {0, 1}) for (double p : {1.0, 0.5}) {
            const int views = lift == 2 ? 2 * d : d, first = 2, low = first + views, width = 2 * low + 1;
            std::vector<double> out((size_t)n * width, 7.0), names(n);
            const word64 none[2] = {0x7ff0000000000000ull, 0};
            word64 norms[2] = {none[0], none[1]};
            for (int i = 0; i < n; ++i) names[i] = i;
            auto run = [&](double *to) {
                launch(warps_of_rows, 1, 256, 0, [&] {
                    pack_view(x.data(), sr, sc, n, d, shifted ? means.data() : nullptr, scaled ? scale.data() : nullptr, lift, p, to,
                              width, first, low, norms);
                });
            };
            run(nullptr);
            const word64 unwritten[2] = {norms[0], norms[1]};
            norms[0] = none[0], norms[1] = none[1];
            run(out.data());
            check(unwritten[0] == norms[0] && unwritten[1] == norms[1], "norms without a target");
            launch(1, 1, 256, 0, [&] { put_names(names.data(), out.data(), n, width); });
            double least = INFINITY, most = 0;
            for (int i = 0; i < n; ++i) {
                const double *row = &out[(size_t)i * width];
                std::vector<long double> t(d);
                long double size = 0, norm = 0;
                for (int j = 0; j < d; ++j) {
                    t[j] = ((long double)at(i, j) - (shifted ? means[j] : 0)) / (scaled && lift != 2 ? scale[j] : 1);
                    size += t[j] * t[j];
                }
                check(row[0] == 7 && row[1] == 7 && row[low] == 7 && row[width - 1] == i, "wrote beside the view, or no name");
                for (int j = 0; j < views; ++j) {
                    const long double turn = 6.283185307179586476925L * t[j %% d] / p;
                    const long double want = lift == 2 ? (j < d ? cosl(turn) : sinl(turn)) / (scaled ? scale[j %% d] : 1) : lift == 1 && size > 0 ? t[j] / powl(size, p / 2) : t[j];
                    // A remainder of a period is as accurate as the number was.
                    check(fabsl(row[first + j] - want) <= 1e-14 * (1 + fabsl(want) + (lift == 2 ? fabsl(turn) : 0)), "a coordinate");
                    const double rest = row[low + first + j];
                    if (lift == 0 && shifted && !scaled)
                        check(fabsl((long double)row[first + j] + rest - t[j]) <= 1e-18 * (1 + fabsl(t[j])), "what rounding removed");
                    else
                        check(rest == 0, "nothing was removed");
                    norm += row[first + j] * row[first + j];
                }
                most = max(most, (double)norm);
                if (norm > 0) least = min(least, (double)norm);
            }
            double found[2];
            memcpy(found, norms, 16);
            near(found[0], least, "the least norm");
            near(found[1], most, "the largest norm");
        }
        at(40, d - 1) = NAN, at(20, 0) = INFINITY;
        launch(warps_of_rows, 1, 256, 0, [&] { survey(x.data(), sr, sc, n, d, keys.data(), &bad); });
        check(bad == 20ull * d, "the first number that is not finite");
    }
    puts("ok");
}
"""


def main():
    text = kernels("mercer/src/operator/cuda/external.cu")
    for kind in ["float", "double"]:
        # Additions must not be reordered or fused: low parts are exact.
        said = run(PROGRAM % dict(type=kind, kernels=text), "-O1", "-ffp-contract=off", capture_output=True, text=True)
        print(f"points of {kind}: {said.stdout.strip()}", flush=True)
        if said.returncode or said.stdout.strip() != "ok":
            sys.exit(1)


if __name__ == "__main__":
    main()

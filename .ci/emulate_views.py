#!/usr/bin/env python3
"""Runs the kernel that makes views on the host and compares it with plain double loops.

    .ci/emulate_views.py

emulate_cuda.h stands in for the GPU: it finds wrong indices and wrong mathematics, but no races and no speed. Needs a C++
compiler.
"""

import sys

from emulator import kernels, run

PROGRAM = r"""
#include "emulate_cuda.h"
namespace kernels {
%s
}
using kernels::NUMBERS;
static const int C = 3, H = 7, W = 5, P = H * W, D = C * P;
static double grey(const std::vector<double> &v, int p) { return 0.299 * v[p] + 0.587 * v[P + p] + 0.114 * v[2 * P + p]; }
static double in(double v) { return std::min(std::max(v, 0.0), 2.0); }
// One pixel of a part, in double.
static double part(const float *x, const float *view, int c, int row, int col) {
    auto at = [](double first, double size, int i, int n, int &a, int &b) {
        double place = std::min(std::max((i + 0.5) * size / n - 0.5, 0.0), size - 1);
        a = first + floor(place), b = first + std::min(floor(place) + 1, size - 1);
        return place - floor(place);
    };
    int up, down, left, right;
    double v = at(view[0], view[2], row, H, up, down), u = at(view[1], view[3], view[4] > 0.5 ? W - 1 - col : col, W, left, right);
    const float *plane = x + c * P;
    return (1 - v) * ((1 - u) * plane[up * W + left] + u * plane[up * W + right]) + v * ((1 - u) * plane[down * W + left] + u * plane[down * W + right]);
}
static std::vector<double> made(const float *x, const float *view) {
    std::vector<double> out(D);
    for (int i = 0; i < D; ++i) out[i] = in(part(x, view, i / P, i / W %% H, i %% W) * view[5]);
    double mean = 0;
    for (int p = 0; p < P; ++p) mean += grey(out, p) / P;
    for (auto &v : out) v = in(mean + view[6] * (v - mean));
    for (int p = 0; p < P; ++p) {
        double y = grey(out, p), rgb[3];
        for (int c = 0; c < 3; ++c) out[c * P + p] = in(y + view[7] * (out[c * P + p] - y));
        if (view[8] != 0) {
            double r = out[p], g = out[P + p], b = out[2 * P + p];
            y = grey(out, p);
            double i = 0.596 * r - 0.274 * g - 0.322 * b, q = 0.211 * r - 0.523 * g + 0.312 * b;
            double ii = cos(view[8]) * i - sin(view[8]) * q, qq = sin(view[8]) * i + cos(view[8]) * q;
            rgb[0] = y + 0.956 * ii + 0.621 * qq, rgb[1] = y - 0.272 * ii - 0.647 * qq, rgb[2] = y - 1.106 * ii + 1.703 * qq;
            for (int c = 0; c < 3; ++c) out[c * P + p] = in(rgb[c]);
        }
        if (view[9] > 0.5) for (int c = 2; c >= 0; --c) out[c * P + p] = c == 2 ? grey(out, p) : out[2 * P + p];
    }
    if (view[10] > 0) {
        auto before = out;
        int radius = std::min((int)ceil(2 * view[10]), 4);
        for (int i = 0; i < D; ++i) {
            double sum = 0, all = 0;
            for (int a = -radius; a <= radius; ++a)
                for (int b = -radius; b <= radius; ++b) {
                    double w = exp(-0.5 * (a * a + b * b) / ((double)view[10] * view[10]));
                    int row = std::min(std::max(i / W %% H + a, 0), H - 1), col = std::min(std::max(i %% W + b, 0), W - 1);
                    sum += w * before[i / P * P + row * W + col], all += w;
                }
            out[i] = sum / all;
        }
    }
    for (auto &v : out) v = v >= view[11] * 2 ? 2 - v : v;
    return out;
}
int main() {
    const int rows = 6, count = 2 * rows;
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(0, 1);
    std::vector<float> x(rows * D), views, centre(D), work(count * D, NAN), out(count * D, NAN);
    for (auto &v : x) v = 2 * uniform(random);
    for (auto &v : centre) v = uniform(random);
    for (int v = 0; v < count; ++v) {
        float top = v %% 3, left = v %% 2, one[NUMBERS] = {top, left, (float)(H - 2 - v %% 2), (float)(W - 1), (float)(v %% 2), 0.7f + 0.1f * v, 0.5f + 0.1f * v,
            1.6f - 0.1f * v, v %% 4 ? 0.4f * v : 0, (float)(v == 5), v %% 3 ? 0.5f * v : 0, v == 7 ? 0.5f : 2.0f, 0, 0, 0, 0, 0};
        views.insert(views.end(), one, one + NUMBERS);
    }
    launch(5, 1, 256, 0, [&] { kernels::views(count, D, C, H, W, 2, 1.5, views.data(), centre.data(), x.data(), work.data(), out.data()); });
    double worst = 0;
    for (int v = 0; v < count; ++v) {
        auto want = made(&x[v / 2 * D], &views[v * NUMBERS]);
        for (int i = 0; i < D; ++i) worst = std::max(worst, fabs(out[v * D + i] - (want[i] - centre[i]) / 1.5));
    }
    if (!(worst < 1e-5)) fail("views of images");
    // Rows: noise of this deviation, cells that are hidden, columns that all of a side lose.
    const int n = 400;
    std::vector<float> row(rows * n, 1), none(n, 0), numbers(count * NUMBERS, 0), seen(count * n, NAN), room(count * n);
    for (int v = 0; v < count; ++v) numbers[v * NUMBERS + 12] = 0.5, numbers[v * NUMBERS + 13] = 0.2, numbers[v * NUMBERS + 14] = 0.1, numbers[v * NUMBERS + 15] = 91 * v, numbers[v * NUMBERS + 16] = v %% 2;
    launch(3, 1, 256, 0, [&] { kernels::views(count, n, 0, 1, 1, 1, 2, numbers.data(), none.data(), row.data(), room.data(), seen.data()); });
    double square = 0, sum = 0, zeros = 0;
    for (float v : seen) if (v == 0) ++zeros; else sum += v - 0.5, square += (v - 0.5) * (v - 0.5);
    double left = count * n - zeros;
    if (fabs(zeros / (count * n) - 0.28) > 0.03 || fabs(sum / left) > 0.03 || fabs(square / left - 0.25) > 0.02) fail("views of rows");
    printf("ok: views, worst %%g\n", worst);
}
"""


if __name__ == "__main__":
    sys.exit(run(PROGRAM % kernels("mercer-engine/src/compute/cuda/views.cu"), "-O1").returncode)

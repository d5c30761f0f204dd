#!/usr/bin/env python3
"""Runs the kernels of triangular solves by blocks on the host and compares them with plain double loops.

    .ci/emulate_triangle.py

emulate_cuda.h stands in for the GPU: it finds wrong indices and wrong mathematics, but no races and no speed. Needs a C++
compiler.
"""

import sys

from emulator import kernels, run

PROGRAM = r"""
#include "emulate_cuda.h"
namespace triangle {
%s
}
using namespace triangle;

// op(A) X for A [rows, columns] within a matrix whose rows are ld apart, and Y minus that.
static void compare(size_t rows, size_t columns, size_t ld, size_t m, bool transposed, bool subtract, std::mt19937 &random) {
    std::normal_distribution<double> normal(0, 1);
    const size_t outer = transposed ? columns : rows, inner = transposed ? rows : columns;
    std::vector<double> a(rows * ld), x(inner * m), y(outer * m + 1, 7.0), want(outer * m);
    for (auto &v : a) v = normal(random);
    for (auto &v : x) v = normal(random);
    for (size_t i = 0; i < outer; ++i)
        for (size_t c = 0; c < m; ++c) {
            double sum = 0;
            for (size_t k = 0; k < inner; ++k) sum += (transposed ? a[k * ld + i] : a[i * ld + k]) * x[k * m + c];
            want[i * m + c] = subtract ? 7.0 - sum : sum;
        }
    if (transposed) launch((outer + 31) / 32, 1, 256, 0, [&] { columns_times(outer, inner, m, a.data(), ld, x.data(), subtract, y.data()); });
    else launch((outer + 7) / 8, 1, 256, 0, [&] { rows_times(outer, inner, m, a.data(), ld, x.data(), subtract, y.data()); });
    for (size_t i = 0; i < outer * m; ++i)
        if (fabs(y[i] - want[i]) > 1e-12 * inner) fail("a product of a block");
    if (y[outer * m] != 7.0) fail("wrote behind the result");
}

int main() {
    std::mt19937 random(1);
    for (size_t m : {1, 2, 4, 5, 16})
        for (bool transposed : {false, true})
            for (bool subtract : {false, true}) {
                compare(512, 512, 512, m, transposed, subtract, random);
                compare(100, 37, 150, m, transposed, subtract, random);
                compare(1, 70, 70, m, transposed, subtract, random);
            }
    std::vector<double> one(26, 7.0);
    launch(1, 1, 256, 0, [&] { identity(5, one.data()); });
    for (int i = 0; i < 26; ++i)
        if (one[i] != (i == 25 ? 7.0 : i / 5 == i %% 5)) fail("the identity");
    printf("triangles: ok\n");
}
"""


if __name__ == "__main__":
    sys.exit(run(PROGRAM % kernels("mercer-engine/src/compute/cuda/triangle.cu"), "-O2", "-fsanitize=undefined").returncode)

#!/usr/bin/env python3
"""Runs the device functions of tanh, sigmoid and softplus on the host and compares them with integrals over the plane.

    cargo run -p mercer-cli -- devices --sources DIR   # writes the sources
    .ci/emulate_logistic.py DIR

Needs a C++ compiler.
"""

import os
import sys

from emulate_cuda import on_the_host
from emulator import run

BOUND = {"F64": 1e-9, "F32": 1e-5}

PROGRAM = r"""
#include "emulate_cuda.h"
#define __constant__ static const
namespace kernel {
%(source)s
}
using kernel::real;

// E[f(u)f(v)] for u = √a z, v = √b (ρ z + √(1−ρ²) w), by the trapezoidal rule, which converges faster than any power.
template <class F> double plane(F f, double k, double a, double b) {
    const double h = 1.0 / 32, rho = k / sqrt(a * b), rest = sqrt(std::max(0.0, 1 - rho * rho));
    double sum = 0;
    for (double z = -8; z <= 8; z += h)
        for (double w = -8; w <= 8; w += h)
            sum += exp(-0.5 * (z * z + w * w)) * f(sqrt(a) * z) * f(sqrt(b) * (rho * z + rest * w));
    return sum * h * h / (2 * M_PI);
}

template <class F, class G>
double check(const char *name, F phi, G slope, real (*value_of)(real, real, real), real (*slope_of)(real, real, real)) {
    double worst = 0;
    for (double a : {0.01, 0.7, 3.0})
        for (double b : {0.3, 2.0})
            for (double rho : {-0.9, 0.0, 0.5, 0.999}) {
                const double k = rho * sqrt(a * b);
                const double moments = sqrt(plane(phi, a, a, a) * plane(phi, b, b, b)), slopes = sqrt(plane(slope, a, a, a) * plane(slope, b, b, b));
                worst = std::max(worst, fabs(value_of(k, a, b) - plane(phi, k, a, b)) / moments);
                worst = std::max(worst, fabs(slope_of(k, a, b) - plane(slope, k, a, b)) / slopes);
            }
    printf("%%s: %%.1e\n", name, worst);
    return worst;
}

int main() {
    auto sigmoid = [](double u) { return 1 / (1 + exp(-u)); };
    auto softplus = [](double u) { return u > 0 ? u + log1p(exp(-u)) : log1p(exp(u)); };
    double worst = 0;
    worst = std::max(worst, check("tanh", [](double u) { return tanh(u); }, [](double u) { return 1 / (cosh(u) * cosh(u)); }, kernel::tanh_value, kernel::tanh_slope));
    worst = std::max(worst, check("sigmoid", sigmoid, [&](double u) { return sigmoid(u) * sigmoid(-u); }, kernel::sigmoid_value, kernel::sigmoid_slope));
    worst = std::max(worst, check("softplus", softplus, sigmoid, kernel::softplus_value, kernel::softplus_slope));
    return worst > %(bound)g;
}
"""


def main():
    failed = 0
    for arithmetic, bound in BOUND.items():
        text = open(os.path.join(sys.argv[1], f"logistic-{arithmetic}.cu"), encoding="utf-8").read()
        print(arithmetic, flush=True)
        failed += run(PROGRAM % dict(source=on_the_host(text), bound=bound), "-O2").returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

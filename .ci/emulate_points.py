#!/usr/bin/env python3
"""Runs the kernels on functions at points on the host and compares them with plain double loops.

    .ci/emulate_points.py

emulate_cuda.h stands in for the GPU: it finds wrong indices and wrong mathematics, but no races and no speed. Needs a C++
compiler.
"""

import sys

from emulator import kernels, run

PROGRAM = r"""
#include "emulate_cuda.h"
namespace points {
%s
}
using namespace points;
#include "emulate_points.h"
"""


if __name__ == "__main__":
    sys.exit(run(PROGRAM % kernels("mercer-engine/src/compute/cuda/points.cu"), "-O2", "-fsanitize=undefined").returncode)

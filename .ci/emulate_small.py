#!/usr/bin/env python3
"""Runs the kernels for small dense matrices on the host and compares them with plain double loops.

    .ci/emulate_small.py

emulate_cuda.h stands in for the GPU, with blocks of 128 threads: it finds wrong indices, missing barriers that change an
order, and wrong mathematics, but no races within a warp and no speed. Needs a C++ compiler.
"""

import sys

from emulator import kernels, run

CUDA = "mercer-engine/src/compute/cuda/"

PROGRAM = r"""
#include "emulate_cuda.h"
#define THREADS 128
namespace kernels {
%s
}
#include "emulate_small.h"
"""


def source():
    """The kernels as C++: dynamic shared memory is the emulator's, static shared memory is static."""
    text = kernels(*(CUDA + name for name in ["control.cuh", "small.cu", "eigh.cu"]))
    return text.replace("extern __shared__ __align__(16) double room[];", "#define room ((double *)shared_memory.data())")


if __name__ == "__main__":
    sys.exit(run(PROGRAM % source(), "-O2").returncode)

#!/usr/bin/env python3
"""Runs the kernels for small dense matrices on the host and compares them with plain double loops.

    .ci/emulate_small.py

emulate_cuda.h stands in for the GPU, with blocks of 128 threads: it finds wrong indices, missing barriers that change an
order, and wrong mathematics, but no races within a warp and no speed. Needs a C++ compiler.
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CUDA = os.path.join(HERE, "../crates/mercer-engine/src/compute/cuda")

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
    text = "".join(open(os.path.join(CUDA, name), encoding="utf-8").read() for name in ["control.cuh", "small.cu", "eigh.cu"])
    text = text.replace("extern __shared__ __align__(16) double room[];", "#define room ((double *)shared_memory.data())")
    return text.replace('extern "C" ', "")


def main():
    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/test.cpp", "w", encoding="utf-8") as file:
            file.write(PROGRAM % source())
        subprocess.run(["c++", "-std=c++17", "-O2", "-w", f"-I{HERE}", "-o", f"{work}/test", f"{work}/test.cpp"], check=True)
        sys.exit(subprocess.run([f"{work}/test"]).returncode)


if __name__ == "__main__":
    main()

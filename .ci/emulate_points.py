#!/usr/bin/env python3
"""Runs the kernels on functions at points on the host and compares them with plain double loops.

    .ci/emulate_points.py

emulate_cuda.h stands in for the GPU: it finds wrong indices and wrong mathematics, but no races and no speed. Needs a C++
compiler.
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CUDA = os.path.join(HERE, "../crates/mercer-engine/src/compute/cuda")

PROGRAM = r"""
#include "emulate_cuda.h"
namespace points {
%s
}
using namespace points;
#include "emulate_points.h"
"""


def kernels(name):
    text = open(os.path.join(CUDA, name), encoding="utf-8").read()
    return text.replace('extern "C" ', "")


def main():
    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/test.cpp", "w", encoding="utf-8") as file:
            file.write(PROGRAM % kernels("points.cu"))
        subprocess.run(["c++", "-std=c++17", "-O2", "-w", "-fsanitize=undefined", f"-I{HERE}", "-o", f"{work}/test", f"{work}/test.cpp"], check=True)
        sys.exit(subprocess.run([f"{work}/test"]).returncode)


if __name__ == "__main__":
    main()

"""What the emulators of CUDA kernels share: emulate_cuda.h stands in for the GPU, and a C++ compiler builds each program."""

import os
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def kernels(*paths):
    """CUDA sources, below `crates/`, as C++."""
    text = "".join(open(os.path.join(HERE, "../crates", path), encoding="utf-8").read() for path in paths)
    text = text.replace("#define INLINE __device__ __forceinline__", "#define INLINE static inline")
    return text.replace('extern "C" ', "").replace("__restrict__", "")


def run(program, *options, **how):
    """Compiles the program with these options and runs it as `subprocess.run` is told; the finished process."""
    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/test.cpp", "w", encoding="utf-8") as file:
            file.write(program)
        subprocess.run(["c++", "-std=c++17", "-w", *options, f"-I{HERE}", "-o", f"{work}/test", f"{work}/test.cpp"], check=True)
        return subprocess.run([f"{work}/test"], **how)

#!/usr/bin/env python3
"""Compiles every CUDA source in a folder with NVRTC for sm_75, sm_80 and sm_90a: no GPU, driver or toolkit is needed.

    cargo run -p mercer-cli -- devices --sources DIR   # writes the sources
    .ci/check_cuda_sources.py DIR [name part]                         # compiles them

A source whose first line is `// arch: 80` is compiled from sm_80 upwards, one of `// arch: 90` for sm_90a alone. NVRTC comes from the package
nvidia-cuda-nvrtc, which is installed into a virtual environment of its own when it is not there. A source that does
not compile, or that spills more than a few registers on sm_80 or later, fails the check with the compiler's log.
"""

import ctypes
import glob
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor

ARCHITECTURES = [75, 80, 90]
# Bytes a kernel may spill, stores and loads together, before it counts as broken rather than slow.
SPILL = 512


def library():
    """The path of libnvrtc: from $NVRTC, from this Python's packages, or from a fresh virtual environment."""
    if os.environ.get("NVRTC"):
        return os.environ["NVRTC"]
    environment = os.path.join(tempfile.gettempdir(), "mercer-nvrtc")
    roots = [sys.prefix, environment]
    for attempt in range(2):
        found = [path for root in roots for path in glob.glob(f"{root}/lib*/python3*/site-packages/nvidia/**/libnvrtc.so.1*", recursive=True)]
        if found:
            return sorted(found)[-1]
        if attempt == 0:
            subprocess.run([sys.executable, "-m", "venv", environment], check=True)
            subprocess.run([f"{environment}/bin/pip", "install", "--quiet", "nvidia-cuda-nvrtc==13.4.92"], check=True)
    sys.exit("libnvrtc was not found: install the package nvidia-cuda-nvrtc or set NVRTC to the library")


class Nvrtc:
    """The five calls of NVRTC that a compilation takes."""

    def __init__(self, path):
        self.call = ctypes.CDLL(path)

    def compile(self, text, name, arch):
        """(worked, log, machine code)"""
        program = ctypes.c_void_p()
        self.call.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        options = [f"--gpu-architecture=sm_{arch}{'a' if arch == 90 else ''}".encode(), b"--ptxas-options=-v", b"--std=c++17"]
        status = self.call.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = self.text(program, "ProgramLog")
        code = self.text(program, "CUBIN", raw=True) if status == 0 else b""
        self.call.nvrtcDestroyProgram(ctypes.byref(program))
        return status == 0, log, code

    def text(self, program, what, raw=False):
        size = ctypes.c_size_t()
        getattr(self.call, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.call, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw if raw else buffer.value.decode(errors="replace")


def kernels(log):
    """(kernel, registers, bytes spilled) for each kernel in the assembler's report."""
    found = []
    for part in re.split(r"Compiling entry function '", log)[1:]:
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", part))
        registers = re.search(r"Used (\d+) registers", part)
        found.append((part.split("'")[0], int(registers.group(1)) if registers else -1, spills))
    return found


def load(path):
    """Loads NVRTC in a process of the pool."""
    global nvrtc
    nvrtc = Nvrtc(path)


def one(job):
    path, text, arch = job
    return nvrtc.compile(text, os.path.basename(path), arch)


def main():
    folder, wanted = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    keep = os.environ.get("MERCER_CUBINS")
    jobs = []
    for path in sorted(glob.glob(os.path.join(folder, "*.cu"))):
        text = open(path, encoding="utf-8").read()
        least = re.match(r"// arch: (\d+)", text)
        jobs += [(path, text, arch) for arch in ARCHITECTURES if wanted in path and arch >= int(least.group(1) if least else 0)]
    if not jobs:
        sys.exit(f"{folder} holds no CUDA source")

    failed = 0
    # Processes: NVRTC compiles one source at a time in each.
    with ProcessPoolExecutor(os.cpu_count(), initializer=load, initargs=(library(),)) as pool:
        for (path, _, arch), (worked, log, code) in zip(jobs, pool.map(one, jobs, chunksize=4)):
            name = os.path.basename(path)
            report = kernels(log)
            spilled = arch >= 80 and any(spills > SPILL for _, _, spills in report)
            figures = ", ".join(f"{k}: {r} registers" + (f", {s} bytes spilled" if s else "") for k, r, s in report)
            print(f"{'ok  ' if worked and not spilled else 'FAIL'} sm_{arch} {name}: {figures}", flush=True)
            if not worked or spilled:
                failed += 1
                print(log)
            if keep and worked:
                os.makedirs(keep, exist_ok=True)
                with open(os.path.join(keep, f"{name}.sm_{arch}.cubin"), "wb") as file:
                    file.write(code)
    print(f"{len(jobs)} compilations, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

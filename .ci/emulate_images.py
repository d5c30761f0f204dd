#!/usr/bin/env python3
"""Runs the CUDA kernels of images on the host and compares them with the definition, in double.

    cargo run -p mercer-cli -- devices --sources DIR   # writes the sources
    .ci/emulate_images.py DIR [name part]

emulate_cuda.h stands in for the GPU: it finds wrong indices and wrong mathematics, but no races and no speed. Needs a C++
compiler.
"""

import os
import re
import sys

from emulate_cuda import on_the_host
from emulator import run

# The networks of `image_source.rs` that are run: their arithmetic, height, width, channels, C_w, C_b, and the layers in the words of
# emulate_images.h.
CASES = {
    "flatten": ("F32", 6, 5, 2, 1.5, 0, "conv(3); relu(); conv(3); relu(); flatten(); dense();"),
    "small": ("Tf32", 6, 5, 2, 1.5, 0.1, "conv(3); relu(); conv(3); relu(); gap(); dense();"),
    "square": ("F64", 8, 8, 1, 1.5, 0, "conv(3); relu(); conv(3); relu(); gap(); dense();"),
    "strided": ("F64", 7, 6, 1, 1.5, 0.2, "conv(3, 2); relu(); conv(2, 1, 1); relu(); gap(); dense();"),
    "halved": ("F32", 8, 8, 1, 1.5, 0.2, "conv(3, 2); relu(); conv(3); relu(); gap(); dense(); relu(); dense();"),
    "pooled": ("F64", 8, 6, 1, 1.5, 0.1, "conv(3); relu(); avgpool(2, 2); conv(3); relu(); gap(); dense();"),
    "pools": ("F32", 12, 11, 2, 1.5, 0.2, "conv(3); relu(); avgpool(2, 2); conv(3, 2); relu(); avgpool(2, 1); flatten(); dense(); relu(); dense();"),
    "residual": ("F64", 8, 8, 2, 1.5, 0, "conv(3); fork(); relu(); conv(3, 2); shortcut(); conv(1, 2); join(); relu(); gap(); fork(); dense(); shortcut(); join(); dense();"),
}
BOUND = {"Tf32": 2e-5, "F32": 2e-6, "F64": 1e-13}

PROGRAM = r"""
#include "emulate_cuda.h"
namespace kernel {
%(source)s
}
#include "emulate_images.h"
int main() {
    return check<kernel::real>(%(h)d, %(w)d, %(c)d, %(weight)g, %(bias)g, [](Network &n) { %(layers)s }, %(warps)d, %(alone)d, %(pooled)d, %(shared)d, %(record)d, %(bound)g);
}
"""

CALLS = "conv relu avgpool gap flatten dense fork shortcut join".split()


def main():
    folder, wanted = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    failed = 0
    for name, (arithmetic, h, w, c, weight, bias, layers) in CASES.items():
        source = f"images-{name}-{arithmetic}"
        if wanted not in source:
            continue
        text = open(os.path.join(folder, f"{source}.cu"), encoding="utf-8").read()
        number = lambda what: int(re.search(rf"#define {what} (\d+)", text)[1])
        value = (8 if arithmetic == "F64" else 4) * (1 + number("NTK"))
        layers = re.sub(rf"\b({'|'.join(CALLS)})\(", r"n.\1(", layers)
        program = PROGRAM % dict(
            source=on_the_host(text), h=h, w=w, c=c, weight=weight, bias=bias, layers=layers, warps=number("WARPS"), alone=number("ALONE"), pooled=number("SCRATCH"),
            shared=number("WARPS") * (32 * number("PATCH") * value + 16), record=number("RECORD"), bound=BOUND[arithmetic])
        print(source, end=": ", flush=True)
        failed += run(program, "-O1", "-fsanitize=undefined").returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares the demo on the CPU with the demo on the first GPU: `python3 bench/gpu/agree.py PATH/mercer`.

Fails if an eigenvalue differs by more than a share of the largest one: 1e-9 for methods that solve, 1e-2 for methods that
train (their steps round differently, and are in TF32 on a GPU)."""
import json
import subprocess
import sys
import tempfile

TRAINED = {"neuralef", "spin", "nested", "ritz"}


def demo(binary, device):
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, "demo", "--json", "--quiet", "--device", device, "--out", f"{folder}/demo.html"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{device}: {done.stderr}")
        return {method["method"]: method for method in json.loads(done.stdout)["methods"]}


def main(binary):
    host, gpu = demo(binary, "cpu"), demo(binary, "cuda:0")
    failed = False
    for name, ours in host.items():
        theirs = gpu[name]
        pairs = list(zip(ours["eigenvalues"], theirs["eigenvalues"]))
        difference = max(abs(a - b) for a, b in pairs) / max(ours["eigenvalues"])
        bound = 1e-2 if name in TRAINED else 1e-9
        failed |= not difference <= bound
        print(f"{name:24} eigenvalues differ by {difference:.1e} of the largest (stated {bound:.0e}); "
              f"cpu {ours['seconds']:.2f} s, gpu {theirs['seconds']:.2f} s")
    sys.exit("the devices disagree" if failed else 0)


if __name__ == "__main__":
    main(sys.argv[1])

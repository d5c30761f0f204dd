#!/usr/bin/env python3
"""Kernel machines at scale on one NVIDIA GPU, through the program: time, error and what ran where of each command.

    python3 bench/gpu/solvers.py --mercer PATH/mercer [--bench PATH/mercer-bench] [--seconds 60] [JOB …]

Needs $MERCER_DATA (MNIST, covertype). Times are of the whole command, with reading, scaling and compiling; "fit" is what the program
says of the fit alone. mercer-bench runs the sizes that no data set here has: one epoch with 65 536 landmarks, and ten million points.
Writes the raw output to bench/results/solvers.json."""
import argparse
import json
import pathlib
import re
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent

MNIST = ["mnist", "--predict", "mnist(part=test)", "--alpha", "1e-3", "--kernel", "rbf(5)", "--precision", "f32"]
COVERTYPE = ["covtype", "--holdout", "0.1", "--alpha", "0.5", "--kernel", "laplacian(10)"]
RBF = ["covtype", "--holdout", "0.1", "--alpha", "0.1", "--kernel", "rbf(1.5)"]
# Three convolutions with global average pooling, as in the row of benchmarks: 5000 images to learn, 2000 to predict.
CNTK = ["cifar-10(n=5000)", "--predict", "cifar-10(part=test, n=2000)", "--kernel", "ntk('conv(3) relu conv(3) relu conv(3) relu gap dense', w_var=2)"]
JOBS = {
    "mnist-cg": [*MNIST, "--method", "ridge", "--solver", "cg", "--tolerance", "1e-2", "--iterations", "60"],
    "mnist-askotch": [*MNIST, "--method", "askotch", "--tolerance", "1e-2", "--iterations", "20"],
    "mnist-eigenpro": [*MNIST, "--method", "eigenpro", "--tolerance", "1e-2", "--iterations", "10"],
    "covertype-falkon": [*RBF, "--precision", "f32", "--method", "falkon", "--rank", "10000", "--tolerance", "1e-3", "--iterations", "30"],
    "covertype-askotch": [*RBF, "--precision", "tf32", "--method", "askotch", "--tolerance", "1e-2", "--iterations", "10"],
    "covertype-cg": [*RBF, "--precision", "tf32", "--method", "ridge", "--solver", "cg", "--tolerance", "1e-2", "--iterations", "50"],
    "images-cntk": [*CNTK, "--precision", "f32", "--method", "ridge", "--alpha", "1e-3"],
}
LARGE = {"epoch": "gpu-epoch_tf32", "ten-million": "gpu-askotch_tf32"}


def run(command, seconds):
    """The output of a command and its seconds; one that takes too long is asked to end with the best that it has."""
    start = time.time()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(2)
        try:
            text, _ = process.communicate(timeout=max(15.0, seconds / 4))
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
            text += "\nkilled"
    return text, time.time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", help="beginnings of job names")
    parser.add_argument("--mercer", default="mercer")
    parser.add_argument("--bench")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--out", default=HERE.parent / "results/solvers.json", type=pathlib.Path)
    options = parser.parse_args()
    wanted = lambda name: not options.jobs or any(name.startswith(job) for job in options.jobs)
    results = {}
    for name, arguments in JOBS.items():
        if wanted(name):
            command = [options.mercer, "regress", *arguments, "--device", options.device]
            text, seconds = run(command, options.seconds)
            results[name] = {"command": " ".join(command[1:]), "seconds": seconds, "output": text}
            lines = [line for line in re.split(r"[\n\r]", text) if line.strip()]
            print(f"== {name}: {seconds:.1f} s\n   " + "\n   ".join(lines[-14:]), flush=True)
    for name, job in LARGE.items():
        if options.bench and wanted(name):
            text, seconds = run([options.bench, job, ".", "1"], 2 * options.seconds)
            results[name] = {"seconds": seconds, "output": text}
            print(f"== {name}: {seconds:.1f} s\n" + text[-3000:], flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

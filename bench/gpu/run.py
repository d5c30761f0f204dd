#!/usr/bin/env python3
"""Compares Mercer with PyTorch on one NVIDIA GPU: the same sizes, one job after the other in the same run.

    python3 bench/gpu/run.py                            # builds mercer-bench with cargo first
    python3 bench/gpu/run.py --binary PATH/mercer-bench # on a machine without Rust
    python3 bench/gpu/run.py rbf ntk                    # some jobs only

Needs a Python with PyTorch and KeOps (pykeops). Prints ratios and shares of the limit, and writes the raw numbers to
bench/results/gpu.json; bench/tables.py makes the README's tables of them. Times are medians of device time; PyTorch runs eager,
with torch.compile and, for training steps, as a CUDA graph too."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

from jobs import JOBS

HERE = pathlib.Path(__file__).resolve().parent


def answer(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"  {command[-1]} failed: {done.stderr.strip().splitlines()[-1:] or done.stdout[-300:]}", flush=True)
        return {"failed": "out of memory" if "OutOfMemory" in done.stderr else f"exit code {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def median(result):
    return statistics.median(result["ms"]) if "ms" in result else float("nan")


def limit_ms(kind, rates):
    """The time of the matrix products alone (dot products and K·V) at the measured matrix speed of the machine."""
    n, flop = 65536, 2 * 65536**2 * (64 + 16)
    return flop / rates[kind] * 1e3 if kind and rates.get(kind) else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", help="beginnings of job names")
    parser.add_argument("--binary", help="mercer-bench, already built")
    parser.add_argument("--out", default=HERE.parent / "results/gpu.json", type=pathlib.Path)
    options = parser.parse_args()
    binary = options.binary
    if not binary:
        subprocess.run(["cargo", "build", "--release", "-q", "-p", "mercer-bench"], cwd=HERE.parent.parent, check=True)
        binary = HERE.parent.parent / "target/release/mercer-bench"
    peer = lambda job: answer([sys.executable, str(HERE / "peers.py"), job])
    limits = {kind: peer(f"limit_{kind}") for kind in ("f32", "tf32", "copy")}
    rates = {kind: (limit or {}).get("rate") for kind, limit in limits.items()}
    print("limits: f32 {:.0f} TFLOP/s, TF32 {:.0f} TFLOP/s, copy {:.2f} TB/s".format(
        *(rates[kind] / 1e12 for kind in ("f32", "tf32", "copy"))), flush=True)
    results = {"limits": limits, "jobs": {}}
    for job, (what, peers, aim, kind) in JOBS.items():
        if options.jobs and not any(job.startswith(name) for name in options.jobs):
            continue
        theirs = {name: peer(name) for name in peers}
        ours = answer([str(binary), f"gpu-{job}", ".", "10"])
        results["jobs"][job] = {"what": what, "mercer": ours, "peers": theirs}
        line = f"{what}: Mercer {median(ours):.3g} ms"
        for name, result in theirs.items():
            line += f", {name.removeprefix(job.rsplit('_', 1)[0] + '_')} {median(result):.3g}"
        times = [median(result) for result in theirs.values() if "ms" in result]
        if times:
            line += f"; {min(times) / median(ours):.2f} times the fastest" + (f" (aim {aim})" if aim else "")
        limit = limit_ms(kind, rates)
        if limit:
            line += f", {100 * limit / median(ours):.0f} % of the limit of {limit:.2g} ms"
        for note in ("error", "seconds", "worst_residual", "device_bytes"):
            if note in ours:
                line += f", {note.replace('_', ' ')} {ours[note]:.3g}"
        if "residuals" in ours:
            line += ", mean residual {:.3g}".format(statistics.mean(1 if r is None else r for r in ours["residuals"]))
        print(line, flush=True)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

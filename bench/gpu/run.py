#!/usr/bin/env python3
"""Compares Mercer with PyTorch on one NVIDIA GPU: the same sizes, one job after the other in the same run.

    python3 bench/gpu/run.py                            # builds mercer-bench with cargo first
    python3 bench/gpu/run.py --binary PATH/mercer-bench # on a machine without Rust
    python3 bench/gpu/run.py rbf ntk                    # some jobs only

Needs a Python with PyTorch. Prints ratios and shares of the limit, and writes the raw numbers to bench/results/gpu.json.
Times are medians of device time; PyTorch runs eager and with torch.compile, and the faster of the two is used."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SIZES = ["1-32-10-256", "784-256-16-512", "64-128-32-1024", "1024-1024-64-8192"]

# job: (description, the peer's jobs in the same arithmetic, target ratio, arithmetic of the limit or None)
JOBS = {
    "rbf_f32": ("RBF Kv, n=65 536, d=64, 16 columns, f32", ["rbf_f32", "rbf_f32_compiled"], 1.8, "f32"),
    "rbf_tf32": ("RBF Kv, n=65 536, d=64, 16 columns, TF32", ["rbf_tf32", "rbf_tf32_compiled"], 3, "tf32"),
    "ntk_tf32": ("NTK Kv, 3 ReLU layers, same sizes, TF32", ["ntk_tf32", "ntk_tf32_compiled"], 3, "tf32"),
    "rbf_f64": ("RBF Kv, n=65 536, d=64, 16 columns, f64", [], None, None),
    "million_tf32": ("RBF Kv, n=1 000 000, d=64, 16 columns, TF32", [], None, None),
    "million_f32": ("RBF Kv, n=1 000 000, d=64, 16 columns, f32", [], None, None),
    "top10_f32": ("top 10 eigenpairs of RBF, n=65 536, d=64, certified", [], None, None),
} | {
    f"neuralef_{size}_tf32": (
        f"NeuralEF step, (d,h,k,B) = ({size.replace('-', ',')}), TF32",
        [f"neuralef_{size}_tf32", f"neuralef_{size}_f32", f"neuralef_{size}_tf32_compiled"],
        1 if size.endswith("8192") else 3, None)
    for size in SIZES
} | {
    f"neuralef_{SIZES[-1]}_bf16": (f"NeuralEF step, (d,h,k,B) = ({SIZES[-1].replace('-', ',')}), bf16", [], None, None),
} | {
    f"ritz_{size}_tf32": (f"Ritz step, (d,p,k,B) = ({size.replace('-', ',')}), TF32", [], None, None)
    for size in ("2-64-10-256", "3-128-10-256")
} | {
    f"certificate_{math}": (f"NeuralEF for 2000 steps with networks in {math}, certified", [], None, None)
    for math in ("f32", "tf32", "bf16")
}


def answer(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"  {command[-1]} failed: {done.stderr.strip().splitlines()[-1:] or done.stdout[-300:]}", flush=True)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def median(result):
    return statistics.median(result["ms"]) if result else float("nan")


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
        if peers:
            eager = [median(r) for name, r in theirs.items() if not name.endswith("compiled")]
            compiled = [median(r) for name, r in theirs.items() if name.endswith("compiled")]
            line += f", PyTorch eager {min(eager):.3g}, compiled {min(compiled):.3g}"
            # Small steps are compared with eager PyTorch, the large one with the faster of the two.
            base = min(eager + compiled) if aim == 1 else min(eager) if job.startswith("neuralef") else min(compiled)
            line += f"; {base / median(ours):.2f} times (aim {aim})"
        limit = limit_ms(kind, rates)
        if limit:
            line += f", {100 * limit / median(ours):.0f} % of the limit of {limit:.2g} ms"
        for note in ("error", "seconds", "worst_residual", "device_bytes"):
            if ours and note in ours:
                line += f", {note.replace('_', ' ')} {ours[note]:.3g}"
        if ours and "residuals" in ours:
            line += ", mean residual {:.3g}".format(statistics.mean(1 if r is None else r for r in ours["residuals"]))
        print(line, flush=True)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares Mercer with its peers: the same arrays, two threads each, one job after the other in the same run.

    python3 bench/run.py                 # all jobs; creates bench/.venv and bench/.data the first time
    python3 bench/run.py gram-f32 rff-f64
    python3 bench/run.py --repeats 5
    python3 bench/run.py entk-784-512-512-10-64   # empirical NTK and neural-tangents; creates bench/.venv-kernels
    python3 bench/run.py --kernels       # infinite networks, neural-tangents and PyTorch; creates bench/.venv-kernels
    MERCER_DATA=… python3 bench/run.py conv-1000   # half an hour: see `thousand_images`
    python3 bench/run.py --laplace       # linearised Laplace and laplace-torch; creates bench/.venv-neural
    python3 bench/run.py --graph         # a graph of neighbours beside the exact search, a million items: ten minutes, needs a C++ compiler
    python3 bench/run.py --neural        # training step and PyTorch; creates bench/.venv-neural (5 GB) the first time

Prints ratios and peak memory, and writes the raw numbers to bench/results/classic.json, neural.json, kernels.json and laplace.json; then
`python3 bench/tables.py` writes the guide's tables anew. The peers and Mercer run alternately, so that other load on the
machine affects all. A description says the precision and, for iterative methods, the tolerance.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
import venv

HERE = pathlib.Path(__file__).resolve().parent
VENV, DATA, VENV_NEURAL, VENV_KERNELS = (HERE / name for name in (".venv", ".data", ".venv-neural", ".venv-kernels"))

# job: (description, the peer's method, target ratio)
JOBS = {
    "gram-f32": ("RBF Gram 8000×64, f32", "scikit-learn rbf_kernel", 3),
    "gram-f64": ("RBF Gram 8000×64, f64", "scikit-learn rbf_kernel", 3),
    "kv-f32": ("K·V, 8000×64, 16 columns, f32, K never stored", "Gram, then multiply", 5),
    "kv-f64": ("K·V, 8000×64, 16 columns, f64, K never stored", "Gram, then multiply", 5),
    "kpca-5000": ("kernel PCA, k=10, n=5000, d=50, f64, tolerance 1e-2", "scikit-learn KernelPCA, randomized", 5),
    "kpca-20000": ("kernel PCA, k=10, n=20 000, d=50, f32, tolerance 1e-2", "scikit-learn KernelPCA, randomized", 5),
    "nystrom-f32": ("Nyström features m=500, n=100 000, d=50, f32", "scikit-learn Nystroem", 3),
    "nystrom-f64": ("Nyström features m=500, n=100 000, d=50, f64", "scikit-learn Nystroem", 3),
    "rff-f32": ("random Fourier features m=1000, n=100 000, d=50, f32", "scikit-learn RBFSampler", 3),
    "rff-f64": ("random Fourier features m=1000, n=100 000, d=50, f64", "scikit-learn RBFSampler", 3),
    "ridge-5000": ("kernel ridge, direct, n=5000, d=50, f64", "scikit-learn KernelRidge", 2),
    "search-euclidean": ("10 nearest of 100 000 codes of 64 coordinates for 1000 queries, distance, f32", "scikit-learn NearestNeighbors, brute", 3),
    "search-cosine": ("10 nearest of 100 000 codes of 64 coordinates for 1000 queries, cosine, f32", "scikit-learn NearestNeighbors, brute", 3),
    "gp-step-2000": ("Gaussian process, log likelihood and gradient by 50 lengthscales, amplitude and noise, n=2000, d=50, f64",
                     "gpytorch, Cholesky", 2),
    "covertype-ridge": ("covertype, 40 000 rows, the default of `mercer regress`, α chosen; 10 000 predicted",
                        "scikit-learn Nystroem(1000), RidgeClassifier, α given", 1),
    "covertype-logistic": ("covertype, 40 000 rows, `--loss logistic`, α chosen; 10 000 predicted",
                           "scikit-learn Nystroem(1000), LogisticRegression, C given", 1),
    "covertype-full": ("covertype, 522 911 rows, the default of `mercer regress` from the file to the accuracy on 58 101 rows, α chosen",
                       "scikit-learn Nystroem(2000), RidgeClassifier, f32", 3),
    "covertype-best": ("covertype, 522 911 rows, Falkon with 10 000 landmarks, f32, lengthscale 3, α chosen, from the file to the accuracy on 58 101 rows", None, None),
    "mnist-full": ("MNIST, 60 000 rows, the full kernel, EigenPro, 20 epochs, f32, from the files to the accuracy on 10 000 rows", None, None),
    "top-k-50000": ("top 10 eigenpairs, n=50 000, d=50, f32, tolerance 1e-4, K never stored", None, None),
    "ntk-top-k-50000": ("top 10 eigenpairs of the NTK, 3 ReLU layers, MNIST 50 000×784, f32, tolerance 1e-4, K never stored",
                        None, None),
}
# job: further peers, with the keys of their results
ALSO = {"kv-f32": ["keops", "compiled"], "kv-f64": ["keops", "compiled"], "search-euclidean": ["numpy"], "search-cosine": ["numpy"]}
# job: the files of `mercer regress`, all rows of covertype or MNIST, and its options
COVERTYPE_FILES = [DATA / "covertype-train.npy", "--predict", DATA / "covertype-test.npy", "--target", "55", "--classify"]
PROGRAM = {"covertype-full": COVERTYPE_FILES,
           "covertype-best": [*COVERTYPE_FILES, "--method", "falkon", "--rank", "10000", "--precision", "f32", "--tolerance", "1e-3", "--kernel", "rbf(3)"],
           "mnist-full": ["mnist", "--predict", "mnist(part=test)", "--method", "eigenpro", "--iterations", "20", "--precision", "f32", "--kernel", "rbf(5)"]}
# job: (description, target ratio, target share of the machine's GEMM speed, steps per round)
NEURAL = {
    "neural-1-32-10-256": ("NeuralEF step, d=1, h=32, k=10, B=256, f32", 5, None, 2000),
    "neural-784-256-16-512": ("NeuralEF step, d=784, h=256, k=16, B=512, f32", 1.3, 0.75, 30),
    "neural-64-128-32-1024": ("NeuralEF step, d=64, h=128, k=32, B=1024, f32", 1.3, None, 30),
}
# job: (description, the peers, target ratio to the fastest peer)
KERNELS = {
    "ntk-2000": ("NTK of 3 ReLU layers, 2000×784, f32", ["neural-tangents", "formula"], 2),
    "ntk-8000": ("NTK of 3 ReLU layers, 8000×784, f32", ["neural-tangents", "formula"], 3),
    "conv-8": ("NTK of 3 convolutions and GAP, 8 images 32×32×3, f32", ["neural-tangents"], 2),
    "conv-1000": ("NTK of 3 convolutions and GAP, 1000 images of CIFAR-10, f32", [], 2),
}
# job: (description, target ratio, kernels per round)
ENTK = {"entk-784-512-512-10-64": ("empirical NTK of 784-512-512-10, N=64, 10×10 outputs, f32", 1, 30)}
# job: (the method, the peer)
LAPLACE = {
    "laplace-last-layer": ("last layer in full", "laplace-torch 0.3"),
    "laplace-last-layer-kfac": ("last layer, KFAC", "laplace-torch 0.3"),
    "laplace-kfac": ("KFAC of all layers", "laplace-torch 0.3"),
    "laplace-diagonal": ("diagonal of all layers", "laplace-torch 0.3"),
    "laplace-ella": ("ELLA, 200 samples, 20 functions", "PyTorch, torch.func"),
}
LAPLACE_AIM = 3
# Rows of covertype to fit and to predict, from `$MERCER_DATA/tabular/covtype.data.gz`.
COVERTYPE = (40000, 10000)
ARRAYS = {"x8000x64": (8000, 64), "v8000x16": (8000, 16), "x5000x50": (5000, 50), "y5000x1": (5000, 1),
          "new100x50": (100, 50), "x20000x50": (20000, 50), "x50000x50": (50000, 50), "x100000x50": (100000, 50),
          "x100000x64": (100000, 64), "q1000x64": (1000, 64)}


def environment(folder, requirements):
    if not (folder / "bin/python").exists():
        venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", "-r", HERE / requirements], check=True)


def prepare(classic, neural, kernels, entk, laplace, graph):
    programs = ["-p", "mercer-bench"] + (["-p", "mercer-cli"] if set(classic) & set(PROGRAM) else [])
    features = ["--features", "mercer-bench/usearch"] if graph else []
    subprocess.run(["cargo", "build", "--release", "-q", *programs, *features], cwd=HERE.parent, check=True)
    DATA.mkdir(exist_ok=True)
    if neural or kernels or laplace or any(job.startswith("gp-") or "compiled" in ALSO.get(job, []) for job in classic):
        environment(VENV_NEURAL, "requirements-neural.txt")
    if kernels or entk:
        environment(VENV_KERNELS, "requirements-kernels.txt")
    if laplace and not (DATA / "laplace-x.npy").exists():
        subprocess.run([VENV_NEURAL / "bin/python", HERE / "laplace_peers.py", "prepare", DATA, "0"], check=True)
    if not classic:
        return
    environment(VENV, "requirements.txt")
    script = ("import numpy as np, sys; r = np.random.default_rng(0)\n"
              f"for name, shape in {ARRAYS!r}.items():\n"
              "    x = r.standard_normal(shape); x[: len(x) // 2] += 0.5; np.save(f'{sys.argv[1]}/{name}.npy', x)")
    if any(not (DATA / f"{name}.npy").exists() for name in ARRAYS):
        subprocess.run([VENV / "bin/python", "-c", script, DATA], check=True)
    if any(job.startswith("covertype") for job in classic) and not (DATA / "covertype-x.npy").exists():
        covertype(DATA)
    if {"covertype-full", "covertype-best"} & set(classic) and not (DATA / "covertype-test.npy").exists():
        whole_covertype(DATA)


def data_folder():
    return os.environ.get("MERCER_DATA", str(HERE.parent.parent / "shared/data"))


def covertype(folder):
    """Writes rows of covertype, drawn at random, with columns standardised by the rows to fit: x and class of each."""
    script = ("import gzip, sys, numpy as np; source, folder, n, m = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])\n"
              "data = np.loadtxt(gzip.open(source), delimiter=',')\n"
              "data = data[np.random.default_rng(0).choice(len(data), n + m, replace=False)]\n"
              "x, y = data[:, :-1], data[:, -1:]\n"
              "spread = x[:n].std(0); x = (x - x[:n].mean(0)) / np.where(spread > 0, spread, 1)\n"
              "for name, a in (('x', x[:n]), ('y', y[:n]), ('new', x[n:]), ('truth', y[n:])):\n"
              "    np.save(f'{folder}/covertype-{name}.npy', a)")
    source = pathlib.Path(data_folder()) / "tabular/covtype.data.gz"
    subprocess.run([VENV / "bin/python", "-c", script, source, folder, *map(str, COVERTYPE)], check=True)


def whole_covertype(folder):
    """Writes all rows of covertype as they are, the class last: nine tenths at random to fit, and the others."""
    script = ("import gzip, sys, numpy as np; source, folder = sys.argv[1:]\n"
              "data = np.loadtxt(gzip.open(source), delimiter=',', dtype=np.float32)\n"
              "data = data[np.random.default_rng(0).permutation(len(data))]; n = round(0.9 * len(data))\n"
              "np.save(f'{folder}/covertype-train.npy', data[:n]); np.save(f'{folder}/covertype-test.npy', data[n:])")
    subprocess.run([VENV / "bin/python", "-c", script, pathlib.Path(data_folder()) / "tabular/covtype.data.gz", folder], check=True)


def program(job):
    """Runs `mercer regress` on all rows of a set; the wall time and the peak memory are those of the process."""
    command = [HERE.parent / "target/release/mercer", "regress", *PROGRAM[job], "--json", "--quiet"]
    start = time.perf_counter()
    running = subprocess.Popen(command, stdout=subprocess.PIPE, env={"MERCER_DATA": data_folder(), **os.environ, "RAYON_NUM_THREADS": "2"})
    found = json.loads(running.stdout.read())
    _, status, used = os.wait4(running.pid, 0)
    assert status == 0, f"{job}: the program ended with {status}"
    return {"seconds": [time.perf_counter() - start], "peak_bytes": used.ru_maxrss * 1024, "accuracy": found["test"]["accuracy"],
            "rank": found["rank"], "alpha": found["alpha"], "kernel": found["kernel"]}


def one(side, job, repeats):
    if side == "mercer" and job in PROGRAM:
        return program(job)
    of_torch = job.startswith("gp-")
    command = {"peer": [(VENV_NEURAL if of_torch else VENV) / "bin/python", HERE / ("gp_peers.py" if of_torch else "peers.py"),
                        job, DATA],
               "keops": [VENV / "bin/python", HERE / "peers.py", f"{job}-keops", DATA],
               "numpy": [VENV / "bin/python", HERE / "peers.py", f"{job}-numpy", DATA],
               "compiled": [VENV_NEURAL / "bin/python", HERE / "peers.py", f"{job}-compiled", DATA],
               "torch": [VENV_NEURAL / "bin/python", HERE / "neural_peers.py", job.removeprefix("neural-")],
               "neural-tangents": [VENV_KERNELS / "bin/python", HERE / "kernel_peers.py", "neural-tangents", job],
               "formula": [VENV_NEURAL / "bin/python", HERE / "kernel_peers.py", "torch", job],
               "laplace": [VENV_NEURAL / "bin/python", HERE / "laplace_peers.py", job, DATA],
               "entk": [VENV_KERNELS / "bin/python", HERE / "entk_peers.py", job.removeprefix("entk-")],
               "mercer": [HERE.parent / "target/release/mercer-bench", job, DATA]}[side]
    threads = {name: "2" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    data = {"MERCER_DATA": data_folder()}
    output = subprocess.run([*command, str(repeats)], check=True, stdout=subprocess.PIPE,
                            env={**os.environ, **threads, **data}).stdout
    return json.loads(output.splitlines()[-1])


def numbers(check):
    """What a side has to compare: some numbers, or one."""
    return check if isinstance(check, list) else [check]


def compare(job, rounds):
    """Runs all sides alternately, `rounds` times, with one warm-up and one timed repeat each; what takes minutes, once."""
    sides = [*(["peer"] if JOBS[job][1] else []), *ALSO.get(job, []), "mercer"]
    runs = {side: [] for side in sides}
    for _ in range(1 if job in PROGRAM else rounds):
        for side in sides:
            runs[side].append(one(side, job, 1))
    result = {side: {**r[-1], "seconds": [s for run in r for s in run["seconds"]],
                     "peak_bytes": max(run["peak_bytes"] for run in r)} for side, r in runs.items()}
    if "peer" in result:
        median = {side: statistics.median(r["seconds"]) for side, r in result.items()}
        result["ratio"] = median["peer"] / median["mercer"]
        if ALSO.get(job):
            result["ratio_to_others"] = min(median[side] for side in ALSO[job]) / median["mercer"]
        if "eigenvalues" in result["peer"]:
            result["eigenvalue_error"] = eigenvalue_errors(job, result)
        for side in sides[:-1]:
            for ours, theirs in zip(*(numbers(result[s].get("check", [])) for s in ("mercer", side))):
                assert abs(ours / theirs - 1) < 1e-3, f"{job}: {side} has {theirs}, mercer {ours}"
    return result


def compare_steps(job, rounds, steps):
    """Runs PyTorch's and Mercer's step alternately, `rounds` times, and measures the machine's GEMM speed in between. Takes
    the median step of each round, and the median round."""
    runs = {"torch": [], "mercer": []}
    speeds = []
    for _ in range(rounds):
        gemm = one("mercer", "gemm-f32", 5)
        speeds.append(gemm["flop"] / min(gemm["seconds"]) / 1e9)
        for side, results in runs.items():
            results.append(one(side, job, steps))
    result = {side: {**r[-1], "seconds": [statistics.median(run["seconds"]) for run in r],
                     "fastest": min(min(run["seconds"]) for run in r),
                     "peak_bytes": max(run["peak_bytes"] for run in r)} for side, r in runs.items()}
    median = {side: statistics.median(r["seconds"]) for side, r in result.items()}
    gflops = result["mercer"]["flop"] / median["mercer"] / 1e9
    return {**result, "ratio": median["torch"] / median["mercer"], "gflops": gflops, "gemm_gflops": max(speeds),
            "share_of_gemm": gflops / max(speeds)}


def report_entk(jobs, rounds):
    """Runs neural-tangents' structured derivatives and Mercer alternately. Takes the median of each round, and the median
    round."""
    print(f"{'job':60} {'peer ms':>8} {'mercer ms':>9} {'ratio':>6} {'aim':>4}  {'contraction':>11} {'ratio':>6}")
    results = {}
    for job in jobs:
        what, aim, repeats = ENTK[job]
        runs = {"entk": [], "mercer": []}
        for _ in range(rounds):
            for side, all_runs in runs.items():
                all_runs.append(one(side, job, repeats))
        result = {side: {**r[-1], "seconds": [statistics.median(run["seconds"]) for run in r],
                         "fastest": min(min(run["seconds"]) for run in r)} for side, r in runs.items()}
        median = {side: statistics.median(r["seconds"]) for side, r in result.items()}
        contraction = min(run["others"]["jacobian_contraction"] for run in runs["entk"])
        results[job] = {**result, "ratio": median["entk"] / median["mercer"],
                        "ratio_to_contraction": contraction / median["mercer"]}
        print(f"{what:60} {1e3 * median['entk']:>8.1f} {1e3 * median['mercer']:>9.1f} "
              f"{results[job]['ratio']:>5.1f}× {aim:>4}  {contraction:>9.2f} s {results[job]['ratio_to_contraction']:>5.0f}×",
              flush=True)
    return results


def report_laplace(jobs, rounds):
    """Runs laplace-torch and Mercer alternately on the same rows and weights, with one warm-up and three timed repeats each. Takes the
    median of all fits and of all predictions; both must have the same NLL."""
    print(f"{'method':32} {'peer fit':>9} {'mercer':>8} {'ratio':>6}  {'predict':>8} {'mercer':>8} {'ratio':>6} {'aim':>4}  {'NLL':>7} {'mercer':>7}")
    results = {}
    for job in jobs:
        runs = {"laplace": [], "mercer": []}
        for _ in range(rounds):
            for side, all_runs in runs.items():
                all_runs.append(one(side, job, 3))
        result = {side: {**r[-1], **{part: [s for run in r for s in run[part]] for part in ("fit", "predict")},
                         "peak_bytes": max(run["peak_bytes"] for run in r)} for side, r in runs.items()}
        median = {(side, part): statistics.median(result[side][part]) for side in result for part in ("fit", "predict")}
        results[job] = {**result, **{f"{part}_ratio": median["laplace", part] / median["mercer", part] for part in ("fit", "predict")}}
        ms = lambda side, part: f"{1e3 * median[side, part]:.1f} ms"
        print(f"{LAPLACE[job][0]:32} {ms('laplace', 'fit'):>9} {ms('mercer', 'fit'):>8} {results[job]['fit_ratio']:>5.1f}×  "
              f"{ms('laplace', 'predict'):>8} {ms('mercer', 'predict'):>8} {results[job]['predict_ratio']:>5.1f}× {LAPLACE_AIM:>4}  "
              f"{result['laplace']['nll']:>7.4f} {result['mercer']['nll']:>7.4f}", flush=True)
        # ELLA draws its samples at random.
        within = 0.02 if job == "laplace-ella" else 1e-3
        assert abs(result["laplace"]["nll"] - result["mercer"]["nll"]) < within, f"{job}: the NLL differ"
    return results


def compare_kernels(job, rounds):
    """Runs all sides alternately, `rounds` times, with one timed repeat each. The ratio is to the fastest peer."""
    runs = {side: [] for side in [*KERNELS[job][1], "mercer"]}
    for _ in range(rounds):
        for side, results in runs.items():
            results.append(one(side, job, 1))
    result = {side: {**r[-1], "seconds": [s for run in r for s in run["seconds"]],
                     "peak_bytes": max(run["peak_bytes"] for run in r)} for side, r in runs.items()}
    median = {side: statistics.median(r["seconds"]) for side, r in result.items()}
    for side in KERNELS[job][1]:
        for ours, theirs in zip(result["mercer"]["check"], result[side]["check"]):
            assert abs(ours / theirs - 1) < 1e-3, f"{job}: {side} has {theirs}, mercer {ours}"
    return {**result, "ratio": min(median[side] for side in KERNELS[job][1]) / median["mercer"]}


def thousand_images(rounds):
    """Runs Mercer once. neural-tangents would take days: its time is estimated from 8 images in the same run, times the ratio
    of the numbers of pairs n(n+1)/2. This favours neural-tangents, because that ratio is below the ratio of n²."""
    pairs = lambda n: n * (n + 1) // 2
    eight = compare_kernels("conv-8", rounds)
    mercer = one("mercer", "conv-1000", 1)
    estimate = statistics.median(eight["neural-tangents"]["seconds"]) * pairs(1000) / pairs(8)
    return {"neural-tangents": {"seconds": [estimate], "estimated_from": eight["neural-tangents"],
                                "peak_bytes": eight["neural-tangents"]["peak_bytes"]},
            "mercer": mercer, "ratio": estimate / mercer["seconds"][0]}


def report_kernels(jobs, rounds):
    print(f"{'job':58} {'n.-tangents s':>13} {'torch s':>8} {'mercer s':>9} {'ratio':>6} {'aim':>4}  {'peers MiB':>12} {'mercer MiB':>10}")
    results = {}
    for job in jobs:
        what, peers, aim = KERNELS[job]
        results[job] = result = compare_kernels(job, rounds) if peers else thousand_images(rounds)
        seconds = lambda side: f"{statistics.median(result[side]['seconds']):.3f}" if side in result else "–"
        mib = lambda side: f"{result[side]['peak_bytes'] / 2**20:.0f}"
        print(f"{what:58} {seconds('neural-tangents'):>13} {seconds('formula'):>8} {seconds('mercer'):>9} {result['ratio']:>5.1f}× "
              f"{aim:>4}  {' / '.join(map(mib, peers or ['neural-tangents'])):>12} {mib('mercer'):>10}", flush=True)
        if not peers:
            print(f"{'':58} neural-tangents' seconds are estimated from 8 images")
    return results


def eigenvalue_errors(job, result):
    """Largest relative error of the ten eigenvalues of each side, relative to a converged f64 solution by ARPACK."""
    name = {"kpca-5000": "x5000x50", "kpca-20000": "x20000x50"}[job]
    truth = HERE / ".data" / f"truth-{name}.json"
    if not truth.exists():
        script = ("import json, sys, numpy as np, scipy.sparse.linalg as s; from sklearn.metrics.pairwise import rbf_kernel\n"
                  "x = np.load(sys.argv[1]); k = rbf_kernel(x, gamma=0.5 / 49)\n"
                  "m = k.mean(0); k -= m; k -= (m - m.mean())[:, None]\n"
                  "json.dump(sorted(s.eigsh(k, 10, tol=1e-12)[0].tolist(), reverse=True), open(sys.argv[2], 'w'))")
        subprocess.run([VENV / "bin/python", "-c", script, DATA / f"{name}.npy", truth], check=True)
    exact = json.loads(truth.read_text())
    error = lambda values: max(abs(v / e - 1) for v, e in zip(values, exact))
    return {side: error(result[side]["eigenvalues"]) for side in ("peer", "mercer")}


def report_classic(jobs, rounds):
    print(f"{'job':75} {'peer s':>8} {'others s':>12} {'mercer s':>9} {'ratio':>6} {'aim':>4}  {'peer MiB':>8} {'mercer MiB':>10}")
    results = {}
    for job in jobs:
        what, _, aim = JOBS[job]
        results[job] = result = compare(job, rounds)
        mib = lambda side: f"{result[side]['peak_bytes'] / 2**20:.0f}" if side in result else "–"
        seconds = lambda side: f"{statistics.median(result[side]['seconds']):.3f}" if side in result else "–"
        ratio = f"{result['ratio']:.1f}×" if "ratio" in result else "–"
        others = " ".join(map(seconds, ALSO.get(job, []))) or "–"
        print(f"{what:75} {seconds('peer'):>8} {others:>12} {seconds('mercer'):>9} {ratio:>6} {aim or '–':>4}  "
              f"{mib('peer'):>8} {mib('mercer'):>10}", flush=True)
        if "accuracy" in result["mercer"]:
            print(f"{'':55} accuracy: " + ", ".join(f"{side} {100 * result[side]['accuracy']:.2f} %" for side in ("peer", "mercer") if side in result))
        if "eigenvalue_error" in result:
            e = result["eigenvalue_error"]
            print(f"{'':55} largest eigenvalue error: peer {e['peer']:.1e}, mercer {e['mercer']:.1e}")
    return results


def report_neural(jobs, rounds):
    print(f"{'job':45} {'torch ms':>8} {'mercer ms':>9} {'ratio':>6} {'aim':>4} {'GFLOP/s':>8} {'of GEMM':>8} {'aim':>5}")
    results = {}
    for job in jobs:
        what, aim, share_aim, steps = NEURAL[job]
        results[job] = result = compare_steps(job, rounds, steps)
        ms = lambda side: f"{1e3 * statistics.median(result[side]['seconds']):.2f}"
        share_aim = f"{share_aim:.0%}" if share_aim else "–"
        print(f"{what:45} {ms('torch'):>8} {ms('mercer'):>9} {result['ratio']:>5.1f}× {aim:>4} {result['gflops']:>8.0f} "
              f"{result['share_of_gemm']:>8.0%} {share_aim:>5}", flush=True)
    return results


def report_graph(job, rounds):
    """Recall of the ten nearest, and how much faster than the exact search: all queries at once on two threads, and one by one."""
    result = one("mercer", job, rounds)
    exact = statistics.median(result["seconds"])
    print(f"{result['items']} codes of 64 coordinates, cosine, 1000 queries: exact {exact:.2f} s at once, {1e3 * result['single_seconds']:.2f} ms a single one")
    for graph in result["graphs"]:
        graph["ratio"], graph["single_ratio"] = exact / statistics.median(graph["seconds"]), result["single_seconds"] / graph["single_seconds"]
        print(f"graph of {graph['rounding']}, {graph['candidates']} candidates: recall@10 {graph['recall']:.4f} (aim .99), {graph['ratio']:.0f}× at once, {graph['single_ratio']:.0f}× one by one (aim 20), "
              f"built in {graph['build_seconds']:.0f} s, {graph['bytes'] / 2**20:.0f} MiB")
    return {job: result}


def store(name, facts, results, is_partial):
    """Writes the results; a partial run replaces only its own jobs."""
    out = HERE / "results" / name
    out.parent.mkdir(exist_ok=True)
    stored = json.loads(out.read_text())["jobs"] if out.exists() and is_partial else {}
    out.write_text(json.dumps({**facts, "jobs": {**stored, **results}}, indent=1, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", choices=[[], *JOBS, *NEURAL, *KERNELS, *ENTK, *LAPLACE], help="default: the classic ones")
    parser.add_argument("--neural", action="store_true", help="the neural jobs, beside PyTorch")
    parser.add_argument("--kernels", action="store_true", help="infinite networks, beside neural-tangents and PyTorch")
    parser.add_argument("--laplace", action="store_true", help="linearised Laplace, beside laplace-torch")
    parser.add_argument("--graph", action="store_true", help="a graph of neighbours beside the exact search")
    parser.add_argument("--graph-items", type=int, default=1_000_000, help="its items (default a million)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of each job (default 3)")
    options = parser.parse_args()
    classic = [job for job in options.jobs if job in JOBS] or (
        [] if options.jobs or options.neural or options.kernels or options.laplace or options.graph else list(JOBS))
    neural = [job for job in options.jobs if job in NEURAL] or (list(NEURAL) if options.neural else [])
    entk = [job for job in options.jobs if job in ENTK]
    laplace = [job for job in options.jobs if job in LAPLACE] or (list(LAPLACE) if options.laplace else [])
    kernels = [job for job in options.jobs if job in KERNELS] or ([job for job in KERNELS if KERNELS[job][1]] if options.kernels else [])
    prepare(classic, neural, kernels, entk, laplace, options.graph)
    load = os.getloadavg()[0]
    peaks = {p: one("mercer", f"gemm-{p}", 5) for p in ("f32", "f64")}
    peak = {p: r["flop"] / min(r["seconds"]) / 1e9 for p, r in peaks.items()}
    facts = {"load_before": load, "cores": os.cpu_count(), "gemm_gflops": peak}
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {load:.2f} before the run; "
          f"GEMM 2048³: {peak['f32']:.0f} GFLOP/s in f32, {peak['f64']:.0f} in f64\n")
    if classic:
        store("classic.json", facts, report_classic(classic, options.repeats), bool(options.jobs))
    if neural:
        store("neural.json", facts, report_neural(neural, options.repeats), bool(options.jobs))
    if kernels:
        store("kernels.json", facts, report_kernels(kernels, options.repeats), bool(options.jobs))
    if laplace:
        store("laplace.json", facts, report_laplace(laplace, options.repeats), bool(options.jobs))
    if options.graph:
        store("graph.json", facts, report_graph(f"graph-{options.graph_items}", options.repeats), True)
    if entk:
        store("entk.json", facts, report_entk(entk, options.repeats), bool(options.jobs))


if __name__ == "__main__":
    sys.exit(main())

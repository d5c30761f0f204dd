#!/usr/bin/env python3
"""Mercer and scikit-learn called from Python, in the same process and run, on the sizes of `bench/run.py`.

`python3 bench/python_peers.py [--out FILE]`, in an environment that has the wheel and scikit-learn, on a machine without other load.
Each job runs once for warm-up, then the two take turns; the seconds are the least of the repeats, and both results are compared. The last
job is the time of a call on a few points, where nothing but the way through Python counts.
"""

import argparse
import json
import os
import time

import numpy as np
import sklearn
from sklearn.decomposition import KernelPCA
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import threadpool_limits

import mercer

REPEATS = 3
LENGTHSCALE = 7
GAMMA = 0.5 / LENGTHSCALE**2


def points(n, dtype=np.float64):
    return np.random.default_rng(0).normal(size=(n, 50)).astype(dtype)


def kernel_error(f, x):
    """Root mean square of f f' − K over the first 1000 points."""
    f, x = f[:1000].astype(np.float64), x[:1000].astype(np.float64)
    return float(np.sqrt(np.mean((f @ f.T - rbf_kernel(x, gamma=GAMMA)) ** 2)))


def kpca(n, dtype):
    x = points(n, dtype)
    precision = "f32" if dtype == np.float32 else "f64"
    # The tolerance of `bench/run.py`: the eigenvalues are still closer than the peer's.
    own = mercer.KernelPCA(10, kernel="rbf", gamma=GAMMA, tol=1e-2, precision=precision)
    peer = KernelPCA(10, kernel="rbf", gamma=GAMMA, eigen_solver="randomized", random_state=0)
    return own, peer, lambda e: e.fit(x), lambda e: {"eigenvalues": e.eigenvalues_.tolist()}


def features(own, peer, dtype):
    x = points(100_000, dtype)
    return own, peer, lambda e: e.fit_transform(x), lambda f: {"kernel_error": kernel_error(f, x)}


def nystrom(dtype):
    parameters = {"kernel": "rbf", "gamma": GAMMA, "n_components": 500, "random_state": 0}
    return features(mercer.Nystroem(**parameters), Nystroem(**parameters), dtype)


def rff(dtype):
    parameters = {"gamma": GAMMA, "n_components": 1000, "random_state": 0}
    return features(mercer.RBFSampler(sampling="plain", **parameters), RBFSampler(**parameters), dtype)


def ridge():
    x, new = points(5000), points(5100)[5000:]
    y = np.sin(x[:, 0])
    parameters = {"alpha": 0.1, "kernel": "rbf", "gamma": GAMMA}
    own, peer = mercer.KernelRidge(solver="direct", **parameters), KernelRidge(**parameters)
    return own, peer, lambda e: e.fit(x, y), lambda e: {"predictions": e.predict(new)[:3].tolist()}


JOBS = {
    "kpca-5000": lambda: kpca(5000, np.float64),
    "nystrom-f32": lambda: nystrom(np.float32),
    "nystrom-f64": lambda: nystrom(np.float64),
    "rff-f32": lambda: rff(np.float32),
    "rff-f64": lambda: rff(np.float64),
    "ridge-5000": ridge,
    "kpca-20000": lambda: kpca(20_000, np.float32),
}


def measure(own, peer, work, describe):
    """Seconds of both, in turns, and what they found."""
    seconds, found = {"mercer": [], "scikit-learn": []}, {}
    for repeat in range(REPEATS + 1):
        for name, estimator in (("mercer", own), ("scikit-learn", peer)):
            start = time.perf_counter()
            result = work(estimator)
            if repeat:
                seconds[name].append(time.perf_counter() - start)
            found[name] = describe(result)
            del result
    ratio = min(seconds["scikit-learn"]) / min(seconds["mercer"])
    return {"seconds": seconds, "ratio": ratio, "found": found}


def overhead():
    """Microseconds of a call on few points: the least mean of ten times a thousand calls."""
    x, calls = np.random.default_rng(0).normal(size=(2, 2)), 1000
    kernel = mercer.kernel("rbf(1)")
    spectrum = mercer.Spectrum(n_components=2, kernel="rbf(1)", method="exact").fit(np.random.default_rng(0).normal(size=(40, 2)))
    operator = mercer.operator("rbf(1)", x)
    v = np.ones(2)
    jobs = {
        "kernel(X)": lambda: kernel(x),
        "operator @ v": lambda: operator @ v,
        "handle.transform(X)": lambda: spectrum.model_.transform(x),
        "Spectrum.transform(X), with scikit-learn's checks": lambda: spectrum.transform(x),
    }
    found = {}
    for name, job in jobs.items():
        means = []
        for _ in range(10):
            start = time.perf_counter()
            for _ in range(calls):
                job()
            means.append((time.perf_counter() - start) / calls * 1e6)
        found[name] = min(means)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out")
    parser.add_argument("jobs", nargs="*", default=list(JOBS))
    arguments = parser.parse_args()
    results = {"load_before": os.getloadavg()[0], "scikit-learn": sklearn.__version__, "mercer": mercer.__version__, "jobs": {}}
    with threadpool_limits(os.cpu_count()):
        results["microseconds_of_a_call"] = overhead()
        print(json.dumps(results["microseconds_of_a_call"]), flush=True)
        for name in arguments.jobs:
            results["jobs"][name] = found = measure(*JOBS[name]())
            least = {who: min(seconds) for who, seconds in found["seconds"].items()}
            print(f"{name}: {least['mercer']:.3f} s, scikit-learn {least['scikit-learn']:.3f} s, ratio {found['ratio']:.2f}", found["found"], flush=True)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(results, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()

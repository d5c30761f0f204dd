"""Gaussian processes on published UCI splits, beside scikit-learn's: `gp_uci.py [PROGRAM] [SPLITS] [TABLE…]`, with the data of MERCER_DATA.

Both sides: an RBF kernel with a lengthscale for each column, amplitude and noise by the marginal likelihood, columns and targets standardised by the
training rows, one start by default and one at random. scikit-learn starts at lengthscales 1 and draws within its default bounds (1e-5 to 1e5). NLL is
the mean of −log of the predicted normal density, in the units of the target. Prints one line a table; without PROGRAM, scikit-learn alone."""
import json
import os
import pathlib
import subprocess
import sys
import time
import warnings

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

TABLES = ["yacht", "energy", "boston", "concrete", "wine"]
RESTARTS = 1


def split(folder, name, number):
    rows = np.loadtxt(folder / f"{name}.csv", delimiter=",")
    test = np.zeros(len(rows), bool)
    test[[int(i) for i in (folder / "splits" / f"{name}.test.txt").read_text().splitlines()[number].split()]] = True
    x, y = rows[:, :-1], rows[:, -1]
    mean, deviation = x[~test].mean(0), x[~test].std(0)
    x = (x - mean) / np.where(deviation > 0, deviation, 1)
    return x[~test], y[~test], x[test], y[test]


def peer(folder, name, number):
    x, y, new, truth = split(folder, name, number)
    kernel = ConstantKernel() * RBF(np.ones(x.shape[1])) + WhiteKernel()
    process = GaussianProcessRegressor(kernel, n_restarts_optimizer=RESTARTS, normalize_y=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        process.fit(x, y)
    mean, deviation = process.predict(new, return_std=True)
    nll = 0.5 * np.log(2 * np.pi * deviation**2) + 0.5 * ((truth - mean) / deviation) ** 2
    return np.sqrt(np.mean((truth - mean) ** 2)), nll.mean()


def ours(program, name, number):
    part = lambda part: f"{name}(split={number + 1}, part={part})"
    command = [program, "gp", part("train"), "--kernel", "rbf(lengthscale=ard)", "--restarts", str(RESTARTS), "--regress"]
    said = subprocess.run(command + ["--predict", part("test"), "--json", "--quiet"], check=True, capture_output=True, text=True)
    report = json.loads(said.stdout)["test"]
    return report["rmse"], report["nll"]


def main(program=None, splits=3, *tables):
    folder = pathlib.Path(os.environ["MERCER_DATA"]) / "uci"
    sides = {"scikit-learn": lambda *at: peer(folder, *at)}
    if program:
        sides["mercer"] = lambda *at: ours(program, *at)
    for name in tables or TABLES:
        for side, work in sides.items():
            start = time.perf_counter()
            scores = np.array([work(name, number) for number in range(int(splits))])
            (rmse, nll), error = scores.mean(0), scores.std(0, ddof=1)[1] / np.sqrt(len(scores))
            seconds = (time.perf_counter() - start) / len(scores)
            print(f"{name:10} {side:13} RMSE {rmse:.3f}  NLL {nll:.3f} ± {error:.3f}  {seconds:.1f} s a split", flush=True)


main(*sys.argv[1:])

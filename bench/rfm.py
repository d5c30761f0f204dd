"""Recursive feature machines beside the plain kernel and peers, on the UCI sets with their splits.

    python3 bench/rfm.py MERCER UCI_FOLDER OUT.json [--sets a,b] [--splits N] [--peers]

For each split: `mercer regress` with one kernel, plain and by --method rfm, both with lengthscale=auto and α by leave-one-out. With --peers,
also scikit-learn's histogram gradient boosting and xRFM, each the best of the same number of random settings on a fifth of the training rows,
then fitted to all of them. RMSE on the test rows, in units of the target's standard deviation over the training rows.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

TRIALS = 20  # Settings that every peer may try.


def mercer(program, train, test, method, kernel):
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, rows in [("train", train), ("test", test)]:
            paths.append(os.path.join(folder, f"{name}.csv"))
            names = ",".join([f"x{j}" for j in range(rows.shape[1] - 1)] + ["y"])
            np.savetxt(paths[-1], rows, delimiter=",", fmt="%.17g", header=names, comments="")
        command = [program, "regress", paths[0], "--target", "y", "--regress", "--predict", paths[1], "--kernel", kernel]
        start = time.perf_counter()
        done = subprocess.run(command + ["--method", method, "--json", "--quiet"], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        found = json.loads(done.stdout)
        chosen = found.get("metric")
        return {
            "rmse": found["test"]["rmse"],
            "seconds": time.perf_counter() - start,
            "metric": chosen and [chosen["form"], chosen["rounds"]],
        }


def tuned(settings, fit, x, y, rng):
    """The settings with the least error on a fifth of the rows, and the model on all of them."""
    order = rng.permutation(len(x))
    cut = len(x) // 5
    out, rest = order[:cut], order[cut:]
    errors = [np.mean((fit(s, x[rest], y[rest], x[out], y[out])(x[out]) - y[out]) ** 2) for s in settings]
    return settings[int(np.argmin(errors))], out, rest


def boosting(x, y, new, rng):
    from sklearn.ensemble import HistGradientBoostingRegressor

    def fit(s, x, y, *_):
        return HistGradientBoostingRegressor(**s, random_state=0).fit(x, y).predict

    settings = [
        {
            "learning_rate": float(10 ** rng.uniform(-2, -0.3)),
            "max_iter": int(rng.integers(50, 800)),
            "max_leaf_nodes": int(rng.integers(4, 64)),
            "min_samples_leaf": int(rng.integers(2, 40)),
            "l2_regularization": float(10 ** rng.uniform(-3, 1)),
        }
        for _ in range(TRIALS)
    ]
    best, _, _ = tuned(settings, fit, x, y, rng)
    return fit(best, x, y)(new)


def xrfm(x, y, new, rng):
    """xRFM needs a validation set: a fifth of the rows, which it does not fit."""
    import torch
    from xrfm import xRFM

    def fit(s, x, y, x_val, y_val):
        params = {
            "model": {"kernel": s["kernel"], "bandwidth": s["bandwidth"], "exponent": s["exponent"], "diag": s["diag"],
                      "bandwidth_mode": "constant"},
            "fit": {"reg": s["reg"], "iters": 5, "verbose": False, "early_stop_rfm": True},
        }
        model = xRFM(rfm_params=params, device=torch.device("cpu"), tuning_metric="mse")
        tensor = lambda a: torch.as_tensor(a, dtype=torch.float32)
        model.fit(tensor(x), tensor(y)[:, None], tensor(x_val), tensor(y_val)[:, None])
        return lambda new: np.asarray(model.predict(tensor(new))).ravel()

    settings = [
        {
            "kernel": str(rng.choice(["l2", "l1"])),
            "bandwidth": float(10 ** rng.uniform(0, 2)),
            "exponent": float(rng.uniform(0.7, 1.4)),
            "diag": bool(rng.integers(0, 2)),
            "reg": float(10 ** rng.uniform(-6, 1)),
        }
        for _ in range(TRIALS)
    ]
    for s in settings:
        s["diag"] = s["diag"] or s["kernel"] == "l1"
        s["exponent"] = min(s["exponent"], 1.0) if s["kernel"] == "l1" else s["exponent"]
    best, out, rest = tuned(settings, fit, x, y, rng)
    return fit(best, x[rest], y[rest], x[out], y[out])(new)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mercer")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", default="yacht,energy,concrete,boston,wine,kin8nm,power-plant,naval")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--kernels", default="matern52(lengthscale=auto)")
    parser.add_argument("--rows", type=int, default=10**9, help="training rows at most")
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    results = json.loads(options.out.read_text()) if options.out.exists() else []
    for name in options.sets.split(","):
        data = np.loadtxt(options.folder / f"{name}.csv", delimiter=",")
        splits = (options.folder / "splits" / f"{name}.test.txt").read_text().strip().split("\n")
        for split in range(min(options.splits, len(splits))):
            test = np.array(splits[split].split(), dtype=int)
            train = np.setdiff1d(np.arange(len(data)), test)[: options.rows]
            spread = data[train, -1].std()
            jobs = {}
            for kernel in options.kernels.split(";"):
                jobs[f"plain {kernel}"] = lambda k=kernel: mercer(options.mercer, data[train], data[test], "auto", k)
                jobs[f"rfm {kernel}"] = lambda k=kernel: mercer(options.mercer, data[train], data[test], "rfm", k)
            if options.peers:
                x, y = data[train, :-1], data[train, -1]
                mean, scale = x.mean(axis=0), np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
                for peer in (boosting, xrfm):

                    def job(peer=peer):
                        start = time.perf_counter()
                        rng = np.random.default_rng(split)
                        standard = (y - y.mean()) / spread
                        found = peer((x - mean) / scale, standard, (data[test, :-1] - mean) / scale, rng)
                        off = y.mean() + spread * found - data[test, -1]
                        return {"rmse": float(np.sqrt(np.mean(off**2))), "seconds": time.perf_counter() - start}

                    jobs[peer.__name__] = job
            for what, job in jobs.items():
                if any((r["set"], r["split"], r["what"]) == (name, split, what) for r in results):
                    continue
                try:
                    found = job()
                except Exception as error:  # A peer that fails is reported as such.
                    found = {"error": str(error)[:200]}
                if "rmse" in found:
                    found["nrmse"] = found["rmse"] / spread
                results.append({"set": name, "split": split, "what": what, "n": len(train), **found})
                print(json.dumps(results[-1]), flush=True)
                options.out.write_text(json.dumps(results, indent=1) + "\n")


main()

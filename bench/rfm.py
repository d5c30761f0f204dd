"""Recursive feature machines beside the plain kernel and peers, on tables with their splits.

    python3 bench/rfm.py MERCER DATA_FOLDER [--sets a,b] [--splits N] [--rows N] [--trials N] [--sides a,b] [--out bench/results/rfm.json]

The sets are those of DATA_FOLDER/uci (rows of each split in a file), of DATA_FOLDER/tabular/uci_gp (a mask of test rows for each split), and
flights, with a tenth of its rows drawn at random to test on. All sides see the same training rows, at most --rows of them, and the same test rows, at
most 5000, drawn by the number of the split.

For each split: `mercer regress` with one kernel, plain and by --method rfm, both with lengthscale=auto and α by leave-one-out; and
scikit-learn's histogram gradient boosting and xRFM, each the best of the same number of random settings on a fifth of the training rows,
then fitted to all of them (xRFM keeps the fifth, which it needs to stop). Mercer has no budget of its own: it compares eleven metrics, each with three
lengthscales and every α. RMSE on the test rows, and the same in units of the target's standard deviation over the training rows. A run goes on where
the file of results ends.
"""
import argparse
import gzip
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

MOST_TEST = 5000
UCI_GP = ["bike", "elevators", "keggdirected", "keggundirected", "kin40k", "pol", "pumadyn32nm"]
FLIGHTS = {"file": "tabular/flights_delay.csv.gz", "categories": ["day_of_week", "month"]}


def table(folder, name):
    """Columns, the target last, their names, which of them are categories, and the test rows of a split as a function of its number."""
    if name == "flights":
        with gzip.open(folder / FLIGHTS["file"], "rt") as file:
            names = file.readline().strip().split(",")
            data = np.loadtxt(file, delimiter=",")
        test = lambda split: np.random.default_rng(split).permutation(len(data))[: len(data) // 10]
        return data, names, [names.index(c) for c in FLIGHTS["categories"]], test
    if name in UCI_GP:
        read = lambda part: np.loadtxt(folder / f"tabular/uci_gp/{name}.{part}.csv.gz", delimiter=",")
        data, mask = read("data"), read("test_mask")
        return data, plain_names(data), [], lambda split: np.flatnonzero(mask[:, split])
    data = np.loadtxt(folder / f"uci/{name}.csv", delimiter=",")
    splits = (folder / f"uci/splits/{name}.test.txt").read_text().strip().split("\n")
    return data, plain_names(data), [], lambda split: np.array(splits[split].split(), dtype=int)


def plain_names(data):
    return [f"x{j}" for j in range(data.shape[1] - 1)] + ["y"]


def drawn(rows, most, split):
    """At most so many of the rows, by the number of the split."""
    return rows if len(rows) <= most else np.sort(np.random.default_rng(1000 + split).choice(rows, most, replace=False))


def mercer(program, parts, names, categories, method, kernel):
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, rows in zip(("train", "test"), parts):
            paths.append(os.path.join(folder, f"{name}.csv"))
            np.savetxt(paths[-1], rows, delimiter=",", fmt="%.10g", header=",".join(names), comments="")
        command = [program, "regress", paths[0], "--target", names[-1], "--regress", "--predict", paths[1], "--kernel", kernel]
        command += ["--categories", ",".join(names[c] for c in categories)] if categories else []
        start = time.perf_counter()
        done = subprocess.run(command + ["--method", method, "--json", "--quiet"], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr}")
        found = json.loads(done.stdout)
        chosen = found.get("metric")
        return {
            "rmse": found["test"]["rmse"],
            "seconds": time.perf_counter() - start,
            "kernel": found["kernel"][:200],
            "metric": chosen and [chosen["form"], chosen["rounds"]],
        }


def features(train, new, categories):
    """Standardised columns, one for each level of a category, as Mercer makes them."""
    columns = []
    for j in range(train.shape[1] - 1):
        values = np.unique(train[:, j]) if j in categories else [None]
        for value in values:
            both = [(part[:, j] == value).astype(float) if value is not None else part[:, j] for part in (train, new)]
            spread = both[0].std()
            columns.append([(part - both[0].mean()) / (spread if spread > 0 else 1) for part in both])
    return [np.column_stack(part) for part in zip(*columns)]


def tuned(settings, fit, x, y, rng):
    """The settings with the least error on a fifth of the rows, and the model on all of them."""
    order = rng.permutation(len(x))
    cut = len(x) // 5
    out, rest = order[:cut], order[cut:]
    errors = [np.mean((fit(s, x[rest], y[rest], x[out], y[out])(x[out]) - y[out]) ** 2) for s in settings]
    return settings[int(np.argmin(errors))], out, rest


def boosting(train, y, new, categories, trials, rng):
    """Trees need no scaling, and take categories as they are."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    x, new = train[:, :-1], new[:, :-1]

    def fit(s, x, y, *_):
        return HistGradientBoostingRegressor(**s, categorical_features=categories or None, random_state=0).fit(x, y).predict

    settings = [
        {
            "learning_rate": float(10 ** rng.uniform(-2, -0.3)),
            "max_iter": int(rng.integers(50, 800)),
            "max_leaf_nodes": int(rng.integers(4, 64)),
            "min_samples_leaf": int(rng.integers(2, 40)),
            "l2_regularization": float(10 ** rng.uniform(-3, 1)),
        }
        for _ in range(trials)
    ]
    best, _, _ = tuned(settings, fit, x, y, rng)
    return fit(best, x, y)(new)


def xrfm(train, y, new, categories, trials, rng):
    """xRFM needs a validation set: a fifth of the rows, which it does not fit."""
    import torch
    from xrfm import xRFM

    x, new = features(train, new, categories)

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
        for _ in range(trials)
    ]
    for s in settings:
        s["diag"] = s["diag"] or s["kernel"] == "l1"
        s["exponent"] = min(s["exponent"], 1.0) if s["kernel"] == "l1" else s["exponent"]
    best, out, rest = tuned(settings, fit, x, y, rng)
    return fit(best, x[rest], y[rest], x[out], y[out])(new)


def peer_job(peer, train, test, categories, trials, split):
    start = time.perf_counter()
    y, truth = train[:, -1], test[:, -1]
    spread = y.std()
    found = peer(train, (y - y.mean()) / spread, test, categories, trials, np.random.default_rng(split))
    off = y.mean() + spread * np.asarray(found) - truth
    return {"rmse": float(np.sqrt(np.mean(off**2))), "seconds": time.perf_counter() - start, "trials": trials}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mercer")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/rfm.json")
    parser.add_argument("--sets", default=",".join([*UCI_GP, "flights"]))
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--kernel", default="matern52(lengthscale=auto)")
    parser.add_argument("--rows", type=int, default=10_000, help="training rows at most")
    parser.add_argument("--trials", type=int, default=20, help="settings that every peer may try")
    parser.add_argument("--sides", default="plain,rfm,boosting,xrfm")
    options = parser.parse_args()
    results = json.loads(options.out.read_text()) if options.out.exists() else []
    for name in options.sets.split(","):
        data, names, categories, test_rows = table(options.folder, name)
        for split in range(options.splits):
            test = test_rows(split)
            train = drawn(np.setdiff1d(np.arange(len(data)), test), options.rows, split)
            parts = data[train], data[drawn(test, MOST_TEST, split)]
            jobs = {}
            for what, method in (("plain", "auto"), ("rfm", "rfm")):
                jobs[what] = lambda method=method: mercer(options.mercer, parts, names, categories, method, options.kernel)
            for peer in (boosting, xrfm):
                jobs[peer.__name__] = lambda peer=peer: peer_job(peer, *parts, categories, options.trials, split)
            for what, job in ((side, jobs[side]) for side in options.sides.split(",")):
                key = {"set": name, "split": split, "what": what, "n": len(train), "test": len(parts[1])}
                if any(all(r[k] == v for k, v in key.items()) for r in results):
                    continue
                try:
                    found = job()
                except Exception as error:  # A side that fails is reported as such.
                    found = {"error": str(error)[:300]}
                if "rmse" in found:
                    found["nrmse"] = found["rmse"] / data[train, -1].std()
                results.append({**key, "load": os.getloadavg()[0], **found})
                print(json.dumps(results[-1]), flush=True)
                options.out.write_text(json.dumps(results, indent=1) + "\n")


main()

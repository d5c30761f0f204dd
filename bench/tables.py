#!/usr/bin/env python3
"""Writes the tables of docs/src/benchmarks.md from bench/results/*.json: `python3 bench/tables.py`, or with `--check` tells whether
they are up to date. A row is one job beside one peer; a peer that has not been measured yet has no row or no figure."""
import json
import pathlib
import statistics
import sys

from run import ENTK, JOBS, KERNELS, LAPLACE, NEURAL

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "gpu"))
from jobs import JOBS as GPU_JOBS

PAGE = HERE.parent / "docs/src/benchmarks.md"

CPU_HEAD = ["job", "peer", "peer", "Mercer", "ratio", "peak memory, peer / Mercer"]
GPU_HEAD = ["job", "PyTorch eager", "torch.compile", "CUDA graph", "KeOps", "Mercer", "ratio to the fastest"]
TABLES_HEAD = ["set", "rows to fit / to test", "plain kernel", "`rfm`", "its metric, rounds", "gradient boosting", "xRFM 0.4.5"]
PYTHON_HEAD = ["job", "scikit-learn", "Mercer", "ratio"]


def results(name):
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text())["jobs"] if path.exists() else {}


def time(seconds):
    """Two or three digits, in the unit that suits."""
    if seconds is None:
        return "–"
    unit, size = ("days", 86400) if seconds >= 2 * 86400 else ("s", 1) if seconds >= 0.0995 else ("ms", 1e-3)
    return f"{digits(seconds / size)} {unit}"


def digits(value):
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def ratio(theirs, ours):
    if not theirs or not ours:
        return ""
    value = theirs / ours
    return f"{value:.0f}×" if value >= 9.95 else f"{value:.1f}×"


def seconds(side):
    return statistics.median(side["seconds"])


def memory(*sides):
    return " / ".join(f"{side['peak_bytes'] / 2**20:.0f}" if side and side.get("peak_bytes") else "–" for side in sides) + " MiB"


def power(value):
    return f"{value:.0e}".replace("e-0", "e-")


def row(what, peer, theirs, ours, notes=("", ""), peer_seconds=None):
    """One line of the table of the CPU; `theirs` is None where there is no peer."""
    their_seconds = peer_seconds or (seconds(theirs) if theirs else None)
    return [what, peer, time(their_seconds) + notes[0], time(seconds(ours)) + notes[1], ratio(their_seconds, seconds(ours)),
            memory(theirs, ours)]


def scored(side):
    loss = f", log loss {side['log_loss']:.3f}" if side.get("log_loss") else ""
    return f"{100 * side['accuracy']:.1f} %{loss}"


def cpu_rows():
    classic, neural, kernels, entk, laplace = map(results, ("classic", "neural", "kernels", "entk", "laplace"))
    for job, (what, peer, _) in JOBS.items():
        if job not in classic:
            continue
        result = classic[job]
        errors = result.get("eigenvalue_error")
        notes = tuple(f"; eigenvalue error {power(errors[side])}" for side in ("peer", "mercer")) if errors else ("", "")
        if "accuracy" in result["mercer"]:
            notes = tuple(f"; {scored(result[side])}" if side in result else "" for side in ("peer", "mercer"))
        yield row(what, peer or "–", result.get("peer"), result["mercer"], notes)
        if "keops" in result:
            yield row(what, f"KeOps {result['keops']['keops']}", result["keops"], result["mercer"])
        if "compiled" in result:
            yield row(what, f"torch.compile {result['compiled']['torch'].split('+')[0]}, K stored", result["compiled"], result["mercer"])
        if "numpy" in result:
            yield row(what, "numpy, product and argpartition", result["numpy"], result["mercer"])
    for job, (what, *_) in NEURAL.items():
        if job in neural:
            torch, ours = neural[job]["torch"], neural[job]["mercer"]
            name = f"PyTorch {'.'.join(torch['torch'].split('.')[:2])}, {torch['first_layer']}"
            yield row(what, name, torch, ours, ("", f", {100 * neural[job]['share_of_gemm']:.0f} % of GEMM speed"))
    for job, (what, *_) in KERNELS.items():
        for side, name in (("neural-tangents", "neural-tangents 0.6.5"), ("formula", "PyTorch, the recursion in place")):
            theirs = kernels.get(job, {}).get(side)
            if theirs:
                estimated = "estimated_from" in theirs
                line = row(what, name + (", estimated from 8 images, not run" if estimated else ""), theirs, kernels[job]["mercer"])
                yield line if not estimated else line[:4] + ["", memory(None, kernels[job]["mercer"])]
    for job, (what, *_) in ENTK.items():
        if job in entk:
            theirs, ours = entk[job]["entk"], entk[job]["mercer"]
            yield row(what, "neural-tangents 0.6.5, structured derivatives", theirs, ours)
            contraction = entk[job]["ratio_to_contraction"] * seconds(ours)
            yield row(what, "neural-tangents 0.6.5, Jacobian contraction", theirs, ours, peer_seconds=contraction)
    for job, (what, peer) in LAPLACE.items():
        for part, task in (("fit", "fit to 2000 rows"), ("predict", "prediction of 500 rows")):
            if job in laplace:
                theirs, ours = ({**laplace[job][side], "seconds": laplace[job][side][part]} for side in ("laplace", "mercer"))
                notes = tuple(f"; NLL {side['nll']:.4f}" if part == "predict" else "" for side in (theirs, ours))
                yield row(f"linearised Laplace of 64-64-64-10, {what}: {task}", peer, theirs, ours, notes)


def gpu_rows():
    def fastest(peers, chosen):
        times = [statistics.median(result["ms"]) / 1e3 for name, result in peers.items() if "ms" in result and chosen(name)]
        return min(times, default=None)

    measured = results("gpu")
    for job in [job for job in GPU_JOBS if job in measured and not job.startswith("certificate")]:
        ours, peers = measured[job]["mercer"], measured[job]["peers"]
        kinds = [lambda name: not name.endswith(("compiled", "graph", "keops")), lambda name: name.endswith("compiled"),
                 lambda name: name.endswith("graph"), lambda name: name.endswith("keops")]
        ours_seconds = statistics.median(ours["ms"]) / 1e3
        notes = f" (error {power(ours['error'])})" if "error" in ours else ""
        notes += f" (largest residual {power(ours['worst_residual'])})" if "worst_residual" in ours else ""
        if job.startswith("million"):
            notes += f", {ours['device_bytes'] / 1e9:.1f} GB"
        cells = [time(fastest(peers, kind)) for kind in kinds]
        # A peer that could not do the job has no time, but a reason.
        why = [[result["failed"] for name, result in peers.items() if kind(name) and "failed" in result] for kind in kinds]
        cells = [reasons[0] if reasons and cell == "–" else cell for cell, reasons in zip(cells, why)]
        yield [GPU_JOBS[job][0], *cells, time(ours_seconds) + notes, ratio(fastest(peers, lambda _: True), ours_seconds)]
    resnet = HERE / "results/resnet.json"
    if resnet.exists():
        result = json.loads(resnet.read_text())
        history = result["mercer"]["history"]
        ours, theirs = statistics.median(epoch["seconds"] for epoch in history), min(result["pytorch_seconds"][1:])
        accuracy = result["mercer"]["test"]["accuracy"]
        yield [f"ResNet-20 on CIFAR-10, an epoch, TF32; {accuracy:.1%} after {len(history)}".replace("%", " %"), time(theirs), "–",
               "–", "–", time(ours), ratio(theirs, ours)]


def python_rows():
    """Jobs called from Python, both sides in one process."""
    names = {"kpca-5000": "`KernelPCA`, n = 5000", "kpca-20000": "`KernelPCA`, n = 20 000, f32", "nystrom-f32": "`Nystroem`, n = 100 000, f32",
             "nystrom-f64": "`Nystroem`, n = 100 000, f64", "rff-f32": "`RBFSampler`, n = 100 000, f32",
             "rff-f64": "`RBFSampler`, n = 100 000, f64", "ridge-5000": "`KernelRidge`, n = 5000"}
    measured = results("python")
    for job in [job for job in names if job in measured]:
        theirs, ours = (min(measured[job]["seconds"][side]) for side in ("scikit-learn", "mercer"))
        yield [names[job], time(theirs), time(ours), ratio(theirs, ours)]


def tables_rows():
    """RMSE on test rows in units of the target's standard deviation, the mean over splits."""
    path = HERE / "results/rfm.json"
    measured = json.loads(path.read_text()) if path.exists() else []
    for name in dict.fromkeys(result["set"] for result in measured):
        of_set = [result for result in measured if result["set"] == name]
        cells = []
        for side in ("plain", "rfm", "boosting", "xrfm"):
            found = [result["nrmse"] for result in of_set if result["what"] == side and "nrmse" in result]
            cells.append(f"{statistics.mean(found):.4f}" if found else "–")
        chosen = [result["metric"] for result in of_set if result.get("metric")]
        metric = ", ".join("none" if rounds == 0 else f"{form}, {rounds}" for form, rounds in chosen)
        yield [name, f"{of_set[0]['n']} / {of_set[0]['test']}", *cells[:2], metric or "–", *cells[2:]]


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def written(text):
    for name, head, rows in (("cpu", CPU_HEAD, cpu_rows()), ("gpu", GPU_HEAD, gpu_rows()),
                             ("python", PYTHON_HEAD, python_rows()), ("tables", TABLES_HEAD, tables_rows())):
        start, end = f"<!-- {name} table: bench/tables.py -->\n", f"<!-- end of the {name} table -->\n"
        before, rest = text.split(start)
        text = before + start + table(head, rows) + end + rest.split(end)[1]
    return text


def main():
    text = PAGE.read_text()
    new = written(text)
    if "--check" in sys.argv[1:]:
        sys.exit(None if new == text else "the tables of docs/src/benchmarks.md are not those of bench/results: run python3 bench/tables.py")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()

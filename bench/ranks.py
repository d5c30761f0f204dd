"""Times of a product, of a Krylov iteration and of a whole fit on 1, 2 and 4 ranks with one thread each; and the
peak memory of a rank. To be run alone on the machine:

    cargo build --release -p mercer-cli -p mercer-bench --features mercer/parquet
    python3 bench/ranks.py target/release/mercer target/release/mercer-bench [REPEATS]

MPICH is installed from PyPI into a temporary folder. Results go to bench/results/ranks.json."""

import json
import os
import subprocess
import sys
import tempfile
import venv
from array import array
from pathlib import Path
from random import Random

RANKS = (1, 2, 4)
# As in bench/src/ranks.rs.
PAIRS = 10


def write_npy(path, n, d):
    random = Random(1)
    header = str({"descr": "<f8", "fortran_order": False, "shape": (n, d)}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        for _ in range(n):
            file.write(array("d", [random.gauss(0, 1) for _ in range(d)]).tobytes())


def main():
    program, bench = (str(Path(name).resolve()) for name in sys.argv[1:3])
    repeats = sys.argv[3] if len(sys.argv) > 3 else "3"
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        venv.create(folder / "mpich", with_pip=True)
        subprocess.run([folder / "mpich/bin/pip", "install", "--quiet", "mpich"], check=True)
        environment = {**os.environ, "LD_LIBRARY_PATH": str(folder / "mpich/lib")}

        def run(ranks, *command):
            launcher = [] if ranks is None else [str(folder / "mpich/bin/mpiexec"), "-n", str(ranks)]
            found = subprocess.run([*launcher, *map(str, command)], env=environment, check=True, stdout=subprocess.PIPE, text=True)
            return json.loads(found.stdout)

        times = [run(ranks, bench, "ranks", folder, repeats) for ranks in RANKS]
        one = times[0]
        print("ranks  Kv, s  times  krylov, s  times  a step, s  fit, s  times")
        for found in times:
            product, step = min(found["product"]), found["krylov"] / found["products"]
            print(
                f"{found['ranks']:5}  {product:5.2f}  {min(one['product']) / product:5.2f}  "
                f"{found['krylov']:9.2f}  {one['krylov'] / found['krylov']:5.2f}  {step:9.3f}  "
                f"{found['fit']:6.2f}  {one['fit'] / found['fit']:5.2f}"
            )
        data = folder / "wide.npy"
        write_npy(data, 30_000, 300)
        fit = ["fit", data, "--kernel", "rbf(20)", "--k", PAIRS, "--threads", 1, "--json", "--quiet", "--memory", "2G"]
        # A few products are enough: what is in memory does not grow with them.
        fit += ["--tolerance", 0.2]
        memory = {}
        for ranks in (None, 1, 2, 4):
            out = folder / f"{ranks}.mercer"
            memory["alone" if ranks is None else str(ranks)] = run(ranks, program, *fit, "--out", out)["peak_memory"]
    for ranks, peak in memory.items():
        print(f"30 000 x 300 on {ranks} rank(s): {peak / 1e6:.0f} MB on rank 0, {peak / memory['alone']:.2f} of one process")
    result = {"times": times, "memory": memory, "cores": os.cpu_count()}
    Path(__file__).with_name("results").joinpath("ranks.json").write_text(json.dumps(result, indent=1) + "\n")


main()

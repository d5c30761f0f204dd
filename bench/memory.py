#!/usr/bin/env python3
"""Peak memory of the program against its budget: methods of each command, at several sizes and budgets.

    cargo build --release -p mercer-cli --features mercer/parquet
    python3 bench/memory.py target/release/mercer             # all runs, about twenty minutes on two cores
    python3 bench/memory.py target/release/mercer ridge 60    # those whose line has both words

A run may take 1.1 times its budget and 20 MiB for the program itself, or be refused in a sentence (exit code 2). The program ends with 1 where a run
takes more, or ends in another way."""

import os
import resource
import shlex
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path
from random import Random

SMALL, LARGE = (20, 60, 200), (150, 400)
ROWS, MANY = 3000, 16_000
SECONDS, ADDRESS_SPACE = 120, 4 << 30
FIT = ("exact", "krylov", "nystrom", "rff", "neuralef --steps 20", "spin --steps 5", "nested --steps 20", "omm --steps 20", "ritz --steps 20")
REGRESS = ("ridge", "ridge --solver cg", "nystrom", "random-features", "falkon --rank 500", "krill --rank 300", "eigenpro --epochs 2", "spectrum",
           "nadaraya-watson", "rfm")  # fmt: skip
CLASSES = ("ridge", "nystrom --rank 200", "random-features --rank 200", "falkon --rank 200", "spectrum --rank 50", "nystrom --rank 100 --loss logistic")
LAPLACE = ("auto", "last-layer", "last-layer-kfac", "kfac", "diagonal", "ella", "eigenfunctions")
NET = '"dense(64) relu dense(64) relu dense(1)"'


def table(path, rows, columns, target):
    """A table of normal numbers; `target(i, random)` is the last column."""
    random = Random(1)
    with path.open("w") as file:
        file.write(",".join(f"x{j}" for j in range(columns)) + ",y\n")
        for i in range(rows):
            file.write(",".join(f"{random.gauss(0, 1):.4f}" for _ in range(columns)) + f",{target(i, random)}\n")


def matrix(path, rows, columns):
    random = Random(2)
    header = str({"descr": "<f8", "fortran_order": False, "shape": (rows, columns)}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        for _ in range(rows):
            file.write(array("d", [random.gauss(0, 1) for _ in range(columns)]).tobytes())


def cases():
    """Command lines and their budgets in MiB."""
    for budget in SMALL:
        for method in FIT:
            yield f"fit n.csv --target y --k 20 --method {method}", budget
        for method in REGRESS:
            yield f"regress n.csv --target y --method {method}", budget
        for method in CLASSES:
            for classes in (5, 400):
                yield f"regress c{classes}.csv --target y --method {method}", budget
        yield "regress n.csv --target y --kernel linear", budget
        yield "regress c5.csv --target y --method nystrom --rank 100 --loss logistic --holdout .2", budget
        for method in ("exact", "cg", "nystrom", "random-features", "spectrum"):
            yield f"gp n.csv --target y --method {method}", budget
        for classes in (5, 400):
            yield f"gp c{classes}.csv --target y --rows 1500", budget
            yield f'train c{classes}.csv --target y --epochs 1 --net "dense(64) relu dense({classes})"', budget
        for method in LAPLACE:
            yield f"laplace n.safetensors n.csv --target y --method {method}", budget
        yield "laplace c400.safetensors c400.csv --target y --method last-layer-kfac", budget
        for method in ("kpca", "laplacian", "diffusion"):
            yield f"embed n.csv --target y --method {method} --k 5 --out e.npy", budget
        yield "gram n.csv --target y --out k.npy", budget
        yield f"ntk n.csv --target y --net {NET} --out k.npy", budget
        yield f"sample n.csv --target y --net {NET} --count 64 --out s.npy", budget
        yield 'eigenmap n.csv --target y --net "dense(64) relu" --k 16 --epochs 1 --out m.mercer', budget
        yield "transform n.mercer n.csv --target y --out t.npy", budget
        yield "predict r.mercer n.csv --target y --out p.npy", budget
    for budget in LARGE:
        for method in FIT[1:]:
            yield f"fit many.npy --k 50 --method {method}", budget
        for method in ("ridge --rows 12000", "ridge --rows 8000", "eigenpro --rows 8000 --epochs 1", "nystrom", "falkon --rank 1000", "random-features"):
            yield f"regress many.csv --target y --method {method}", budget
        yield "gram many.npy --out k.npy", budget


def run(program, line, budget, folder):
    """Exit code, peak in MiB, what it says."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))

    with tempfile.TemporaryFile() as said:
        command = ["timeout", str(SECONDS), program, *shlex.split(line), "--memory", f"{budget}MiB", "--quiet"]
        child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=said, preexec_fn=limit)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return child.returncode, usage.ru_maxrss / 1024, said.read().decode().strip().replace("\n", " ")


def main():
    program, words = str(Path(sys.argv[1]).resolve()), sys.argv[2:]
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        table(folder / "n.csv", ROWS, 20, lambda i, random: f"{random.gauss(0, 1):.4f}")
        table(folder / "many.csv", MANY, 20, lambda i, random: f"{random.gauss(0, 1):.4f}")
        for classes in (5, 400):
            table(folder / f"c{classes}.csv", ROWS, 20, lambda i, random, classes=classes: f"w{i % classes}")
        matrix(folder / "many.npy", MANY, 20)
        for line in (f"train n.csv --target y --net {NET} --epochs 1 --out n.safetensors",
                     'train c400.csv --target y --net "dense(64) relu dense(400)" --epochs 1 --out c400.safetensors',
                     "fit n.csv --target y --k 20 --method nystrom --out n.mercer",
                     "regress n.csv --target y --method nystrom --rank 500 --model r.mercer"):  # fmt: skip
            code, _, said = run(program, line, 2000, folder)
            assert code == 0, f"{line}: {said}"
        runs, refused, above = 0, 0, []
        for line, budget in cases():
            if not all(word in f"{line} {budget}" for word in words):
                continue
            code, peak, said = run(program, line, budget, folder)
            most, runs = 1.1 * budget + 20, runs + 1
            refuses = code == 2 and "Traceback" not in said and "panicked" not in said
            bad = peak > most or not (code == 0 or refuses)
            refused += refuses
            print(f"{'ABOVE' if bad else 'ok   '} {peak:7.1f} of {budget:4} MiB  exit {code:4}  {line}{'  ' + said[:160] if code else ''}", flush=True)
            if bad:
                above.append((line, budget, peak, code))
        print(f"{runs} runs, {refused} refused, {len(above)} take more than 1.1 times the budget and 20 MiB, or end in another way")
        sys.exit(bool(above))


if __name__ == "__main__":
    main()

"""The leading eigenvalues of kernel matrices by SLEPc on two ranks of MPI, as `slepc.json`.

From Debian's packages python3-slepc4py and openmpi-bin: `mpirun -n 2 /usr/bin/python3 slepc.py`. Entries of K are computed here from the
formulas, each rank its own rows. Eigenvalues are those of K/n."""

import json
import math
import platform
from pathlib import Path

import petsc4py
import slepc4py

slepc4py.init()
from petsc4py import PETSc  # noqa: E402
from slepc4py import SLEPc  # noqa: E402

N, D, PAIRS = 300, 3, 10

# Points that need no random numbers; the same formula is in the test.
POINTS = [[math.sin(1.3 * i * (j + 1) + j) + 0.5 * math.cos(0.7 * i + 2 * j) for j in range(D)] for i in range(N)]


def distance(x, y):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))


def matern52(r):
    s = math.sqrt(5) * r / 1.5
    return (1 + s + s * s / 3) * math.exp(-s)


KERNELS = {
    "rbf(1)": lambda x, y: math.exp(-distance(x, y) ** 2 / 2),
    "matern52(1.5)": lambda x, y: matern52(distance(x, y)),
    "poly(degree=2, offset=1)": lambda x, y: (sum(a * b for a, b in zip(x, y, strict=True)) + 1) ** 2,
}


def eigenvalues(kernel):
    matrix = PETSc.Mat().createDense([N, N], comm=PETSc.COMM_WORLD)
    matrix.setUp()
    first, end = matrix.getOwnershipRange()
    for i in range(first, end):
        matrix.setValues([i], list(range(N)), [kernel(POINTS[i], y) for y in POINTS])
    matrix.assemble()
    solver = SLEPc.EPS().create(comm=PETSc.COMM_WORLD)
    solver.setOperators(matrix)
    solver.setProblemType(SLEPc.EPS.ProblemType.HEP)
    solver.setWhichEigenpairs(SLEPc.EPS.Which.LARGEST_REAL)
    solver.setDimensions(PAIRS)
    solver.setTolerances(1e-14, 1000)
    solver.solve()
    assert solver.getConverged() >= PAIRS, f"{solver.getConverged()} pairs have converged"
    return [solver.getEigenvalue(j).real / N for j in range(PAIRS)]


found = {name: eigenvalues(kernel) for name, kernel in KERNELS.items()}
if PETSc.COMM_WORLD.getRank() == 0:
    version = ".".join(map(str, SLEPc.Sys.getVersion()))
    petsc = ".".join(map(str, PETSc.Sys.getVersion()))
    made = f"SLEPc {version}, slepc4py {slepc4py.__version__}, PETSc {petsc}, petsc4py {petsc4py.__version__}, "
    made += f"Python {platform.python_version()}, {PETSc.COMM_WORLD.getSize()} ranks, Krylov-Schur, tolerance 1e-14"
    content = {"made_by": made, "n": N, "d": D, "eigenvalues": found}
    Path(__file__).with_name("slepc.json").write_text(json.dumps(content, indent=1) + "\n")

"""Calibrated probabilities for a PyTorch network without leaving PyTorch: its logits and its derivatives along random directions go into
files, and `mercer laplace` finds the posterior of its outputs.

    python3 examples/laplace_of_pytorch.py FOLDER        # writes x.npy, y.npy, z.npy, F.npy and the same for validation and test rows
    (needs torch and numpy, and `mercer` on the path or named by $MERCER)

Row s of F is J(x) v_s for a vector v_s of random signs, so that FᵀF/S estimates the NTK J(x) J(x')ᵀ between all outputs. The same v_s are
used at all rows."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import torch
from torch.func import functional_call, jvp

S, ROWS = 200, {"train": 200, "validation": 200, "test": 1000}


def moons(n, generator):
    t = torch.rand(n, generator=generator) * torch.pi
    upper = torch.arange(n) % 2 == 0
    x = torch.stack([torch.where(upper, t.cos(), 1 - t.cos()), torch.where(upper, t.sin(), 0.5 - t.sin())], 1)
    return x + 0.25 * torch.randn(n, 2, generator=generator), (~upper).long()


def main(folder):
    folder = pathlib.Path(folder)
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
    theta = {name: p.detach() for name, p in network.named_parameters()}
    sets = {name: moons(n, generator) for name, n in ROWS.items()}
    optimiser = torch.optim.Adam(network.parameters(), 2e-2)
    x, y = sets["train"]
    for _ in range(1000):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()
    signs = [{name: torch.randint(2, p.shape, generator=generator) * 2.0 - 1.0 for name, p in theta.items()} for _ in range(S)]
    for name, (x, y) in sets.items():
        of = lambda theta: functional_call(network, theta, (x,))
        f = torch.stack([jvp(of, (theta,), (v,))[1] for v in signs])
        arrays = {"x": x, "y": y, "z": network(x).detach(), "F": f.detach()}
        for kind, array in arrays.items():
            np.save(folder / f"{kind}-{name}.npy", array.numpy().astype("f4"))
    at = lambda kind: ",".join(str(folder / f"{kind}-{name}.npy") for name in ROWS)
    table = lambda name: np.savetxt(folder / f"{name}.csv", np.column_stack([np.load(folder / f"{k}-{name}.npy") for k in "xy"]),
                                    "%g", ",", header="a,b,y", comments="")
    for name in ROWS:
        table(name)
    files = [str(folder / f"{name}.csv") for name in ROWS]
    mercer = os.environ.get("MERCER", "mercer")
    subprocess.run([mercer, "laplace", files[0], "--target", "y", "--validation", files[1], "--test", files[2], "--logits", at("z"),
                    "--samples", at("F"), "--out", str(folder / "m.mercer"), "--report", str(folder / "r.html")], check=True)
    subprocess.run([mercer, "predict", str(folder / "m.mercer"), "--logits", str(folder / "z-test.npy"), "--samples",
                    str(folder / "F-test.npy"), "--out", str(folder / "p.csv")], check=True)


main(sys.argv[1])

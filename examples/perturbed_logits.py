"""A PyTorch network's NTK without leaving PyTorch: its logits under perturbed weights go into one file, `mercer fit` finds the
eigenfunctions of their kernel, and `mercer transform` takes them to new points.

    python3 examples/perturbed_logits.py FOLDER          # writes x.npy, F.npy, new.npy, F_new.npy, psi.npy, psi_new.npy
    (needs torch and numpy, and `mercer` on the path or named by $MERCER)

Row s of F is (g(x, θ + ε v_s) − g(x, θ))/ε for a vector v_s of random signs, so that FᵀF/S estimates the NTK
∂g(x) ∂g(x')ᵀ between all outputs. The same v_s at new points make F_new. F is written row by row: it may be larger than
memory on both sides."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import torch

S, EPSILON, N, NEW = 1000, 1e-2, 300, 20


def moons(n, generator):
    t = torch.rand(n, generator=generator) * torch.pi
    upper = torch.arange(n) % 2 == 0
    x = torch.stack([torch.where(upper, t.cos(), 1 - t.cos()), torch.where(upper, t.sin(), 0.5 - t.sin())], 1)
    return x + 0.05 * torch.randn(n, 2, generator=generator), (~upper).long()


def train(network, x, y):
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(200):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()


@torch.no_grad()
def write_logits(network, points, paths):
    """F [S, n, C] at each set of points, under the same S perturbations."""
    theta = torch.nn.utils.parameters_to_vector(network.parameters())
    at_rest = [network(x) for x in points]
    files = [np.lib.format.open_memmap(path, "w+", "float32", (S, *rest.shape)) for path, rest in zip(paths, at_rest)]
    signs = torch.Generator().manual_seed(1)
    for s in range(S):
        v = torch.randint(0, 2, theta.shape, generator=signs) * 2.0 - 1
        torch.nn.utils.vector_to_parameters(theta + EPSILON * v, network.parameters())
        for file, x, rest in zip(files, points, at_rest):
            file[s] = ((network(x) - rest) / EPSILON).numpy()
    torch.nn.utils.vector_to_parameters(theta, network.parameters())
    for file in files:
        file.flush()


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    (x, y), (new, _) = moons(N, generator), moons(NEW, generator)
    network = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(),
                                  torch.nn.Linear(64, 2))
    train(network, x, y)
    np.save(folder / "x.npy", x.numpy().astype("float64"))
    np.save(folder / "new.npy", new.numpy().astype("float64"))
    write_logits(network, [x, new], [folder / "F.npy", folder / "F_new.npy"])
    mercer = lambda *words: subprocess.run([os.environ.get("MERCER", "mercer"), *words], cwd=folder, check=True)
    mercer("fit", "x.npy", "--samples", "F.npy", "--k", "5", "--out", "logits.mercer")
    mercer("fit", "x.npy", "--samples", "F.npy", "--k", "5", "--out", "psi.npy", "--quiet")
    mercer("transform", "logits.mercer", "--samples", "F_new.npy", "--out", "psi_new.npy")
    print("eigenfunctions at the points", np.load(folder / "psi.npy").shape, "and at new ones",
          np.load(folder / "psi_new.npy").shape)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "perturbed_logits"))

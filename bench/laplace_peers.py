"""Linearised Laplace by laplace-torch, and ELLA as its authors write it: `laplace_peers.py JOB DATA_FOLDER REPEATS` prints one line of
JSON: seconds of the fit to 2000 rows, seconds of the prediction of 500, and the NLL of the predicted probabilities.
`laplace_peers.py prepare DATA_FOLDER 0` draws the rows, trains the network 64-64-64-10 and writes both."""
import json
import pathlib
import resource
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, jvp, vjp, vmap
from torch.utils.data import DataLoader, TensorDataset

D, H, C, FIT, NEW, NOISE = 64, 64, 10, 2000, 500, 3.0
PRECISION, SAMPLES, RANK = 1.0, 200, 20
STRUCTURES = {"last-layer": ("last_layer", "full"), "last-layer-kfac": ("last_layer", "kron"), "kfac": ("all", "kron"),
              "diagonal": ("all", "diag")}


def network():
    return nn.Sequential(nn.Linear(D, H), nn.Tanh(), nn.Linear(H, H), nn.Tanh(), nn.Linear(H, C))


def prepare(folder):
    torch.manual_seed(0)
    centres = torch.randn(C, D)
    y = torch.randint(C, (FIT + NEW,))
    x = centres[y] + NOISE * torch.randn(FIT + NEW, D)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-3)
    for _ in range(20):
        for rows in torch.randperm(FIT).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    save = lambda name, a: np.save(folder / f"laplace-{name}.npy", a.numpy().astype("f8"))
    save("x", x[:FIT]), save("y", y[:FIT, None]), save("new", x[FIT:]), save("truth", y[FIT:, None])
    for i, layer in enumerate(model[::2]):
        save(f"weight{i}", layer.weight.detach()), save(f"bias{i}", layer.bias.detach()[None])


class Ella:
    """`Ψ(x) = J(x)V` with `V = J_Mᵀ U λ^{−1/2}` of the RANK largest eigenpairs at SAMPLES pairs of a row and an output; all passes
    are batched by torch.func."""

    def __init__(self, model):
        self.model = model
        self.theta = {name: p.detach() for name, p in model.named_parameters()}

    def fit(self, x, y):
        g = torch.Generator().manual_seed(0)
        rows, outputs = torch.randperm(len(x), generator=g)[:SAMPLES], torch.randint(C, (SAMPLES,), generator=g)
        of = lambda theta, x: functional_call(self.model, theta, (x,))

        def derivatives(x, output):
            pulled = vjp(lambda theta: of(theta, x), self.theta)[1]
            grad = pulled(nn.functional.one_hot(output, C).to(x.dtype))[0]
            return torch.cat([p.flatten() for p in grad.values()])
        j = vmap(derivatives)(x[rows], outputs)
        values, u = torch.linalg.eigh(j @ j.T)
        values, u = values[-RANK:], u[:, -RANK:]
        v = (j.T @ u / values.sqrt()).T
        shapes = [p.shape for p in self.theta.values()]
        parts = v.split([s.numel() for s in shapes], 1)
        self.directions = {name: part.reshape(RANK, *s) for name, part, s in zip(self.theta, parts, shapes)}
        h = torch.zeros(RANK, RANK)
        for rows in torch.arange(len(x)).split(256):
            z, psi = self.along(x[rows])
            p = z.softmax(1)
            mean = torch.einsum("nc,knc->kn", p, psi)
            h += torch.einsum("knc,nc,lnc->kl", psi, p, psi) - mean @ mean.T
        self.covariance = torch.linalg.inv(h + PRECISION * torch.eye(RANK))

    def along(self, x):
        of = lambda theta: functional_call(self.model, theta, (x,))
        z, psi = vmap(lambda v: jvp(of, (self.theta,), (v,)))(self.directions)
        return z[0], psi

    def predict(self, x):
        z, psi = self.along(x)
        variances = torch.einsum("knc,kl,lnc->nc", psi, self.covariance, psi)
        return (z / (1 + torch.pi / 8 * variances).sqrt()).softmax(1)


class Peer:
    """laplace-torch with its usual back end, all rows in batches of 256 as in its examples."""

    def __init__(self, model, structure):
        self.model, self.structure = model, structure

    def fit(self, x, y):
        from laplace import Laplace
        subset, structure = STRUCTURES[self.structure]
        self.laplace = Laplace(self.model, "classification", subset, structure, prior_precision=PRECISION)
        self.laplace.fit(DataLoader(TensorDataset(x, y), batch_size=256))

    def predict(self, x):
        return self.laplace(x, link_approx="probit")


def main(job, folder, repeats):
    torch.set_num_threads(2)
    folder = pathlib.Path(folder)
    if job == "prepare":
        return prepare(folder)
    load = lambda name: torch.from_numpy(np.load(folder / f"laplace-{name}.npy")).float()
    model = network()
    for i, layer in enumerate(model[::2]):
        layer.weight.data, layer.bias.data = load(f"weight{i}"), load(f"bias{i}")[0]
    x, y, new, truth = load("x"), load("y")[:, 0].long(), load("new"), load("truth")[:, 0].long()
    seconds = {"fit": [], "predict": []}
    for run in range(1 + repeats):
        peer = Ella(model) if job == "laplace-ella" else Peer(model, job.removeprefix("laplace-"))
        start = time.perf_counter()
        peer.fit(x, y)
        middle = time.perf_counter()
        p = peer.predict(new)
        end = time.perf_counter()
        if run > 0:
            seconds["fit"].append(middle - start), seconds["predict"].append(end - middle)
    nll = -p[torch.arange(NEW), truth].log().mean().item()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**seconds, "nll": nll, "peak_bytes": peak, "torch": torch.__version__}))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

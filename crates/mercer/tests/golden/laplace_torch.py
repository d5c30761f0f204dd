"""Writes laplace_torch.json: linearised Laplace of small networks, as laplace-torch has it.

Networks in double precision, with weights drawn once and trained for a while:
  dense      4 inputs, 6 tanh units, 3 classes
  conv       images of 1x6x6, 3 filters of 3x3, tanh, flatten, 3 classes
  number     2 inputs, 5 tanh units, one number, noise 0.3
For every structure: the covariances of the outputs at new rows, the probabilities by the probit approximation (classes), and the
logarithm of the marginal likelihood, for a given prior precision.
Versions: laplace-torch 0.3, curvlinops-for-pytorch 3.0.1, torch 2.15.0.
"""
import json
import pathlib

import torch
from laplace import Laplace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
PRECISION, NOISE = 0.7, 0.3
STRUCTURES = {
    "last-layer": ("last_layer", "full"),
    "last-layer-kfac": ("last_layer", "kron"),
    "kfac": ("all", "kron"),
    "diagonal": ("all", "diag"),
    "full": ("all", "full"),
}
NETWORKS = {
    "dense": ("dense(6) tanh dense(3)", nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))),
    "conv": (
        "image(1, 6, 6) conv(3, 3, pad=1) tanh flatten dense(3)",
        nn.Sequential(nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(108, 3)),
    ),
    "number": ("dense(5) tanh dense(1)", nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1))),
}


def drawn(name):
    d = {"dense": 4, "conv": 36, "number": 2}[name]
    x = torch.randn(40, d).float().double()
    if name == "number":
        return x, (torch.sin(x.sum(1, keepdim=True)) + NOISE * torch.randn(40, 1)).float().double()
    return x, (x[:, :3] + torch.randn(40, 3)).argmax(1)


def trained(model, x, y, likelihood):
    loss = nn.MSELoss() if likelihood == "regression" else nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    # Files hold weights in single precision.
    for parameter in model.parameters():
        parameter.data = parameter.data.float().double()


def fitted(model, x, y, new, likelihood, subset, structure):
    noise = {"sigma_noise": NOISE} if likelihood == "regression" else {}
    la = Laplace(model, likelihood, subset, structure, prior_precision=PRECISION, **noise)
    la.fit(DataLoader(TensorDataset(x, y), batch_size=40))
    _, covariance = la._glm_predictive_distribution(new)
    out = {"covariance": covariance.tolist(), "evidence": la.log_marginal_likelihood().item()}
    if likelihood == "classification":
        out["probabilities"] = la(new, link_approx="probit").tolist()
    return out


out = {"precision": PRECISION, "noise": NOISE}
for name, (description, model) in NETWORKS.items():
    likelihood = "regression" if name == "number" else "classification"
    x, y = drawn(name)
    new = drawn(name)[0][:5]
    trained(model, x, y, likelihood)
    layers = [m for m in model if isinstance(m, (nn.Linear, nn.Conv2d))]
    names = {"dense": ["fc1", "fc2"], "conv": ["conv1", "fc"], "number": ["fc1", "fc2"]}[name]
    weights = {f"{n}.{p}": v.tolist() for n, m in zip(names, layers) for p, v in m.named_parameters()}
    out[name] = {
        "net": description,
        "weights": weights,
        "x": x.tolist(),
        "y": y.flatten().tolist(),
        "new": new.tolist(),
        "structures": {s: fitted(model, x, y, new, likelihood, *v) for s, v in STRUCTURES.items()},
    }
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(out) + "\n")

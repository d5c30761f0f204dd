"""Writes recursive_feature_machine.json: recursive feature machines by plain numpy on a small set.

A round solves (K + alpha I) c = y - mean(y), takes the gradients of f(x) = mean(y) + sum_i c_i k(x_i, x) at the points by the formula of
each kernel, and replaces M by the mean of their outer products (or its diagonal), scaled to the trace of I.
"""
import json
import numpy as np

rng = np.random.default_rng(0)
n, d = 40, 4
x = rng.normal(size=(n, d)).round(4)
new = rng.normal(size=(5, d)).round(4)
y = (np.sin(x @ [1.0, 0.5, 0.0, 0.0]) + 0.1 * x[:, 2]).round(4)
alpha = 0.05


def kernel(name, scale, a, b, m):
    """Values [len(a), len(b)] and the factor g of the gradient k'(a) = g M (a - b)."""
    difference = a[:, None, :] - b[None, :, :]
    r = np.sqrt(np.maximum(np.einsum("abi,ij,abj->ab", difference, m, difference), 0))
    if name == "rbf":
        k = np.exp(-(r**2) / (2 * scale**2))
        g = -k / scale**2
    elif name == "matern12":
        k = np.exp(-r / scale)
        g = np.where(r > 0, -k / (scale * np.where(r > 0, r, 1)), 0)
    elif name == "matern32":
        t = np.sqrt(3) * r / scale
        k, g = (1 + t) * np.exp(-t), -3 / scale**2 * np.exp(-t)
    else:
        t = np.sqrt(5) * r / scale
        k, g = (1 + t + t**2 / 3) * np.exp(-t), -5 / (3 * scale**2) * (1 + t) * np.exp(-t)
    return k, g, difference


def machine(name, scale, rounds, diagonal):
    m = np.eye(d)
    for left in range(rounds, -1, -1):
        k, g, difference = kernel(name, scale, x, x, m)
        c = np.linalg.solve(k + alpha * np.eye(n), y - y.mean())
        if left:
            gradients = np.einsum("ai,aij->aj", g * c[None, :], difference) @ m
            m = gradients.T @ gradients / n
            m = np.diag(np.diag(m)) if diagonal else m
            m *= d / np.trace(m)
    k, _, _ = kernel(name, scale, new, x, m)
    return {
        "kernel": f"{name}({scale})",
        "rounds": rounds,
        "diagonal": diagonal,
        "metric": m.tolist(),
        "new": (y.mean() + k @ c).tolist(),
    }


cases = [
    machine(name, scale, rounds, diagonal)
    for name, scale in [("rbf", 1.5), ("matern12", 3.0), ("matern32", 2.0), ("matern52", 2.0)]
    for rounds, diagonal in [(0, True), (1, False), (3, False), (3, True)]
]
with open("recursive_feature_machine.json", "w") as file:
    json.dump(
        {
            "provenance": f"numpy {np.__version__}, recursive_feature_machine.py",
            "x": x.tolist(),
            "y": y.tolist(),
            "new": new.tolist(),
            "alpha": alpha,
            "cases": cases,
        },
        file,
    )

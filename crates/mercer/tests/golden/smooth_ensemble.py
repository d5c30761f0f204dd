"""Golden values of ensembles of infinite erf networks trained to the end, where the NTK has tiny eigenvalues: 60 and 300 digits by mpmath.

    pip install mpmath==1.4.1
    python smooth_ensemble.py > smooth_ensemble.json

With K and Θ of one hidden erf layer, `Θ = LLᵀ` and `G = Θ⁻¹Θ(X,x)`: the mean `Gᵀy` and the deviation `√(K(x,x) − 2GᵀK(X,x) + GᵀK(X,X)G)`."""
import json
import math
import sys

import mpmath as mp

W, B = mp.mpf("1.5"), mp.mpf("0.1")


def kernels(x, z):
    """K(x,z) and Θ(x,z) of `dense erf dense` with weights of variance W and biases of variance B."""
    a, b, c = B + W * x * x, B + W * z * z, B + W * x * z
    product = (1 + 2 * a) * (1 + 2 * b)
    slope = 4 / mp.pi / mp.sqrt(product - 4 * c**2)
    k = B + W * 2 / mp.pi * mp.asin(2 * c / mp.sqrt(product))
    return k, k + W * slope * c


def solve(l, b):
    """(LLᵀ)⁻¹b"""
    n = len(b)
    v = [mp.mpf(0)] * n
    for i in range(n):
        v[i] = (b[i] - mp.fsum(l[i, k] * v[k] for k in range(i))) / l[i, i]
    for i in reversed(range(n)):
        v[i] = (v[i] - mp.fsum(l[k, i] * v[k] for k in range(i + 1, n))) / l[i, i]
    return v


def case(x, new):
    """The mean and the deviation at `new` for targets sin(3x) that are brought to mean 0 and variance 1."""
    n = len(x)
    y = [math.sin(3 * t) for t in x]
    exact = [mp.mpf(t) for t in y]
    mean = mp.fsum(exact) / n
    spread = mp.sqrt(mp.fsum((t - mean) ** 2 for t in exact) / n)
    points = [mp.mpf(t) for t in x]
    k, theta = mp.matrix(n, n), mp.matrix(n, n)
    for i in range(n):
        for j in range(n):
            k[i, j], theta[i, j] = kernels(points[i], points[j])
    l = mp.cholesky(theta)
    means, deviations = [], []
    for z in map(mp.mpf, new):
        cross = [kernels(t, z) for t in points]
        g = solve(l, [t for _, t in cross])
        once = mp.fsum(w * c for w, (c, _) in zip(g, cross))
        twice = mp.fsum(g[i] * g[j] * k[i, j] for i in range(n) for j in range(n))
        variance = kernels(z, z)[0] - 2 * once + twice
        means.append(float(mean + mp.fsum(w * (t - mean) for w, t in zip(g, exact))))
        deviations.append(float(spread * mp.sqrt(max(variance, 0))))
    return {"x": x, "y": y, "new": new, "mean": means, "deviation": deviations}


mp.mp.dps = 60
gap = [-1 + 0.6 * i / 7 for i in range(8)] + [0.4 + 0.6 * i / 6 for i in range(7)]
cases = [case(gap, [0.0, 0.2, -1.0, 0.7, 1.5])]
mp.mp.dps = 300
# Points that fill the interval, by multiples of the golden section.
dense = sorted(2 * ((i * 0.6180339887498949) % 1) - 1 for i in range(60))
cases.append(case(dense, [dense[0], dense[30], 0.02, -0.5, 0.9, 1.5]))
json.dump({"origin": {"mpmath": mp.__version__}, "cases": cases}, sys.stdout)

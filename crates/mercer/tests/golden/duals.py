"""Golden values of E[φ(u)φ(v)] and E[φ'(u)φ'(v)] for normal (u, v), and of whole networks of such layers.

    pip install numpy==1.26 mpmath==1.3.0
    python duals.py > duals.json

Nothing here knows a closed form of an expectation: every one is an integral over the plane, by Gauss-Legendre rules in 80-bit
arithmetic on panels that follow both the normal density and the activation's own scale. The rules come from mpmath. Panels
half as wide give the same values to 1e-15 (checked below). Functions that oscillate are integrated for deviations up to 3.

A case of "duals": the activation, the variances a and b and the covariance k as exact doubles, the two expectations.
A case of "networks": the kernel's arguments, the inputs, K = nngp and Θ = ntk over all pairs of points."""
import json
import sys

import mpmath
import numpy as np

real = np.longdouble
assert np.finfo(real).eps < 2e-19, "this needs 80-bit floats"
mpmath.mp.dps = 30
NODES = 16


def legendre(n):
    """Nodes and weights of the Gauss-Legendre rule on [0, 1]."""
    x, w = [], []
    slope = lambda t: n * (t * mpmath.legendre(n, t) - mpmath.legendre(n - 1, t)) / (t**2 - 1)
    for i in range(n):
        root = mpmath.cos(mpmath.pi * (i + 0.75) / (n + 0.5))
        for _ in range(6):
            root -= mpmath.legendre(n, root) / slope(root)
        x.append((1 + root) / 2)
        w.append(1 / ((1 - root**2) * slope(root) ** 2))
    exact = lambda values: np.array([real(mpmath.nstr(v, 25)) for v in values])
    return exact(x), exact(w)


X, W = legendre(NODES)
PI = real(mpmath.nstr(mpmath.pi, 25))
ROOT2PI = real(mpmath.nstr(mpmath.sqrt(2 * mpmath.pi), 25))
LN2 = real(mpmath.nstr(mpmath.log(2), 25))
# The activation's own scale: bends and poles are near zero, and beyond 60 all is straight.
OWN = np.array([0, 1, 2.5, 5, 10, 20, 60], dtype=real)
REACH = 10


def panels(breaks, halved):
    """Nodes and weights of all panels between the breaks [..., n], along the last axis."""
    breaks = np.sort(breaks, axis=-1)
    if halved:
        middles = (breaks[..., 1:] + breaks[..., :-1]) / 2
        breaks = np.sort(np.concatenate([breaks, middles], axis=-1), axis=-1)
    left, width = breaks[..., :-1, None], np.diff(breaks, axis=-1)[..., None]
    flat = lambda v: v.reshape(v.shape[:-2] + (-1,))
    return flat(left + width * X), flat(width * W)


def around(mean, scales, reach):
    """Breaks for a normal z: every second deviation, and where mean + scale z is at the activation's own scale."""
    deviations = np.arange(-reach, reach + 1, 2, dtype=real)
    own = np.concatenate([-OWN, OWN])
    mean = np.asarray(mean, dtype=real)[..., None]
    at = [np.clip((own - mean) / scale, -reach, reach) for scale in scales if scale > 0]
    return np.concatenate([np.broadcast_to(deviations, mean.shape[:-1] + deviations.shape), *at], axis=-1)


def density(z):
    return np.exp(-z * z / 2) / ROOT2PI


def dual(phi, k, a, b, halved=False, reach=REACH):
    """The two expectations."""
    k, a, b = real(k), real(a), real(b)
    s, t = np.sqrt(a), np.sqrt(b)
    # Given z, v is normal with mean (k/σ) z and variance b − k²/a; a bend of φ is as wide as the deviation.
    slope, rest = abs(k) / s, np.sqrt(max(b - k * k / a, real(0)))
    straight = rest <= 1e-9 * t
    z, w = panels(around(0, (s, slope) if straight else (s, slope, slope / rest), reach), halved)
    g, dg = phi(s * z)
    mean = k / s * z
    if straight:
        h, dh = phi(mean)
    else:
        y, wy = panels(around(mean, (rest,), reach), halved)
        h, dh = phi(mean[..., None] + rest * y)
        weights = wy * density(y)
        h, dh = (h * weights).sum(-1), (dh * weights).sum(-1)
    weights = w * density(z)
    return (g * h * weights).sum(), (dg * dh * weights).sum()


# ---- the activations: value and slope ----


def tanh(u):
    t = np.tanh(u)
    return t, 1 / np.cosh(np.clip(u, -5000, 5000)) ** 2


def sigmoid(u):
    e = np.exp(-np.abs(u))
    v = np.where(u > 0, 1 / (1 + e), e / (1 + e))
    return v, e / (1 + e) ** 2


def softplus(u):
    return np.maximum(u, 0) + np.log1p(np.exp(-np.abs(u))), sigmoid(u)[0]


def erf(u):
    """The error function in 80 bits: its series up to 2.5, its continued fraction beyond."""
    x, result = np.abs(u), np.ones_like(u)
    small = x[x < 2.5]
    term, total = small.copy(), small.copy()
    for n in range(1, 50):
        term *= 2 * small * small / (2 * n + 1)
        total += term
    result[x < 2.5] = 2 / np.sqrt(PI) * np.exp(-small * small) * total
    middle = (x >= 2.5) & (x < 7)
    large = x[middle]
    fraction = large.copy()
    for n in range(80, 0, -1):
        fraction = large + real(n) / 2 / fraction
    result[middle] = 1 - np.exp(-large * large) / np.sqrt(PI) / fraction
    return np.sign(u) * result


def of_erf(u):
    return erf(u), 2 / np.sqrt(PI) * np.exp(-np.minimum(u * u, 10000))


def gelu(u):
    cdf = (1 + erf(u / np.sqrt(real(2)))) / 2
    return u * cdf, cdf + u * density(np.clip(u, -100, 100))


def gaussian(u):
    e = np.exp(-np.minimum(u * u, 10000))
    return e, -2 * u * e


def bent(below, above):
    return lambda u: (np.where(u > 0, above * u, below * u), np.where(u > 0, real(above), real(below)))


def polynomial(*c):
    c = [real(v) for v in c]
    value = lambda u: sum(v * u**i for i, v in enumerate(c))
    slope = lambda u: sum((i * v * u ** (i - 1) for i, v in enumerate(c) if i), start=0 * u)
    return lambda u: (value(u), slope(u))


def hermite(n):
    c = np.polynomial.hermite_e.herme2poly([0] * n + [1])
    norm = np.sqrt(real(int(mpmath.factorial(n))))
    return polynomial(*[real(v) / norm for v in c])


def sigmoid_like(u):
    scale = real("2.4020563531719796")
    value, slope = of_erf(u / scale)
    return value / 2 + real(0.5), slope / (2 * scale)


def rbf(gamma):
    w = np.sqrt(2 * real(gamma))
    return lambda u: (np.sqrt(real(2)) * np.sin(w * u + PI / 4), np.sqrt(real(2)) * w * np.cos(w * u + PI / 4))


EVERYWHERE = {
    "relu": bent(0, 1),
    "leaky_relu": bent(real("0.01"), 1),
    "leaky_relu(0.2)": bent(real("0.2"), 1),
    "ab_relu(-0.5, 2)": bent(real("-0.5"), 2),
    "abs": bent(-1, 1),
    "erf": of_erf,
    "sign": lambda u: (np.where(u < 0, real(-1), real(1)), 0 * u),
    "step": lambda u: (np.where(u > 0, real(1), real(0)), 0 * u),
    "gaussian": gaussian,
    "gelu": gelu,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "sigmoid_like": sigmoid_like,
    "polynomial(0.5, -1, 0, 0.25)": polynomial(0.5, -1, 0, 0.25),
    "hermite(3)": hermite(3),
    "monomial(2)": polynomial(0, 0, 1),
}
# Waves and exponentials, for inputs that are not too wide.
NARROW = {
    "sin": lambda u: (np.sin(u), np.cos(u)),
    "cos": lambda u: (np.cos(u), -np.sin(u)),
    "exp": lambda u: (np.exp(u), np.exp(u)),
    "rbf(0.5)": rbf(0.5),
}
DEVIATIONS = [(1e-3, 1e-3), (0.1, 0.1), (1, 1), (3, 3), (8.6, 8.6), (34, 34), (1000, 1000), (0.1, 34), (3, 1000), (2, 0.5)]
CORRELATIONS = [-1, -0.99999, -0.6, 0, 0.3, 0.9, 0.999999, 1]


def duals():
    for name, phi in {**EVERYWHERE, **NARROW}.items():
        for s, t in DEVIATIONS:
            if name in NARROW and max(s, t) > 3:
                continue
            for rho in CORRELATIONS:
                a, b = float(s) ** 2, float(t) ** 2
                k = rho * float(s) * float(t)
                # Doubles for which the covariance is a covariance.
                k = float(np.sign(k) * min(abs(k), np.sqrt(real(a) * real(b))))
                reach = REACH + (2 * max(s, t) if name == "exp" else 0)
                value, slope = dual(phi, k, a, b, reach=reach)
                yield {"act": name, "a": a, "b": b, "k": k, "value": float(value), "slope": float(slope)}
        print(name, file=sys.stderr)


# ---- networks ----

POINTS = np.array([[0.9, -0.4, 1.1], [0.9005, -0.4003, 1.1], [-0.8, 0.5, -1.2], [-1.5, 0.1, 0.7], [0.2, 1.3, 0.1]])
WEIGHT, BIAS = 1.7, 0.3


def network(phi, depth, x):
    """K and Θ of `depth` hidden layers and a read-out, for the inputs x [n, d]."""
    x = x.astype(real)
    w, b = real(str(WEIGHT)), real(str(BIAS))
    n = len(x)
    kernel, tangent = x @ x.T / x.shape[1], np.zeros((n, n), dtype=real)
    for layer in range(depth + 1):
        kernel = w * kernel + b
        tangent = kernel + w * tangent
        if layer == depth:
            return kernel, tangent
        values, slopes = np.empty_like(kernel), np.empty_like(kernel)
        for i in range(n):
            for j in range(i + 1):
                pair = dual(phi, kernel[i, j], kernel[i, i], kernel[j, j])
                (values[i, j], slopes[i, j]) = (values[j, i], slopes[j, i]) = pair
        kernel, tangent = values, tangent * slopes


def networks():
    for name in ("tanh", "sigmoid", "softplus", "gelu", "leaky_relu(0.2)"):
        for scale in (1, 3, 10, 30, 100):
            x = scale * POINTS
            kernel, tangent = network(EVERYWHERE[name], 3, x)
            yield {
                "arguments": f"depth=3, act='{name}', w_var={WEIGHT}, b_var={BIAS}",
                "inputs": x.tolist(),
                "nngp": kernel.astype(float).tolist(),
                "ntk": tangent.astype(float).tolist(),
            }
            print(name, scale, file=sys.stderr)


def check():
    """Panels half as wide change nothing."""
    for name in EVERYWHERE:
        for a, b, k in ((1.0, 1.0, 0.9), (1156.0, 1156.0, 1155.99), (9.0, 1e6, -1500.0)):
            coarse, fine = dual(EVERYWHERE[name], k, a, b), dual(EVERYWHERE[name], k, a, b, halved=True)
            for c, f in zip(coarse, fine):
                assert abs(c - f) <= 1e-15 * abs(f), (name, a, b, k, c, f)
    print("panels are fine enough", file=sys.stderr)


def main():
    check()
    versions = {"numpy": np.__version__, "mpmath": mpmath.__version__}
    out = {"generator": "crates/mercer/tests/golden/duals.py", "versions": versions}
    print(json.dumps({**out, "duals": list(duals()), "networks": list(networks())}))


if __name__ == "__main__":
    main()

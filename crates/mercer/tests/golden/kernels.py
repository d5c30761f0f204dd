"""Golden values of the base kernels, from mpmath with 50 digits, by other formulas than the library's where there are some:
Matérn by Bessel functions, arc-cosine kernels by the integral over the layer's weights, the periodic kernel by sines.

    pip install mpmath==1.4.1 scikit-learn==1.9.1 numpy==2.4.6
    python kernels.py > kernels.json

scikit-learn checks those kernels that it has. Coordinates are multiples of 1/64, which every reader gets exactly."""
import json
import sys

import mpmath
import numpy as np
import sklearn
from mpmath import mp, mpf
from sklearn.gaussian_process.kernels import ExpSineSquared, Matern
from sklearn.metrics import pairwise

mp.dps = 50
rng = np.random.default_rng(0)


def dyadic(shape, scale):
    return np.round(rng.normal(size=shape) * scale * 64) / 64


few = dyadic((9, 3), 1.0)
few[1] = few[0]  # equal
few[2] = -few[0]  # opposite
few[3] = 2 * few[0]  # parallel
few[4] = [-few[0][1], few[0][0], 0]  # orthogonal
few[5] = few[0] + np.array([1, 0, -1]) / 64  # near
few[6] = 0  # the origin
few[7] *= 3  # far
INPUTS = {"line": dyadic((6, 1), 2.0), "few": few, "wide": dyadic((5, 60), 0.25)}


def dot(x, y):
    return mp.fdot([mpf(a) for a in x], [mpf(b) for b in y])


def differences(x, y):
    return [mpf(a) - mpf(b) for a, b in zip(x, y)]


def distance(x, y):
    return mp.norm(differences(x, y), 2)


def angle(x, y):
    product = mp.sqrt(dot(x, x)) * mp.sqrt(dot(y, y))
    # The library calls the angle with the origin a right one.
    return mp.acos(max(mpf(-1), min(mpf(1), dot(x, y) / product))) if product > 0 else mp.pi / 2


def matern(nu):
    def value(x, y, lengthscale):
        a = mp.sqrt(2 * nu) * distance(x, y) / mpf(lengthscale)
        return mpf(1) if a == 0 else 2 ** (1 - nu) / mp.gamma(nu) * a**nu * mp.besselk(nu, a)

    return value


def arc_cosine(x, y, order):
    # A layer of units max(0, w·x)ⁿ with standard normal w: J_n(θ) = 2ⁿ n! ∫ cosⁿφ cosⁿ(φ−θ) dφ over [θ−π/2, π/2].
    theta = angle(x, y)
    j = 2**order * mp.factorial(order) * mp.quad(lambda phi: (mp.cos(phi) * mp.cos(phi - theta)) ** order, [theta - mp.pi / 2, mp.pi / 2])
    return (mp.sqrt(dot(x, x)) * mp.sqrt(dot(y, y))) ** order * j / mp.pi


def cosine(x, y):
    return mp.cos(angle(x, y)) if dot(x, x) * dot(y, y) > 0 else mpf(0)


KERNELS = {
    "linear": (dot, [{}]),
    "poly": (
        lambda x, y, degree=3, scale=1, offset=1: (mpf(scale) * dot(x, y) + mpf(offset)) ** degree,
        [{}, {"degree": 1}, {"degree": 4, "scale": 0.5, "offset": 1.5}, {"degree": 7, "scale": 0.125, "offset": 0}],
    ),
    "rbf": (lambda x, y, lengthscale=1: mp.exp(-distance(x, y) ** 2 / (2 * mpf(lengthscale) ** 2)), [{}, {"lengthscale": 0.75}, {"lengthscale": 3}]),
    "laplacian": (lambda x, y, lengthscale=1: mp.exp(-mp.norm(differences(x, y), 1) / mpf(lengthscale)), [{}, {"lengthscale": 2.5}]),
    "matern12": (matern(mpf(1) / 2), [{"lengthscale": 1}, {"lengthscale": 0.75}, {"lengthscale": 3}]),
    "matern32": (matern(mpf(3) / 2), [{"lengthscale": 1}, {"lengthscale": 0.75}, {"lengthscale": 3}]),
    "matern52": (matern(mpf(5) / 2), [{"lengthscale": 1}, {"lengthscale": 0.75}, {"lengthscale": 3}]),
    "periodic": (
        lambda x, y, period=1, lengthscale=1: mp.exp(-2 * sum(mp.sin(mp.pi * t / mpf(period)) ** 2 for t in differences(x, y)) / mpf(lengthscale) ** 2),
        [{}, {"period": 1.75, "lengthscale": 0.75}, {"period": 0.3, "lengthscale": 2}],
    ),
    "cosine": (cosine, [{}]),
    "arccos": (arc_cosine, [{"order": 0}, {"order": 1}, {"order": 2}]),
    "expdot": (lambda x, y, scale=1: mp.exp(dot(x, y) / mpf(scale)), [{}, {"scale": 2.5}]),
}


def periodic(x, y, period=1, lengthscale=1):
    of = ExpSineSquared(length_scale=lengthscale, periodicity=period)
    return np.prod([of(x[:, [j]], y[:, [j]]) for j in range(x.shape[1])], axis=0)


SKLEARN = {
    "linear": pairwise.linear_kernel,
    "poly": lambda x, y, degree=3, scale=1, offset=1: pairwise.polynomial_kernel(x, y, degree, scale, offset),
    "rbf": lambda x, y, lengthscale=1: pairwise.rbf_kernel(x, y, 0.5 / lengthscale**2),
    "laplacian": lambda x, y, lengthscale=1: pairwise.laplacian_kernel(x, y, 1 / lengthscale),
    "matern12": lambda x, y, lengthscale: Matern(lengthscale, nu=0.5)(x, y),
    "matern32": lambda x, y, lengthscale: Matern(lengthscale, nu=1.5)(x, y),
    "matern52": lambda x, y, lengthscale: Matern(lengthscale, nu=2.5)(x, y),
    "periodic": periodic,
    "cosine": pairwise.cosine_similarity,
}

cases = []
for name, (value, settings) in KERNELS.items():
    for given in settings:
        for inputs, x in INPUTS.items():
            values = np.array([[float(value(a, b, **given)) for b in x] for a in x])
            if name in SKLEARN:
                np.testing.assert_allclose(SKLEARN[name](x, x, **given), values, rtol=1e-12, atol=1e-12)
            arguments = ", ".join(f"{key}={v}" for key, v in given.items())
            kernel = f"{name}({arguments})" if arguments else name
            cases.append({"name": name, "kernel": kernel, "inputs": inputs, "values": values.tolist()})

versions = {"python": sys.version.split()[0], "mpmath": mpmath.__version__, "scikit-learn": sklearn.__version__, "numpy": np.__version__}
golden = {"versions": versions, "inputs": {key: x.tolist() for key, x in INPUTS.items()}, "cases": cases}
print(json.dumps(golden, indent=None, separators=(",", ":")).replace('{"name"', '\n{"name"'))

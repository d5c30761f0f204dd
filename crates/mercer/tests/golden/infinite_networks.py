"""Golden values of infinite networks, from neural-tangents in f64.

    pip install neural-tangents==0.6.5 jax==0.4.25 jaxlib==0.4.25 'numpy<2' 'scipy<1.13'
    python infinite_networks.py > infinite_networks.json

Each case: the kernel expressions' arguments, the inputs by name, K = nngp and Θ = ntk over all pairs of points."""
import json
import sys

import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import neural_tangents
from neural_tangents import stax

rng = np.random.default_rng(0)
# Two points a hair apart, one far away, one opposite to the first; no two parallel.
vectors = rng.normal(size=(6, 5))
vectors[1] = vectors[0] + 1e-3 * vectors[1]
vectors[2] *= 3
vectors[3] = -vectors[0] + 0.2 * vectors[3]
# Images [n, channels, height, width], stored channel by channel.
grey = rng.normal(size=(3, 1, 6, 6))
colour = rng.normal(size=(3, 3, 5, 7))
# Of norm √d, so that the inputs of the first layer have variance one.
unit = vectors * (5**0.5 / np.linalg.norm(vectors, axis=1, keepdims=True))
INPUTS = {"vectors": vectors, "small": vectors / 6, "unit": unit, "grey": grey, "colour": colour}

ACTIVATIONS = {
    "identity": stax.Identity(),
    "relu": stax.Relu(),
    "leaky_relu": stax.LeakyRelu(0.01),
    "leaky_relu(0.2)": stax.LeakyRelu(0.2),
    "ab_relu(-0.5, 2)": stax.ABRelu(-0.5, 2),
    "abs": stax.Abs(),
    "erf": stax.Erf(),
    "sin": stax.Sin(),
    "cos": stax.Cos(),
    "sign": stax.Sign(),
    "gaussian": stax.Gaussian(),
    "exp": stax.Exp(),
    "gelu": stax.Gelu(),
    "sigmoid_like": stax.Sigmoid_like(),
    "rbf(0.3)": stax.Rbf(0.3),
    "exp_normalized": stax.ExpNormalized(),
    "exp_normalized(0.5, -0.7)": stax.ExpNormalized(0.5, -0.7),
    # neural-tangents integrates these by Gauss-Hermite with deg² nodes.
    "tanh": stax.ElementwiseNumerical(jnp.tanh, deg=120),
    "sigmoid": stax.ElementwiseNumerical(jax.nn.sigmoid, deg=120),
    "softplus": stax.ElementwiseNumerical(jax.nn.softplus, deg=120),
}
# These grow as fast as their degree says.
POLYNOMIALS = {
    "polynomial(0.5, -1, 0, 0.25)": stax.Polynomial([0.5, -1, 0, 0.25]),
    "monomial(2)": stax.Monomial(2),
    "monomial(5)": stax.Monomial(5),
}
# Their formulas hold for inputs of variance one only.
HERMITE = {f"hermite({n})": stax.Hermite(n) for n in (1, 2, 3, 4)}
EVERY = {**ACTIVATIONS, **POLYNOMIALS, **HERMITE}
W, B = 1.7, 0.3


def dense(w=W, b=B):
    return stax.Dense(1, W_std=w**0.5, b_std=b**0.5)


def conv(size, stride=1, pad="SAME", w=W, b=B):
    return stax.Conv(1, (size, size), (stride, stride), pad, W_std=w**0.5, b_std=b**0.5)


def residual(body, shortcut=None):
    return stax.serial(stax.FanOut(2), stax.parallel(body, shortcut or stax.Identity()), stax.FanInSum())


def plain(depth, act, w, b):
    return stax.serial(*[layer for _ in range(depth) for layer in (dense(w, b), EVERY[act])], dense(w, b))


def cases():
    for act in ACTIVATIONS:
        # The exponential explodes with depth.
        w, b = (0.2, 0.1) if act == "exp" else (W, B)
        for depth in (1,) if act == "exp" else (1, 2, 4):
            # The error of quadratures grows with the deviation σ of the inputs: theirs is 3e-6 at σ = 1.7, ours 1e-9.
            inputs = "small" if act in ("tanh", "sigmoid", "softplus") else "vectors"
            yield f"depth={depth}, act={act}, w_var={w}, b_var={b}", inputs, plain(depth, act, w, b)
    for act in POLYNOMIALS:
        for depth in (1, 2):
            yield f"depth={depth}, act={act}, w_var=0.4, b_var=0.1", "vectors", plain(depth, act, 0.4, 0.1)
    for act in HERMITE:
        for depth in (1, 3):
            yield f"depth={depth}, act={act}, w_var=1, b_var=0", "unit", plain(depth, act, 1.0, 0.0)
    yield "depth=0, w_var=1.7, b_var=0.3", "vectors", dense()
    yield "depth=3, act=relu, w_var=2, b_var=0", "vectors", plain(3, "relu", 2.0, 0.0)
    relu, erf, gelu = (ACTIVATIONS[a] for a in ("relu", "erf", "gelu"))
    pool = lambda size, stride: stax.AvgPool((size, size), (stride, stride), "VALID")
    serial, rest = stax.serial, f"w_var={W}, b_var={B}"
    yield (f"'dense erf dense(100, w_var=0.8, b_var=0) relu dense', {rest}", "vectors",
           serial(dense(), erf, dense(0.8, 0.0), relu, dense()))
    yield (f"'dense res(relu dense relu dense) relu res(dense; dense(b_var=0)) dense', {rest}", "vectors",
           serial(dense(), residual(serial(relu, dense(), relu, dense())), relu,
                  residual(dense(), dense(W, 0.0)), dense()))
    for inputs in ("grey", "colour"):
        n, c, h, w = INPUTS[inputs].shape
        end = f"{rest}, shape={h}x{w}x{c}"
        yield f"'conv(3) relu flatten dense', {end}", inputs, serial(conv(3), relu, stax.Flatten(), dense())
        yield f"'conv(3) relu gap dense', {end}", inputs, serial(conv(3), relu, stax.GlobalAvgPool(), dense())
        yield (f"'conv(3, pad=valid) relu conv(2) erf gap dense', {end}", inputs,
               serial(conv(3, pad="VALID"), relu, conv(2), erf, stax.GlobalAvgPool(), dense()))
        yield (f"'conv(3, stride=2) gelu conv(2, stride=2, b_var=0) relu flatten dense relu dense', {end}", inputs,
               serial(conv(3, 2), gelu, conv(2, 2, b=0.0), relu, stax.Flatten(), dense(), relu, dense()))
        yield (f"'conv(3) relu conv(3, stride=2) relu gap dense', {end}", inputs,
               serial(conv(3), relu, conv(3, 2), relu, stax.GlobalAvgPool(), dense()))
        yield (f"'conv(3) relu avgpool(2) conv(3) relu gap dense', {end}", inputs,
               serial(conv(3), relu, pool(2, 2), conv(3), relu, stax.GlobalAvgPool(), dense()))
        yield (f"'conv(3) relu avgpool(3, stride=2) conv(2) relu avgpool(2, stride=1) flatten dense', {end}", inputs,
               serial(conv(3), relu, pool(3, 2), conv(2), relu, pool(2, 1), stax.Flatten(), dense()))
        yield (f"'conv(3) res(relu conv(3) relu conv(3)) relu gap dense', {end}", inputs,
               serial(conv(3), residual(serial(relu, conv(3), relu, conv(3))), relu, stax.GlobalAvgPool(), dense()))
        yield (f"'conv(3) res(relu conv(3, stride=2) relu conv(3); conv(1, stride=2)) relu flatten dense', {end}", inputs,
               serial(conv(3), residual(serial(relu, conv(3, 2), relu, conv(3)), conv(1, 2)), relu, stax.Flatten(), dense()))


def main():
    out = {
        "generator": "crates/mercer/tests/golden/infinite_networks.py",
        "versions": {"neural-tangents": neural_tangents.__version__, "jax": jax.__version__, "numpy": np.__version__},
        "inputs": {name: x.reshape(len(x), -1).tolist() for name, x in INPUTS.items()},
        "cases": [],
    }
    for arguments, inputs, (_, _, kernel_fn) in cases():
        x = INPUTS[inputs]
        x = x if x.ndim == 2 else x.transpose(0, 2, 3, 1)
        kernel = kernel_fn(x, None, ("nngp", "ntk"))
        values = {"nngp": np.asarray(kernel.nngp).tolist(), "ntk": np.asarray(kernel.ntk).tolist()}
        assert np.isfinite(np.asarray(kernel.ntk)).all(), arguments
        out["cases"].append({"arguments": arguments, "inputs": inputs, **values})
        print(arguments, file=sys.stderr)
    print(json.dumps(out))


if __name__ == "__main__":
    main()

"""Golden values of trained ensembles of infinite networks, from neural-tangents in f64.

    pip install neural-tangents==0.6.5 jax==0.4.25 jaxlib==0.4.25 'numpy<2' 'scipy<1.13'
    python ntk_ensemble.py > ntk_ensemble.json

Each case: the arguments of the kernel, a time (null for infinity), and the mean and covariance at the new points that
`nt.predict.gradient_descent_mse_ensemble` gives. Targets have mean zero and variance one."""
import json
import sys

import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import neural_tangents as nt
from neural_tangents import stax

rng = np.random.default_rng(0)
x, new = rng.normal(size=(15, 3)), rng.normal(size=(6, 3))
y = np.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:]
y = (y - y.mean()) / y.std()
ACTIVATIONS = {"relu": stax.Relu(), "erf": stax.Erf()}


def network(depth, act, w, b):
    dense = lambda: stax.Dense(1, W_std=w**0.5, b_std=b**0.5)
    return stax.serial(*[layer for _ in range(depth) for layer in (dense(), ACTIVATIONS[act])], dense())


cases = []
for depth, act, w, b in ((1, "erf", 2.0, 0.5), (3, "relu", 2.0, 0.1)):
    _, _, kernel = network(depth, act, w, b)
    predict = nt.predict.gradient_descent_mse_ensemble(kernel, x, y)
    for t in (0.0, 1.0, 100.0, 1e4, None):
        found = predict(t=t, x_test=new, get="ntk", compute_cov=True)
        cases.append({
            "arguments": f"depth={depth}, act={act}, w_var={w}, b_var={b}",
            "time": t,
            "mean": np.asarray(found.mean).tolist(),
            "covariance": np.asarray(found.covariance).tolist(),
        })

origin = {"neural_tangents": nt.__version__, "jax": jax.__version__, "numpy": np.__version__}
json.dump({"origin": origin, "x": x.tolist(), "y": y[:, 0].tolist(), "new": new.tolist(), "cases": cases}, sys.stdout)

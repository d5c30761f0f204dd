"""The empirical NTK by neural-tangents: a fully connected ReLU network, all pairs of outputs, on two threads.
`entk_peers.py SIZE REPEATS` with SIZE = d-h-…-c-N prints one line of JSON: seconds by structured derivatives (the fastest,
used for the comparison), by NTK-vector products and by Jacobian contraction (fewer repeats), all compiled before timing."""
import json
import os
import resource
import statistics
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads=2"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))

import jax
import neural_tangents as nt
from neural_tangents import stax


def main(size, repeats):
    d, *hidden, c, n = map(int, size.split("-"))
    layers = [layer for h in hidden for layer in (stax.Dense(h, parameterization="standard"), stax.Relu())]
    init, apply, _ = stax.serial(*layers, stax.Dense(c, parameterization="standard"))
    x = jax.random.normal(jax.random.PRNGKey(1), (n, d))
    _, params = init(jax.random.PRNGKey(0), x.shape)
    runs = {}
    for name in ("STRUCTURED_DERIVATIVES", "NTK_VECTOR_PRODUCTS", "JACOBIAN_CONTRACTION"):
        kernel = jax.jit(nt.empirical_ntk_fn(apply, trace_axes=(), vmap_axes=0,
                                             implementation=nt.NtkImplementation[name]))
        kernel(x, None, params).block_until_ready()
        seconds = runs[name.lower()] = []
        for _ in range(repeats if name.startswith("STRUCTURED") else max(2, repeats // 10)):
            start = time.perf_counter()
            theta = kernel(x, None, params).block_until_ready()
            seconds.append(time.perf_counter() - start)
        assert theta.shape == (n, n, c, c)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    others = {name: statistics.median(s) for name, s in runs.items() if name != "structured_derivatives"}
    print(json.dumps({"seconds": runs["structured_derivatives"], "others": others, "peak_bytes": peak,
                      "neural_tangents": nt.__version__, "jax": jax.__version__}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

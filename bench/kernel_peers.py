"""Kernels of infinite networks by the peers: `kernel_peers.py PEER JOB REPEATS` prints one line of JSON. PEER is
neural-tangents (compiled, after a warm-up) or torch (the recursion in place); JOB is ntk-N, the NTK of three hidden ReLU
layers on N points of 784 columns, or conv-N, the NTK of three convolutions, each followed by a ReLU, and global average
pooling on N images of 32×32×3."""
import json
import math
import resource
import sys
import time

import numpy as np

W = 2.0


def data(job):
    kind, n = job.split("-")
    shape = (int(n), 784) if kind == "ntk" else (int(n), 32, 32, 3)
    # A formula instead of a random generator, so that all sides have the same data.
    i = np.arange(math.prod(shape), dtype=np.float64)
    x = np.sin(i * 12.9898 + 0.5) * 43758.5453
    return kind, (x - np.floor(x)).reshape(shape).astype(np.float32)


def neural_tangents(kind, x):
    import jax
    from neural_tangents import batch, stax
    dense = lambda: stax.Dense(1, W_std=W**0.5, b_std=0)
    conv = lambda: stax.Conv(1, (3, 3), padding="SAME", W_std=W**0.5, b_std=0)
    hidden = [layer() for _ in range(3) for layer in (dense if kind == "ntk" else conv, stax.Relu)]
    _, _, kernel_fn = stax.serial(*hidden, *([] if kind == "ntk" else [stax.GlobalAvgPool()]), dense())
    if kind == "ntk":
        ntk = jax.jit(lambda x: kernel_fn(x, None, "ntk"))
    else:
        # One pair of images has a covariance of 4 MB, so the pairs are computed in batches.
        ntk = batch(jax.jit(lambda x1, x2, get: kernel_fn(x1, x2, get), static_argnums=2), batch_size=4, device_count=0)
        ntk = lambda x, f=ntk: f(x, None, "ntk")
    x = jax.numpy.asarray(x)
    return lambda: np.asarray(jax.block_until_ready(ntk(x)))


def torch_formula(kind, x):
    import torch
    assert kind == "ntk"
    torch.set_num_threads(2)
    x = torch.from_numpy(x)

    def ntk():
        k = (x @ x.T).mul_(W / x.shape[1])
        norms = k.diagonal().clone()
        theta = k.clone()
        for _ in range(3):
            # cos θ, then K ← ½·W·(√(ab) sin θ + (π−θ) k)/π and Θ ← K + ½·W·Θ (π−θ)/π; the variances are constant because W = 2.
            roots = norms.sqrt()
            outer = roots[:, None] * roots
            cos = (k / outer).clamp_(-1, 1)
            rest = math.pi - torch.acos(cos)
            k = (1 - cos.square()).sqrt_().add_(rest * cos).mul_(outer).mul_(W / (2 * math.pi))
            theta.mul_(rest).mul_(W / (2 * math.pi)).add_(k)
        return theta
    return lambda: ntk().numpy()


def main(peer, job, repeats):
    work = {"neural-tangents": neural_tangents, "torch": torch_formula}[peer](*data(job))
    value = work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        value = work()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": peak, "check": [float(value[0, 1]), float(value[3, 7])]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

"""A NeuralEF training step by PyTorch: a batch of the data, its RBF kernel matrix, k networks d -> h -> h -> 1 as one
batched network (no loop over k), gradient, fused Adam. `neural_peers.py SIZE REPEATS` with SIZE = d-h-k-B prints one line
of JSON.

Four forms are timed, and the fastest is used: the first layer as a broadcast batched product or as one wide product for all
networks, each eager and by torch.compile."""
import json
import resource
import statistics
import sys
import time

import torch

BATCHES = 16  # Number of batches in the data.


def step_of(d, h, k, b, wide, compiled):
    generator = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=generator)
    w1 = normal(d, k * h) / d**0.5 if wide else normal(k, d, h) / d**0.5
    shapes = [w1, normal(k, 1, h), normal(k, h, h) / h**0.5, normal(k, 1, h), normal(k, h, 1) / h**0.5, normal(k, 1, 1)]
    w1, b1, w2, b2, w3, b3 = parameters = [p.requires_grad_() for p in shapes]
    adam = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    data = normal(BATCHES * b, d)
    half = h // 2
    sincos = lambda z: torch.cat([z[..., :half].sin(), z[..., half:].cos()], -1)
    lower = torch.tril(torch.ones(k, k), -1)

    def forward(x):
        first = (x @ w1).view(b, k, h).transpose(0, 1) if wide else x @ w1
        z = sincos(first + b1)
        z = sincos(torch.baddbmm(b2, z, w2))
        y = torch.baddbmm(b3, z, w3)[..., 0]  # [k, B]
        return y / y.square().mean(1, keepdim=True).sqrt()

    def gradient(x, psi):
        # exp(-|x-x'|^2 / 2d), in place: twice as fast as with torch.cdist.
        norms = x.square().sum(1) / 2
        kernel = (x @ x.T).sub_(norms).sub_(norms[:, None]).div_(d).exp_()
        k_psi = psi @ kernel
        r = psi @ k_psi.T
        mix = (r / r.diagonal()[:, None].clamp_min(1e-12)).T * lower
        return -2 / b**2 * (k_psi - mix @ k_psi)

    if compiled:
        forward, gradient = torch.compile(forward), torch.compile(gradient)

    def step():
        x = data[torch.randint(len(data), (b,), generator=generator)]
        psi = forward(x)
        with torch.no_grad():
            g = gradient(x, psi)
        adam.zero_grad(set_to_none=True)
        psi.backward(g)
        adam.step()
        return psi
    return step


def main(size, repeats):
    torch.set_num_threads(2)
    d, h, k, b = map(int, size.split("-"))
    runs = {}
    forms = [(name + how, wide, bool(how)) for name, wide in (("batched", False), ("wide", True)) for how in ("", ", compiled")]
    for name, wide, compiled in forms:
        step = step_of(d, h, k, b, wide, compiled)
        for _ in range(5):
            step()
        seconds = runs[name] = []
        for _ in range(repeats):
            start = time.perf_counter()
            psi = step()
            seconds.append(time.perf_counter() - start)
        assert torch.isfinite(psi).all()
    best = min(runs, key=lambda name: statistics.median(runs[name]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    medians = {name: statistics.median(seconds) for name, seconds in runs.items()}
    print(json.dumps({"seconds": runs[best], "first_layer": best, "forms": medians, "peak_bytes": peak,
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""The peers' jobs of the GPU comparison: `peers.py JOB [N]` prints one line of JSON with the milliseconds of each repeat. N is
the number of points of a product, to try a job out on few.

All jobs are written as a user of PyTorch would write them, with the data on the GPU; `_compiled` jobs use torch.compile,
`_graph` jobs replay the whole training step as one CUDA graph, `_tf32` jobs allow TF32 in matrix products, and `_keops` jobs
are the same product by KeOps, which has no TF32."""
import json
import statistics
import sys

import torch

N, D, COLUMNS, LENGTHSCALE = 65536, 64, 16, 8.0
BATCHES = 16  # Number of batches in the data of a training step.


def timed(work, repeats=10, warm_up=3):
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        result = work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return times, result


def points(n, dtype, d=D):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator)
    v = torch.randn(n, COLUMNS, generator=generator)
    return x.to("cuda", dtype), v.to("cuda", dtype)


def rbf_kv(x, v):
    norms = (x * x).sum(1)
    squares = norms[:, None] + norms[None, :] - 2 * (x @ x.T)
    return torch.exp(squares.clamp_min(0) * (-0.5 / LENGTHSCALE**2)) @ v


def keops_kv(x, v):
    from pykeops.torch import LazyTensor
    squares = LazyTensor(x[:, None, :]).sqdist(LazyTensor(x[None, :, :]))
    return (squares * (-0.5 / LENGTHSCALE**2)).exp() @ v


def relu_ntk_kv(x, v):
    """NTK of a net with three hidden ReLU layers, weight variance 2, no biases."""
    d = x.shape[1]
    q = 2 * (x * x).sum(1) / d  # constant through the layers: the ReLU halves it, the weight variance doubles it
    k = 2 * (x @ x.T) / d
    root = (q[:, None] * q[None, :]).sqrt()
    theta = k
    for _ in range(3):
        cos = (k / root).clamp(-1, 1)
        angle = torch.acos(cos)
        slope = (torch.pi - angle) / torch.pi
        k = root / torch.pi * ((1 - cos * cos).clamp_min(0).sqrt() + (torch.pi - angle) * cos)
        theta = k + theta * slope
    return theta @ v


def neuralef_step(d, h, k, b, capturable):
    generator = torch.Generator("cuda").manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=generator, device="cuda")
    shapes = [normal(k, d, h) / d**0.5, normal(k, 1, h), normal(k, h, h) / h**0.5, normal(k, 1, h),
              normal(k, h, 1) / h**0.5, normal(k, 1, 1)]
    w1, b1, w2, b2, w3, b3 = parameters = [p.requires_grad_() for p in shapes]
    adam = torch.optim.Adam(parameters, lr=1e-3, fused=True, capturable=capturable)
    data = normal(BATCHES * b, d)
    half = h // 2
    sincos = lambda z: torch.cat([z[..., :half].sin(), z[..., half:].cos()], -1)
    lower = torch.tril(torch.ones(k, k, device="cuda"), -1)

    def forward(x):
        z = sincos(x @ w1 + b1)
        z = sincos(torch.baddbmm(b2, z, w2))
        y = torch.baddbmm(b3, z, w3)[..., 0]
        return y / y.square().mean(1, keepdim=True).sqrt()

    def gradient(x, psi):
        norms = x.square().sum(1) / 2
        kernel = (x @ x.T).sub(norms).sub(norms[:, None]).div(d).exp()
        k_psi = psi @ kernel
        r = psi @ k_psi.T
        mix = (r / r.diagonal()[:, None].clamp_min(1e-12)).T * lower
        return -2 / b**2 * (k_psi - mix @ k_psi)

    return data, generator, adam, forward, gradient


def recorded(step, generator, warm_up=10):
    """The step as one CUDA graph, after a warm-up on another stream, as PyTorch's documentation says."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        psi = step()

    def replay():
        graph.replay()
        return psi
    return replay


def training(size, compiled, graphed):
    d, h, k, b = map(int, size.split("-"))
    data, generator, adam, forward, gradient = neuralef_step(d, h, k, b, graphed)
    if compiled:
        forward, gradient = torch.compile(forward), torch.compile(gradient)

    def step():
        x = data[torch.randint(len(data), (b,), generator=generator, device="cuda")]
        psi = forward(x)
        with torch.no_grad():
            g = gradient(x, psi)
        adam.zero_grad(set_to_none=True)
        psi.backward(g)
        adam.step()
        return psi

    return timed(recorded(step, generator) if graphed else step, repeats=50, warm_up=10)


def main(job, n):
    parts = job.split("_")
    torch.set_float32_matmul_precision("high" if "tf32" in parts else "highest")
    compiled = "compiled" in parts
    if parts[0] == "limit":
        side = 8192
        if parts[1] == "copy":
            a = torch.randn(1 << 30, device="cuda")
            times, result = timed(lambda: a.clone())
            return {"ms": times, "rate": 8 * a.numel() / (statistics.median(times) / 1e3)}
        a = torch.randn(side, side, device="cuda")
        times, result = timed(lambda: a @ a)
        return {"ms": times, "rate": 2 * side**3 / (statistics.median(times) / 1e3)}
    if parts[0] == "neuralef":
        times, result = training(parts[1], compiled, "graph" in parts)
        assert torch.isfinite(result).all()
        return {"ms": times}
    million = parts[0] == "million"
    x, v = points(n or (1_000_000 if million else N), torch.float64 if "f64" in parts else torch.float32)
    work = keops_kv if "keops" in parts else {"rbf": rbf_kv, "ntk": relu_ntk_kv}[parts[0]]
    work = torch.compile(work) if compiled else work
    with torch.no_grad():
        times, result = timed(lambda: work(x, v), *((2, 1) if million else ()))
    assert torch.isfinite(result).all()
    answer = {"ms": times}
    if parts[0] in ("rbf", "million"):
        # Against the first rows of the product in double precision.
        few, x, v = 64, x.double(), v.double()
        exact = torch.exp(torch.cdist(x[:few], x).square() * (-0.5 / LENGTHSCALE**2)) @ v
        answer["error"] = float((result[:few] - exact).norm() / exact.norm())
    if "keops" in parts:
        import pykeops
        answer["keops"] = pykeops.__version__
    return answer


if __name__ == "__main__":
    answer = main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
    print(json.dumps({"job": sys.argv[1], "torch": torch.__version__, **answer}))

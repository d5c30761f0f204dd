#!/usr/bin/env python3
"""A training step of ResNet-18 (in its CIFAR form) on pairs of views, Mercer and PyTorch one after the other on one GPU.

    python3 bench/gpu/resnet18.py PATH/mercer-bench [--pairs 512] [--k 256] [--out results/resnet18.json]

Both make the same views (crops, flip, colour, grey) of images that are on the GPU, pass 2 B views through ResNet-18 and a projector
512-2048-k with batch norms over both views, take the loss of Neural Eigenmap, go back, and step by SGD with momentum. PyTorch has channels last, bf16
autocast, torch.compile (of network, loss and views) and cuDNN's search for the fastest algorithm; Mercer has bf16 and a CUDA graph. `pass` is forward and
backward through the network alone, `step` is all of it."""
import argparse
import json
import pathlib
import subprocess
import time

import torch
import torch.nn.functional as F
from torch import nn

from resnet import trunk


def network(k):
    projector = [nn.Linear(512, 2048), nn.BatchNorm1d(2048), nn.ReLU(), nn.Linear(2048, k)]
    return nn.Sequential(*trunk((64, 128, 256, 512), 2), *projector).cuda().to(memory_format=torch.channels_last)


def views(x):
    """Two views of each image of x [B, 3, 32, 32] in bytes, one after the other."""
    x = x.float().repeat_interleave(2, 0) / 255
    n, uniform = len(x), lambda low, high: low + (high - low) * torch.rand(len(x), device="cuda")
    area, ratio = uniform(0.2, 1.0), uniform(-0.2877, 0.2877).exp()
    tall, wide = (area / ratio).sqrt().clamp(max=1), (area * ratio).sqrt().clamp(max=1)
    top, left = uniform(0, 1) * (1 - tall), uniform(0, 1) * (1 - wide)
    flip = torch.where(torch.rand(n, device="cuda") < 0.5, -1.0, 1.0)
    zero = torch.zeros(n, device="cuda")
    theta = torch.stack([wide * flip, zero, 2 * left + wide - 1, zero, tall, 2 * top + tall - 1], 1).view(n, 2, 3)
    x = F.grid_sample(x, F.affine_grid(theta, (n, 3, 32, 32), align_corners=False), align_corners=False, padding_mode="border")
    of = lambda v: v.view(n, 1, 1, 1)
    luminance = lambda v: (v * torch.tensor([0.299, 0.587, 0.114], device="cuda").view(1, 3, 1, 1)).sum(1, keepdim=True)
    coloured = (x * of(uniform(0.6, 1.4))).clamp(0, 1)
    coloured = ((mean := luminance(coloured).mean((2, 3), keepdim=True)) + of(uniform(0.6, 1.4)) * (coloured - mean)).clamp(0, 1)
    coloured = ((y := luminance(coloured)) + of(uniform(0.6, 1.4)) * (coloured - y)).clamp(0, 1)
    turn = of(uniform(-0.628, 0.628))
    r, g, b = coloured.unbind(1)
    p, q = (0.596 * r - 0.274 * g - 0.322 * b)[:, None], (0.211 * r - 0.523 * g + 0.312 * b)[:, None]
    p, q, y = turn.cos() * p - turn.sin() * q, turn.sin() * p + turn.cos() * q, luminance(coloured)
    coloured = torch.cat([y + 0.956 * p + 0.621 * q, y - 0.272 * p - 0.647 * q, y - 1.106 * p + 1.703 * q], 1).clamp(0, 1)
    x = torch.where(of(torch.rand(n, device="cuda")) < 0.8, coloured, x)
    x = torch.where(of(torch.rand(n, device="cuda")) < 0.2, luminance(x).expand_as(x), x)
    return ((x - 0.47) / 0.25).contiguous(memory_format=torch.channels_last)


def loss_of(psi, k):
    psi = psi.float()
    psi = psi / psi.square().mean(0).sqrt()
    a, b = psi[0::2], psi[1::2]
    r = (a.detach().T @ b + b.detach().T @ a) / len(psi)
    return -(a * b).mean(0).sum() + 205 / k * r.triu(1).square().sum()


def timed(run, repeats=30):
    for _ in range(8):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / repeats


def pytorch(pairs, k, ways):
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    found = {}
    images = torch.randint(0, 256, (10_000, 3, 32, 32), dtype=torch.uint8, device="cuda")
    x = torch.randn(2 * pairs, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
    g = torch.randn(2 * pairs, k, device="cuda")
    for how in ways:
        net = network(k)
        if how == "tf32_eager":
            net, x_now = net.to(memory_format=torch.contiguous_format), x.contiguous()
        else:
            x_now = x
        run_net = torch.compile(net) if how.endswith("compiled") else net
        make, loss = (torch.compile(views), torch.compile(loss_of)) if how.endswith("compiled") else (views, loss_of)
        autocast = lambda: torch.autocast("cuda", torch.bfloat16, enabled=how.startswith("bf16"))
        sgd = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, fused=True)

        def one_pass():
            for parameter in net.parameters():
                parameter.grad = None
            with autocast():
                y = run_net(x_now)
            y.backward(g.to(y.dtype))

        def step():
            sgd.zero_grad(set_to_none=True)
            rows = torch.randint(0, len(images), (pairs,), device="cuda")
            batch = make(images[rows])
            with autocast():
                y = run_net(batch)
            loss(y, k).backward()
            sgd.step()

        started = time.perf_counter()
        found[how] = {"pass_ms": timed(one_pass), "step_ms": timed(step)}
        found[how]["seconds"] = time.perf_counter() - started
        print(how, {key: round(value, 2) for key, value in found[how].items()}, flush=True)
    return found


def parts(pairs):
    """Milliseconds of every convolution forward, by the input and by the weights."""
    found, images = {}, 2 * pairs
    for c, o, side, size, stride in ((8, 64, 32, 3, 1), (64, 64, 32, 3, 1), (64, 128, 32, 3, 2), (64, 128, 32, 1, 2), (128, 128, 16, 3, 1),
                                     (128, 256, 16, 3, 2), (256, 256, 8, 3, 1), (256, 512, 8, 3, 2), (512, 512, 4, 3, 1)):
        last = dict(device="cuda", dtype=torch.bfloat16)
        x = torch.randn(images, c, side, side, **last).contiguous(memory_format=torch.channels_last)
        w = torch.randn(o, c, size, size, **last).contiguous(memory_format=torch.channels_last)
        g = torch.randn(images, o, side // stride, side // stride, **last).contiguous(memory_format=torch.channels_last)
        back = lambda mask: torch.ops.aten.convolution_backward(g, x, w, None, [stride] * 2, [size // 2] * 2, [1, 1], False, [0, 0], 1, mask)
        tflop = 2e-12 * images * (side // stride) ** 2 * o * c * size * size
        runs = (lambda: F.conv2d(x, w, stride=stride, padding=size // 2), lambda: back([True, False, False]), lambda: back([False, True, False]))
        found[f"conv {c}-{o} {side} {size}/{stride}"] = [[ms := timed(run, 20), 1e3 * tflop / ms] for run in runs]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--pairs", type=int, default=512)
    parser.add_argument("--k", type=int, default=256)
    parser.add_argument("--ways", default="tf32_eager,bf16_eager,bf16_compiled", help="how PyTorch runs, bf16_compiled among them")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "results/resnet18.json")
    options = parser.parse_args()
    ours = {}
    jobs = [f"pass_{options.k}-{options.pairs}_{math}" for math in ("bf16", "tf32")]
    jobs += [f"resnet18_eigenmap-{options.k}-{options.pairs}_{math}" for math in ("bf16", "tf32")] + [f"views_{options.pairs}_f32", f"parts_{options.pairs}_bf16"]
    for job in jobs:
        done = subprocess.run([options.bench, f"gpu-{job}", ".", "30"], capture_output=True, text=True)
        ours[job] = json.loads(done.stdout) if done.returncode == 0 else done.stderr[-300:]
        print(job, ours[job], flush=True)
    theirs = pytorch(options.pairs, options.k, options.ways.split(","))
    theirs["parts"] = parts(options.pairs)
    print("parts", {key: [[round(v, 3) for v in pair] for pair in value] for key, value in theirs["parts"].items()})
    result = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "pairs": options.pairs, "k": options.k, "mercer": ours, "pytorch": theirs}
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    for what, job in (("pass", jobs[0]), ("step", jobs[2])):
        if isinstance(ours[job], dict):
            print(f"{what}: {theirs['bf16_compiled'][what + '_ms'] / ours[job]['ms']:.2f} times PyTorch's throughput")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""ResNet-20 on CIFAR-10, Mercer and PyTorch one after the other on one GPU: accuracy and seconds per epoch.

    python3 bench/gpu/resnet.py PATH/mercer FOLDER --epochs 100

FOLDER contains cifar-10/data_batch_1.bin and so on (as MERCER_DATA). PyTorch runs only a few epochs, to measure its time:
eager, TF32 convolutions (its default), data and augmentation on the GPU, batches of 128, SGD with momentum."""
import argparse
import json
import os
import pathlib
import subprocess
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.short = nn.Identity() if stride == 1 and cin == cout else nn.Sequential(
            nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.short(x))


def trunk(widths, blocks):
    """The layers of a ResNet in its CIFAR form, with so many blocks of each width, up to the mean over positions."""
    cin = widths[0]
    layers = [nn.Conv2d(3, cin, 3, 1, 1, bias=False), nn.BatchNorm2d(cin), nn.ReLU()]
    for stage, cout in enumerate(widths):
        for i in range(blocks):
            layers.append(Block(cin, cout, 2 if stage > 0 and i == 0 else 1))
            cin = cout
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def resnet20():
    return nn.Sequential(*trunk((16, 32, 64), 3), nn.Linear(64, 10)).cuda()


def augmented(x):
    n, pad = len(x), F.pad(x, (4, 4, 4, 4))
    rows = torch.randint(0, 9, (n, 1, 1, 1), device="cuda") + torch.arange(32, device="cuda")[:, None]
    cols = torch.randint(0, 9, (n, 1, 1, 1), device="cuda") + torch.arange(32, device="cuda")[None, :]
    flip = torch.rand(n, 1, 1, 1, device="cuda") < 0.5
    cols = torch.where(flip, cols.flip(-1), cols)
    return pad[torch.arange(n, device="cuda")[:, None, None, None], torch.arange(3, device="cuda")[:, None, None], rows, cols]


def pytorch(folder, epochs=4):
    data = np.concatenate([np.fromfile(folder / f"cifar-10/data_batch_{i}.bin", np.uint8).reshape(-1, 3073) for i in range(1, 6)])
    y = torch.tensor(data[:, 0], dtype=torch.long).cuda()
    x = torch.tensor(data[:, 1:]).cuda().float().view(-1, 3, 32, 32) / 255
    x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
    net = resnet20()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=True)
    seconds = []
    for _ in range(epochs):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for rows in torch.randperm(len(x), device="cuda").split(128):
            sgd.zero_grad(set_to_none=True)
            F.cross_entropy(net(augmented(x[rows])), y[rows]).backward()
            sgd.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mercer")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--epochs", default="100")
    parser.add_argument("--out", default=pathlib.Path(__file__).resolve().parent.parent / "results/resnet.json", type=pathlib.Path)
    options = parser.parse_args()
    theirs = pytorch(options.folder)
    print(f"PyTorch {torch.__version__}: {min(theirs[1:]):.2f} s an epoch", flush=True)
    command = [options.mercer, "train", "cifar-10", "--net", "resnet20", "--epochs", options.epochs, "--device", "cuda:0",
               "--json", "--out", str(options.out.with_suffix(".safetensors"))]
    done = subprocess.run(command, env=os.environ | {"MERCER_DATA": str(options.folder)}, stdout=subprocess.PIPE, text=True)
    ours = json.loads(done.stdout)
    options.out.write_text(json.dumps({"pytorch_seconds": theirs, "torch": torch.__version__, "mercer": ours}, indent=1) + "\n")
    print(json.dumps({key: value for key, value in ours.items() if key != "history"})[:1500])


if __name__ == "__main__":
    main()

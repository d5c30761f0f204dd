"""Eigenfunctions by networks as a PyTorch module."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def _sincos(z: Tensor) -> Tensor:
    """Sines of the first half of the units, cosines of the others."""
    half = z.shape[-1] // 2
    return torch.cat([z[..., :half].sin(), z[..., half:].cos()], -1)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda z: z,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "cos": torch.cos,
    "sincos": _sincos,
    "erf": torch.erf,
    "gelu": nn.functional.gelu,
}


class Eigenfunctions(nn.Module):
    """`x ↦ ψ(x)` `[n, k]` of a spectrum found by networks of dense layers; all its numbers can be trained further.

    Made by `mercer.torch.eigenfunctions`.
    """

    def __init__(self, header: dict[str, Any], parameters: np.ndarray, coefficients: np.ndarray) -> None:
        super().__init__()
        standard = header["features.standard"]
        self.register_buffer("centre", torch.tensor(standard["centre"], dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(standard["scale"], dtype=torch.float64))
        self.units = header["features.layout"] == "units"
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        self.activations: list[str] = []
        self._build(header["features.architecture"], header["features.networks"], parameters.ravel().astype(np.float32))
        self.coefficients = nn.Parameter(torch.from_numpy(coefficients.copy()))

    def _build(self, architecture: str, networks: int, numbers: np.ndarray) -> None:
        """Layers of `trunk | heads`: the trunk's numbers come first, then those of each network, W row by row and then b."""
        parts = architecture.split("|")
        shared = [1] * (len(parts) - 1) + [networks]
        width, start = len(self.centre), 0
        for copies, part in zip(shared, parts, strict=True):
            sizes: list[tuple[int, int]] = []
            for name, arguments in re.findall(r"(\w+)(?:\(([^)]*)\))?", part):
                if name == "dense":
                    sizes.append((width, int(arguments.split(",")[0])))
                    width = sizes[-1][1]
                    self.activations.append("identity")
                elif name in _ACTIVATIONS and self.activations and not arguments:
                    self.activations[-1] = name
                else:
                    raise ValueError(f"a network \"{architecture}\" cannot be made a PyTorch module: it has the layer {name}")
            length = sum(a * b + b for a, b in sizes)
            block = numbers[start : start + copies * length].reshape(copies, -1)
            if block.shape[1] != length:
                raise ValueError(f"a network \"{architecture}\" cannot be made a PyTorch module: it has layers without a bias")
            start, at = start + copies * length, 0
            for a, b in sizes:
                self.weights.append(nn.Parameter(torch.from_numpy(block[:, at : at + a * b].reshape(copies, a, b).copy())))
                self.biases.append(nn.Parameter(torch.from_numpy(block[:, at + a * b : at + a * b + b].reshape(copies, 1, b).copy())))
                at += a * b + b
        if start != len(numbers) or (not self.units and width != 1):
            raise ValueError(f"a network \"{architecture}\" cannot be made a PyTorch module: its functions have {width} outputs")

    def forward(self, x: Tensor) -> Tensor:
        """`ψ(x)` `[n, k]` at points `[n, d]`."""
        h = ((x.double() - self.centre) / self.scale).float()[None]
        for weight, bias, activation in zip(self.weights, self.biases, self.activations, strict=True):
            h = _ACTIVATIONS[activation](h @ weight + bias)
        phi = h[0] if self.units else h[..., 0].T
        return phi.double() @ self.coefficients

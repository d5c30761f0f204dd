"""PyTorch: tangent kernels, function samples and uncertainty of any `nn.Module`, by `torch.func`.

Outputs and derivatives are computed by PyTorch on the module's device, a few rows at a time; the rest is the library's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, jacrev, jvp, vmap

from . import _mercer
from ._base import as_array, as_json, seed_of
from ._eigen_module import Eigenfunctions
from ._spectrum import Spectrum

__all__ = ["Eigenfunctions", "Laplace", "eigenfunctions", "function_samples", "jacobian", "laplace", "ntk"]


def _state(module: torch.nn.Module) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Trained parameters, and everything else that the module keeps."""
    trained = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    fixed = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    return trained, fixed | {name: b.detach() for name, b in module.named_buffers()}


def _outputs(module: torch.nn.Module, parameters: dict[str, torch.Tensor], fixed: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """`g(x, θ)` `[b, C]`; the module is evaluated as it is in `eval` mode."""
    g = functional_call(module, (parameters, fixed), (x,))
    return g[:, None] if g.ndim == 1 else g


class _Evaluating:
    """The module in `eval` mode, and back in the mode that it was in."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module, self.training = module, module.training

    def __enter__(self) -> None:
        self.module.eval()

    def __exit__(self, *_: object) -> None:
        self.module.train(self.training)


def _batches(x: torch.Tensor, size: int) -> Iterator[torch.Tensor]:
    yield from torch.split(x, size)


def eigenfunctions(spectrum: Spectrum) -> Eigenfunctions:
    """The functions of a fitted spectrum as a module, to be trained further; for methods by networks of dense layers.

    >>> from mercer import NeuralEigenfunctions
    >>> x = np.linspace(-2, 2, 100)[:, None]
    >>> neural = NeuralEigenfunctions(n_components=2, kernel="rbf(1)", steps=10).fit(x)
    >>> psi = eigenfunctions(neural)(torch.from_numpy(x))
    >>> bool(np.allclose(psi.detach(), neural.transform(x), atol=1e-4))
    True
    """
    header = json.loads(spectrum.model_.header())
    if header["features"] != "networks":
        raise ValueError(f"the method {header['origin']['method']} has no networks; use NeuralEigenfunctions")
    return Eigenfunctions(header, spectrum.model_.matrix("parameters"), spectrum.model_.matrix("coefficients"))


def jacobian(module: torch.nn.Module, x: torch.Tensor, *, batch_size: int = 64) -> torch.Tensor:
    """`J(x) = ∂g(x, θ)/∂θ` `[n, C, P]` by all trained parameters.

    >>> net = torch.nn.Linear(2, 3)
    >>> jacobian(net, torch.ones(4, 2)).shape
    torch.Size([4, 3, 9])
    """
    trained, fixed = _state(module)

    def one(parameters: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        return _outputs(module, parameters, fixed, row[None])[0]

    parts = []
    with _Evaluating(module):
        for rows in _batches(x, batch_size):
            found = vmap(jacrev(one), (None, 0))(trained, rows)
            parts.append(torch.cat([j.flatten(2) for j in found.values()], 2))
    return torch.cat(parts)


def ntk(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor | None = None, *, trace: bool = False, batch_size: int = 64) -> torch.Tensor:
    """The empirical tangent kernel `Θ(x,y) = J(x) J(y)ᵀ` `[n, m, C, C]`, or with `trace` its mean over the outputs `[n, m]`.

    >>> net = torch.nn.Linear(2, 1)
    >>> ntk(net, torch.tensor([[1.0, 2.0], [0.0, 1.0]]), trace=True)
    tensor([[6., 3.],
            [3., 2.]])
    """
    left = jacobian(module, x, batch_size=batch_size)
    right = left if y is None else jacobian(module, y, batch_size=batch_size)
    if trace:
        return torch.einsum("ncp,mcp->nm", left, right) / left.shape[1]
    return torch.einsum("ncp,mdp->nmcd", left, right)


def function_samples(module: torch.nn.Module, x: torch.Tensor, count: int, *, random_state: Any = 0, batch_size: int = 1024) -> np.ndarray:
    """`F` `[S, n, C]` with `FᵀF/S ≈ Θ`: derivatives of the outputs along `count` random directions of ±1.

    `mercer.Spectrum().fit_samples(F)` decomposes the tangent kernel without forming it.

    >>> net = torch.nn.Linear(2, 1)
    >>> function_samples(net, torch.ones(5, 2), 8).shape
    (8, 5, 1)
    """
    trained, fixed = _state(module)
    generator = torch.Generator().manual_seed(seed_of(random_state))

    def along(direction: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        return jvp(lambda parameters: _outputs(module, parameters, fixed, rows), (trained,), (direction,))[1]

    samples = []
    with _Evaluating(module), torch.no_grad():
        for few in torch.split(torch.arange(count), _TOGETHER):
            directions = {name: _signs(len(few), p, generator) for name, p in trained.items()}
            parts = [vmap(along, (0, None))(directions, rows) for rows in _batches(x, batch_size)]
            samples.append(torch.cat(parts, 1).double().cpu().numpy())
    return np.concatenate(samples)


#: Directions that are taken together.
_TOGETHER = 32


def _signs(count: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    bits = torch.randint(0, 2, (count, *like.shape), generator=generator)
    return (2 * bits - 1).to(like)


class Laplace:
    """A module with the uncertainty of its outputs. Made by `laplace`."""

    def __init__(self, module: torch.nn.Module, model: _mercer.Model, functions: dict[str, Any], classes: np.ndarray | None) -> None:
        self.module, self.model_, self.classes_ = module, model, classes
        self._functions = functions
        self.header_ = json.loads(model.header())

    @property
    def prior_precision_(self) -> float:
        """τ, found on the validation rows."""
        return self.header_["found"]["value"]

    def predict_proba(self, x: Any) -> np.ndarray:
        """Probabilities of the classes `[m, C]`, by the probit approximation."""
        found = self.model_.probabilities(self.model_.scores(_rows(self.module, x, **self._functions)))
        if found is None:
            raise ValueError("the network predicts a number; use predict")
        return found

    def predict(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """The number `[m]` and its standard deviation `[m]`, the noise included."""
        rows = _rows(self.module, x, **self._functions)
        deviations = self.model_.deviations(rows)
        if deviations is None:
            raise ValueError("the network predicts classes; use predict_proba")
        return self.model_.scores(rows)[:, 0], deviations


def _inputs(module: torch.nn.Module, x: Any) -> torch.Tensor:
    """A tensor as it is; anything else in the type and on the device of the module."""
    if isinstance(x, torch.Tensor):
        return x
    x, like = torch.as_tensor(np.asarray(x)), next(module.parameters(), None)
    return x.to(like) if like is not None and x.is_floating_point() else x


def _targets(y: np.ndarray, outputs: int) -> np.ndarray:
    """Targets `[n]` of a network with so many outputs: floats of one output, else classes."""
    if y.shape[1:] not in ((), (1,)):
        raise ValueError(f"laplace takes one number or one class for each row, and these targets have the shape {list(y.shape)}")
    y = y.reshape(len(y))
    if outputs == 1:
        if y.dtype.kind != "f":
            raise ValueError(f"a network with one output predicts a number, and these targets are {y.dtype}; give floats, or a network with an output for each class")
        return y.astype(np.float64)
    if y.dtype.kind not in "iu":
        raise ValueError(f"the targets of a network with {outputs} outputs are classes, whole numbers from 0 to {outputs - 1}, and these are {y.dtype}")
    wrong = np.flatnonzero((y < 0) | (y >= outputs))
    if len(wrong):
        raise ValueError(f"a target is {y[wrong[0]]}, and the classes of a network with {outputs} outputs are 0 to {outputs - 1}; correct the target")
    return y.astype(np.int64)


def _rows(module: torch.nn.Module, x: Any, *, directions: int | None, random_state: int, batch_size: int) -> np.ndarray:
    """The outputs of each row, then its functions `[n, C(1 + K)]`."""
    x = _inputs(module, x)
    trained, fixed = _state(module)
    with _Evaluating(module), torch.no_grad():
        outputs = torch.cat([_outputs(module, trained, fixed, rows) for rows in _batches(x, 1024)]).double().cpu().numpy()
    if directions is None:
        functions = jacobian(module, x, batch_size=batch_size).double().cpu().numpy()
    else:
        samples = function_samples(module, x, directions, random_state=random_state)
        functions = samples.transpose(1, 2, 0) / directions**0.5
    return np.ascontiguousarray(np.concatenate([outputs, functions.reshape(len(outputs), -1)], axis=1))


def laplace(
    module: torch.nn.Module,
    loader: Iterable[tuple[Any, Any]],
    validation: Iterable[tuple[Any, Any]],
    *,
    method: str = "functions",
    directions: int | None = None,
    random_state: Any = 0,
    memory: str | None = None,
    batch_size: int = 64,
    **options: Any,
) -> Laplace:
    """Linearised Laplace of a trained module: numbers where it has one output, whose targets are floats, else classes.

    Parameters
    ----------
    loader, validation : batches of inputs and targets, each read once; the prior precision has the least loss on the validation rows.
    method : "functions" (the exact posterior in the span of the functions), "eigenfunctions" (leading ones), "temperature", "map", or "auto":
        that with the lowest NLL on the validation rows, each half judged by what was found on the other.
    directions : derivatives along so many random directions stand for all of them; None takes the derivative by every parameter, which is
        for small networks.
    options : those of the method, by the names of `mercer laplace`: `functions` (of "eigenfunctions"), `draws` and `tempered`.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.linspace(-1, 1, 60)[:, None]
    >>> net = torch.nn.Linear(1, 1)
    >>> with torch.no_grad():
    ...     _ = net.weight.fill_(2.0), net.bias.zero_()
    >>> y = 2 * x[:, 0] + 0.1 * torch.randn(60)
    >>> posterior = laplace(net, [(x[:40], y[:40])], [(x[40:], y[40:])])
    >>> mean, deviation = posterior.predict(torch.tensor([[0.0], [30.0]]))
    >>> bool(deviation[1] > 2 * deviation[0])
    True
    """
    seed = seed_of(random_state)
    functions: dict[str, Any] = {"directions": directions, "random_state": seed, "batch_size": batch_size}
    rows: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    sizes, outputs = [], 0
    for part in (loader, validation):
        before = sum(map(len, rows))
        for x, y in part:
            x, y = _inputs(module, x), as_array(y)
            if y.ndim == 0 or len(y) != len(x):
                raise ValueError(f"a batch has {len(x)} inputs and targets of the shape {list(y.shape)}; give each input its target")
            if len(x) == 0:
                continue
            with _Evaluating(module), torch.no_grad():
                outputs = _outputs(module, *_state(module), x[:1]).shape[1]
            targets.append(_targets(y, outputs))
            rows.append(_rows(module, x, **functions))
        sizes.append(sum(map(len, rows)) - before)
    if min(sizes) == 0:
        raise ValueError("laplace needs rows to fit and rows to validate; one of the two has none")
    y_all, x_all = np.concatenate(targets), np.concatenate(rows)
    given = {"outputs": outputs, "validation": sizes[1], "method": method}
    settings = _mercer.Settings(seed, memory=memory)
    values, labels = (y_all, None) if outputs == 1 else (None, y_all)
    names = [] if outputs == 1 else [str(c) for c in range(outputs)]
    model = _mercer.Model.fit("laplace", as_json(options | given), x_all, values, labels, names, settings)
    return Laplace(module, model, functions, None if labels is None else np.arange(outputs))

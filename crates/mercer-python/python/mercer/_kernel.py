"""Kernels by expression, and operators `v ↦ Kv`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from . import _mercer

_DEFAULT = _mercer.Settings()
_SINGLE = _mercer.Settings(precision="f32")


def _points(x: Any) -> np.ndarray:
    from ._base import as_points

    return as_points(x)


class Kernel:
    """A kernel by its expression: a formula of two points.

    It is called with points `[n, d]` and gives their matrix, in float32 where X is float32. Kernels add, multiply and scale.

    >>> import numpy as np
    >>> k = kernel("rbf(1)")
    >>> x = np.array([[0.0], [2.0]])
    >>> k(x).round(4)
    array([[1.    , 0.1353],
           [0.1353, 1.    ]])
    >>> str(2 * k + kernel("linear"))
    '2*(rbf(1)) + linear'
    >>> kernel("rfb(1)")
    Traceback (most recent call last):
    ...
    ValueError: unknown kernel 'rfb'; did you mean 'rbf'? (known: linear, poly, rbf, ...
    """

    def __init__(self, expression: str) -> None:
        self._kernel = _mercer.Kernel(expression)
        self.expression = expression

    def __call__(self, X: Any, Y: Any = None) -> np.ndarray:
        """`κ(X,Y)` `[n, m]`, or `κ(X,X)` without a Y."""
        X = _points(X)
        settings = _SINGLE if X.dtype == np.float32 else _DEFAULT
        return self._kernel.matrix(X, None if Y is None else _points(Y), settings)

    def diagonal(self, X: Any) -> np.ndarray:
        """`κ(x,x)` `[n]`."""
        return self._kernel.diagonal(_points(X), 0)

    def resolve(self, X: Any, random_state: int = 0) -> Kernel:
        """The kernel with every lengthscale a number, by the points X.

        >>> kernel("rbf(lengthscale=median)").resolve([[0.0], [3.0]])
        mercer.kernel('rbf(lengthscale=3)')
        """
        return Kernel(self._kernel.resolve(_points(X), random_state))

    def __str__(self) -> str:
        return self.expression

    def __repr__(self) -> str:
        return f"mercer.kernel({self.expression!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self.expression == other.expression

    def __hash__(self) -> int:
        return hash(self.expression)

    def __reduce__(self) -> tuple[Any, ...]:
        return Kernel, (self.expression,)

    def __add__(self, other: Kernel) -> Kernel:
        return Kernel(f"{self.expression} + {other.expression}")

    def __mul__(self, other: Kernel | float) -> Kernel:
        if isinstance(other, Kernel):
            return Kernel(f"({self.expression})*({other.expression})")
        return Kernel(f"{other!r}*({self.expression})")

    __rmul__ = __mul__


def kernel(expression: str) -> Kernel:
    """The kernel of an expression, such as `"0.5*rbf(2) + ntk(depth=3)"`; `kernels()` lists what there is.

    >>> kernel("0.5*rbf(2) + ntk(depth=3)")([[1.0, 0.0], [0.0, 1.0]]).shape
    (2, 2)
    """
    return Kernel(expression)


def kernels() -> dict[str, str]:
    """Name and formula of every kernel.

    >>> kernels()["linear"]
    "x·x'"
    """
    return dict(_mercer.kernels())


class Operator(LinearOperator):
    """A symmetric matrix known by its products, which scipy's solvers take. Made by `operator`."""

    def __init__(self, handle: _mercer.Operator) -> None:
        self._handle = handle
        super().__init__(np.dtype(np.float64), (handle.n, handle.n))

    def _matmat(self, V: Any) -> np.ndarray:
        return self._handle.apply(_points(V))

    def _matvec(self, v: Any) -> np.ndarray:
        return self._handle.apply(_points(np.reshape(v, (-1, 1))))[:, 0]

    def _adjoint(self) -> Operator:
        return self

    def diagonal(self) -> np.ndarray:
        """The diagonal `[n]`."""
        return self._handle.diagonal()

    def block(self, rows: Any, columns: Any) -> np.ndarray:
        """`K[rows, columns]`."""
        return self._handle.block([int(i) for i in rows], [int(j) for j in columns])

    def to_dense(self, memory: str | None = None) -> np.ndarray:
        """All of K `[n, n]`, where it fits the memory."""
        return self._handle.to_dense(_mercer.Settings(memory=memory))

    def __repr__(self) -> str:
        return f"<mercer.Operator {self._handle.describe()}>"


def operator(
    kernel: str | Kernel | None = None,
    X: Any = None,
    *,
    samples: Any = None,
    factorised: bool = False,
    precision: str = "f64",
    device: str = "cpu",
    memory: str | None = None,
    random_state: int = 0,
) -> Operator:
    """An operator `v ↦ Kv` that stores no matrix.

    Of a kernel on points X `[n, d]`; of a symmetric matrix, where `X` is one and `kernel` is `"precomputed"`; or `FᵀF/S` of
    `samples` `[S, n]` or `[S, n, C]` of functions.

    >>> import numpy as np
    >>> from scipy.sparse.linalg import eigsh
    >>> k = operator("rbf(1)", np.linspace(-2, 2, 200)[:, None])
    >>> k.shape
    (200, 200)
    >>> (eigsh(k, 2)[0][::-1] / 200).round(3)
    array([0.519, 0.303])
    """
    settings = _mercer.Settings(random_state, device, precision, memory)
    if samples is not None:
        f = np.ascontiguousarray(samples, dtype=np.float64)
        if f.ndim == 2:
            f = f[:, :, None]
        return Operator(_mercer.Operator.of_samples(f, factorised, settings))
    if kernel is None or X is None:
        raise ValueError("an operator needs a kernel and points, or samples of functions")
    if str(kernel) == "precomputed":
        return Operator(_mercer.Operator.of_matrix(_points(X)))
    return Operator(_mercer.Operator.of_kernel(str(kernel), _points(X), settings))

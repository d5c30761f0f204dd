"""Kernels by expression, and operators `v ↦ Kv`."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from . import _cuda, _mercer

_DEFAULT = _mercer.Settings()
_SINGLE = _mercer.Settings(precision="f32")


def _points(x: Any) -> np.ndarray:
    from ._base import as_points

    return as_points(x)


class Kernel:
    """A kernel by its expression: a formula of two points.

    It is called with points `[n, d]` and gives their matrix, in float32 where X is float32. Kernels add, multiply and scale. Points in the
    memory of a GPU (anything with `__dlpack__`: PyTorch's, CuPy's, JAX's) are read where they lie, and the matrix is an array of the
    same library on the same device.

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

    def __call__(self, X: Any, Y: Any = None) -> Any:
        """`κ(X,Y)` `[n, m]`, or `κ(X,X)` without a Y."""
        if _cuda.is_on_gpu(X) or _cuda.is_on_gpu(Y):
            return self._on_gpu(X, Y)
        X = _points(X)
        settings = _SINGLE if X.dtype == np.float32 else _DEFAULT
        return self._kernel.matrix(X, None if Y is None else _points(Y), settings)

    def _on_gpu(self, X: Any, Y: Any) -> Any:
        if not _cuda.is_on_gpu(X) or not (Y is None or _cuda.is_on_gpu(Y)):
            raise ValueError("X and Y must both be on the host or both on a GPU; move one of them")
        x, y = _cuda.readable(X), None if Y is None else _cuda.readable(Y)
        precision = "f32" if _cuda.is_single(x) else "f64"
        result = self._kernel.matrix_on_device(x, y, _SINGLE if precision == "f32" else _DEFAULT)
        if result is not None:
            return _cuda.handed_to(X, result)
        # A kernel whose points the host alone prepares (images, very long formulas): one copy there, and the matrix back.
        settings = _mercer.Settings(device=f"cuda:{_cuda.device_of(X)}", precision=precision)
        return _cuda.moved_to(X, self._kernel.matrix(_points(x), None if y is None else _points(y), settings))

    def diagonal(self, X: Any) -> Any:
        """`κ(x,x)` `[n]`, in float64."""
        if _cuda.is_on_gpu(X):
            x = _cuda.readable(X)
            result = self._kernel.diagonal_on_device(x, 0)
            return _cuda.moved_to(X, self._kernel.diagonal(_points(x), 0)) if result is None else _cuda.handed_to(X, result)
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
        if not isinstance(other, numbers.Real):
            return NotImplemented
        factor = other.item() if isinstance(other, np.generic) else other
        return Kernel(f"{factor!r}*({self.expression})")

    __rmul__ = __mul__
    # NumPy's numbers leave the product to the kernel.
    __array_ufunc__ = None


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

    def __matmul__(self, V: Any) -> Any:
        return self._on_gpu(V) if _cuda.is_on_gpu(V) else super().__matmul__(V)

    def dot(self, V: Any) -> Any:
        """`K V` for a vector `[n]`, a matrix `[n, b]` or another operator."""
        return self._on_gpu(V) if _cuda.is_on_gpu(V) else super().dot(V)

    def _on_gpu(self, V: Any) -> Any:
        """`K V` on the device that holds the points, in the type of V."""
        if self._handle.device is None:
            raise ValueError("the points of the operator are on the host; multiply an array on the host")
        return _cuda.handed_to(V, self._handle.apply_on_device(_cuda.readable(V)))

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

    Points in the memory of a GPU are prepared there: `op @ V` with an array V of that device stays on it, in the type of V, and the operator
    keeps what it needs of X, so that X may be freed. A NumPy array V is copied to the device and its product back.

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
    on_gpu = samples is None and kernel is not None and _cuda.is_on_gpu(X)
    if on_gpu:
        held = f"cuda:{_cuda.device_of(X)}"
        if device not in ("cpu", held):
            raise ValueError(f"the points are on {held}, and the device is {device}; move the points")
        device = held
    settings = _mercer.Settings(random_state, device, precision, memory)
    if on_gpu and str(kernel) != "precomputed":
        handle = _mercer.Operator.of_kernel_on_device(str(kernel), _cuda.readable(X), settings)
        if handle is not None:
            return Operator(handle)
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

"""Coordinates of points: kernel PCA, Laplacian eigenmaps, diffusion maps."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from . import _mercer
from ._base import KernelParameters, as_json, whole

#: scikit-learn's names of eigensolvers, by ours.
_SOLVERS = {"auto": "auto", "dense": "exact", "exact": "exact", "krylov": "krylov", "arpack": "krylov", "randomized": "krylov"}


class _Map(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelParameters):
    """A transformer whose coordinates are values of eigenfunctions."""

    eigen_solver: str

    def _solver(self) -> str:
        if self.eigen_solver not in _SOLVERS:
            raise ValueError(f"eigen_solver must be one of {', '.join(_SOLVERS)}, not {self.eigen_solver!r}")
        return _SOLVERS[self.eigen_solver]

    def _learn(self, method: str, X: np.ndarray, options: dict[str, Any], quiet: bool = False) -> dict[str, Any]:
        words = as_json(options | {"solver": self._solver()})
        model = _mercer.Model.fit(method, words, X, None, None, [], self._settings())
        header = self._keep(model, quiet)
        self.eigenvalues_ = np.array(header["eigenvalues"])
        self._n_features_out = len(self.eigenvalues_)
        return header

    def transform(self, X: Any) -> np.ndarray:
        """Coordinates `[m, k]` of points X `[m, d]`."""
        self._check_fitted()
        X = self._checked(X, fit=False)
        if self._function() is not None:
            X = self._matrix(X, self.X_fit_)
        return self.model_.transform(X)

    @property
    def embedding_(self) -> np.ndarray:
        """Coordinates `[n, k]` of the fitted points."""
        self._check_fitted()
        return self.model_.embedding()


class KernelPCA(_Map):
    """Kernel principal components, with scikit-learn's parameters and conventions; the matrix is stored only where that is faster.

    `kernel` is a name that scikit-learn has, any expression of the library, a callable of two arrays that gives their matrix, or
    `"precomputed"`. `memory` bounds what a fit may allocate. Components whose eigenvalue is numerically zero are left out.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(100, 3))
    >>> KernelPCA(n_components=2, kernel="rbf", gamma=0.5).fit_transform(x).shape
    (100, 2)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: Any = "linear",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        eigen_solver: str = "auto",
        tol: float = 0,
        precision: str = "f64",
        random_state: Any = 0,
        device: str = "cpu",
        memory: str | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.precision = precision
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> KernelPCA:
        """Finds the components of points X `[n, d]`, or of a kernel matrix."""
        X = self._checked(X, fit=True)
        quiet = self.n_components is None
        k = len(X) if quiet else min(whole("n_components", self.n_components), len(X))
        # As in scikit-learn, a dense solver has no use for a tolerance.
        options: dict[str, Any] = {"k": k, "tolerance": None if self._solver() == "exact" else self.tol or None}
        points = X
        if self._is_matrix() or self._function() is not None:
            options["matrix"] = True
            if not self._is_matrix():
                self.X_fit_, points = X, self._matrix(X, X)
        else:
            options["kernel"] = self._expression(X.shape[1])
        header = self._learn("kpca", points, options, quiet)
        self.explained_ratio_ = np.array(header["explained"])
        self._end_fit()
        return self

    @property
    def eigenvectors_(self) -> np.ndarray:
        """Unit eigenvectors `[n, k]` of the centred kernel matrix."""
        return self.embedding_ / np.sqrt(self.eigenvalues_)


class LaplacianEigenmaps(_Map):
    """The slowest functions on a graph of neighbours, or under a kernel; unlike `SpectralEmbedding`, with coordinates for new points.

    `affinity` is `"nearest_neighbors"` (each point to its `n_neighbors` nearest, 10 by default, half of the points where they are few) or a
    kernel expression.

    >>> import numpy as np
    >>> angle = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    >>> ring = np.c_[np.cos(angle), np.sin(angle)]
    >>> maps = LaplacianEigenmaps(n_components=2, n_neighbors=2).fit(ring)
    >>> bool(np.allclose(maps.eigenvalues_, 1 - np.cos(2 * np.pi / 100)))
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        affinity: Any = "nearest_neighbors",
        n_neighbors: int | None = None,
        gamma: float | None = None,
        eigen_solver: str = "auto",
        precision: str = "f64",
        random_state: Any = 0,
        device: str = "cpu",
        memory: str | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.gamma = gamma
        self.eigen_solver = eigen_solver
        self.precision = precision
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    degree: float = 3
    coef0: float = 1

    @property
    def kernel(self) -> Any:  # type: ignore[override]
        """The kernel of the affinity."""
        return self.affinity

    def fit(self, X: Any, y: Any = None) -> LaplacianEigenmaps:
        """Finds the functions for points X `[n, d]`."""
        X = self._checked(X, fit=True)
        options: dict[str, Any] = {"k": whole("n_components", self.n_components)}
        if self._function() is not None or self._is_matrix():
            raise ValueError("affinity must be nearest_neighbors or a kernel expression; a callable has no functions at new points")
        by_neighbours = self.affinity == "nearest_neighbors"
        if (self.gamma if by_neighbours else self.n_neighbors) is not None:
            unused, other = ("gamma", "a kernel") if by_neighbours else ("n_neighbors", "nearest_neighbors")
            raise ValueError(f"{unused} is for the affinity {other}; leave it out")
        if by_neighbours:
            usual = max(1, min(10, len(X) // 2))
            options["neighbours"] = usual if self.n_neighbors is None else self.n_neighbors
        else:
            options["kernel"] = self._expression(X.shape[1])
        self._learn("laplacian", X, options)
        self._end_fit()
        return self


class DiffusionMaps(_Map):
    """Diffusion maps: coordinates `λ_j^t ψ_j(x)` whose distances are those of a diffusion after `time` steps.

    `alpha` takes the density of the points out of the walk: 1 wholly, 0 not at all.

    >>> import numpy as np
    >>> x = np.array([[0.0], [0.3], [0.6], [5.0], [5.3], [5.6]])
    >>> z = DiffusionMaps(n_components=1, kernel="rbf(1)").fit_transform(x)[:, 0]
    >>> bool((z[:3] * z[3:] < 0).all())
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: Any = "rbf(lengthscale=median)",
        gamma: float | None = None,
        alpha: float = 1.0,
        time: float = 1.0,
        eigen_solver: str = "auto",
        precision: str = "f64",
        random_state: Any = 0,
        device: str = "cpu",
        memory: str | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.alpha = alpha
        self.time = time
        self.eigen_solver = eigen_solver
        self.precision = precision
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    degree: float = 3
    coef0: float = 1

    def fit(self, X: Any, y: Any = None) -> DiffusionMaps:
        """Finds the coordinates for points X `[n, d]`."""
        X = self._checked(X, fit=True)
        if self._function() is not None or self._is_matrix():
            raise ValueError("diffusion maps need a kernel expression; a callable has no functions at new points")
        options = {"k": whole("n_components", self.n_components), "alpha": self.alpha, "time": self.time}
        self._learn("diffusion", X, options | {"kernel": self._expression(X.shape[1])})
        self._end_fit()
        return self

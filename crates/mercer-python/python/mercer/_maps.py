"""Coordinates of points: kernel PCA, Laplacian eigenmaps, diffusion maps."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from . import _mercer
from ._base import KernelParameters, as_json, whole
from ._registry import Registered, parameters

#: scikit-learn's names of eigensolvers, by ours.
_SOLVERS = {"auto": "auto", "dense": "exact", "exact": "exact", "krylov": "krylov", "arpack": "krylov", "randomized": "krylov"}


class _Map(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelParameters):
    """A transformer whose coordinates are values of eigenfunctions."""

    n_components: int | None
    eigen_solver: str
    _registered: Registered

    def _solver(self) -> str:
        if self.eigen_solver not in _SOLVERS:
            raise ValueError(f"eigen_solver must be one of {', '.join(_SOLVERS)}, not {self.eigen_solver!r}")
        return _SOLVERS[self.eigen_solver]

    def _learn(self, X: np.ndarray, options: dict[str, Any], quiet: bool = False) -> dict[str, Any]:
        words = as_json(self._registered.given(self) | {"solver": self._solver()} | options)
        model = _mercer.Model.fit("embed", words, X, None, None, [], self._settings())
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


@parameters("embeddings", ["kpca"], first="n_components", without=("solver", "tolerance"), n_components=None, kernel="linear", eigen_solver="auto", tol=0)
class KernelPCA(_Map):
    """Kernel principal components, with scikit-learn's parameters and conventions; the matrix is stored only where that is faster.

    `kernel` is a name that scikit-learn has, any expression of the library, a callable of two arrays that gives their matrix, or
    `"precomputed"`. `memory` bounds what a fit may allocate. Components whose eigenvalue is numerically zero are left out.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(100, 3))
    >>> KernelPCA(n_components=2, kernel="rbf", gamma=0.5).fit_transform(x).shape
    (100, 2)
    """

    tol: float

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
        header = self._learn(points, options, quiet)
        self.explained_ratio_ = np.array(header["explained"])
        self._end_fit()
        return self

    @property
    def eigenvectors_(self) -> np.ndarray:
        """Unit eigenvectors `[n, k]` of the centred kernel matrix."""
        return self.embedding_ / np.sqrt(self.eigenvalues_)


@parameters(
    "embeddings",
    ["laplacian"],
    first="n_components",
    without=("solver", "neighbours", "kernel", "degree", "coef0"),
    n_components=2,
    affinity="nearest_neighbors",
    n_neighbors=None,
    eigen_solver="auto",
)
class LaplacianEigenmaps(_Map):
    """The slowest functions on a graph of neighbours, or under a kernel; unlike `SpectralEmbedding`, with coordinates for new points.

    >>> import numpy as np
    >>> angle = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    >>> ring = np.c_[np.cos(angle), np.sin(angle)]
    >>> maps = LaplacianEigenmaps(n_components=2, n_neighbors=2).fit(ring)
    >>> bool(np.allclose(maps.eigenvalues_, 1 - np.cos(2 * np.pi / 100)))
    True
    """

    affinity: Any
    n_neighbors: int | None
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
            options["neighbours"] = usual if self.n_neighbors is None else whole("n_neighbors", self.n_neighbors)
        else:
            options["kernel"] = self._expression(X.shape[1])
        self._learn(X, options)
        self._end_fit()
        return self


@parameters("embeddings", ["diffusion"], first="n_components", without=("solver", "degree", "coef0"), n_components=2, alpha=1.0, time=1.0, eigen_solver="auto")
class DiffusionMaps(_Map):
    """Diffusion maps: coordinates `λ_j^t ψ_j(x)` whose distances are those of a diffusion after `time` steps.

    >>> import numpy as np
    >>> x = np.array([[0.0], [0.3], [0.6], [5.0], [5.3], [5.6]])
    >>> z = DiffusionMaps(n_components=1, kernel="rbf(1)").fit_transform(x)[:, 0]
    >>> bool((z[:3] * z[3:] < 0).all())
    True
    """

    degree: float = 3
    coef0: float = 1

    def fit(self, X: Any, y: Any = None) -> DiffusionMaps:
        """Finds the coordinates for points X `[n, d]`."""
        X = self._checked(X, fit=True)
        if self._function() is not None or self._is_matrix():
            raise ValueError("diffusion maps need a kernel expression; a callable has no functions at new points")
        self._learn(X, {"k": whole("n_components", self.n_components), "kernel": self._expression(X.shape[1])})
        self._end_fit()
        return self

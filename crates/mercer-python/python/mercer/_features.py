"""Feature maps that stand for a kernel: Nyström's, and random Fourier features."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from . import _mercer
from ._base import KernelParameters, MercerEstimator, seed_of, warn, whole


class _NystromMap:
    """`φ(x) = κ(x,Z)N` of landmarks; pickled as its kernel and landmarks."""

    def __init__(self, kernel: str, landmarks: np.ndarray) -> None:
        self.kernel, self.landmarks = kernel, landmarks
        precision = "f32" if landmarks.dtype == np.float32 else "f64"
        self.features = _mercer.Features.nystrom(kernel, landmarks, _mercer.Settings(precision=precision))

    def __reduce__(self) -> tuple[Any, ...]:
        return _NystromMap, (self.kernel, self.landmarks)


class _FourierMap:
    """Random waves; pickled as what they were drawn from."""

    def __init__(self, *drawn_from: Any) -> None:
        self.drawn_from = drawn_from
        self.features = _mercer.Features.fourier(*drawn_from)

    def __reduce__(self) -> tuple[Any, ...]:
        return _FourierMap, self.drawn_from


class Nystroem(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelParameters):
    """Nyström's feature map, with scikit-learn's parameters: `φ(x)·φ(x') = κ(x,Z) κ(Z,Z)⁺ κ(Z,x')` of landmarks Z.

    `choice` says how the landmarks are chosen: "uniform" (scikit-learn's), "kmeans++", "leverage" or "cholesky". Where `κ(Z,Z)` is
    singular there are fewer features than landmarks. The features are those of scikit-learn up to a rotation.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> phi = Nystroem(n_components=200, gamma=0.5).fit_transform(x)
    >>> bool(np.allclose(phi @ phi.T, np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(2)), atol=1e-6))
    True
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        gamma: float | None = None,
        coef0: float = 1,
        degree: float = 3,
        n_components: int = 100,
        choice: str = "uniform",
        random_state: Any = 0,
        device: str = "cpu",
        memory: str | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.coef0 = coef0
        self.degree = degree
        self.n_components = n_components
        self.choice = choice
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Nystroem:
        """Chooses landmarks among the points X `[n, d]`."""
        if self._is_matrix():
            raise ValueError("Nystroem needs points and a kernel; a matrix has its pairs by Spectrum(kernel='precomputed')")
        X = self._checked(X, fit=True)
        m, settings = min(whole("n_components", self.n_components), len(X)), self._settings()
        if m < self.n_components:
            warn(f"n_components is {self.n_components}, but there are {m} points: all are landmarks")
        if self._function() is not None:
            if self.choice != "uniform":
                raise ValueError(f"landmarks of a callable kernel are uniform, not {self.choice!r}; use a kernel expression")
            # Without a formula there are only uniform landmarks and a dense root.
            chosen = np.random.default_rng(seed_of(self.random_state)).choice(len(X), m, replace=False)
            self.component_indices_, self.components_ = chosen, X[chosen]
            w = self._matrix(self.components_, self.components_)
            values, vectors = np.linalg.eigh((w + w.T) / 2)
            kept = values > len(values) * np.finfo(float).eps * values.max()
            self.normalization_ = vectors[:, kept] / np.sqrt(values[kept])
            self._n_features_out = int(kept.sum())
            return self
        expression = _mercer.Kernel(self._expression(X.shape[1])).resolve(X, seed_of(self.random_state))
        chosen = np.array(_mercer.Features.landmarks(expression, X, m, self.choice, settings))
        self.component_indices_, self.components_ = chosen, np.ascontiguousarray(X[chosen])
        self.kernel_ = expression
        self.map_ = _NystromMap(expression, self.components_)
        self._n_features_out = self.map_.features.dim
        return self

    def transform(self, X: Any) -> np.ndarray:
        """`φ(x)` `[m, r]` at points X `[m, d]`, in float32 where X is."""
        check_is_fitted(self)
        X = self._checked(X, fit=False)
        if self._function() is not None:
            return (self._matrix(X, self.components_) @ self.normalization_).astype(X.dtype, copy=False)
        return self.map_.features.transform(X)


class RBFSampler(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MercerEstimator):
    """Random Fourier features of the Gaussian kernel `exp(−γ‖x−x'‖²)`, or of any shift-invariant expression.

    There is a cosine and a sine for each frequency, and where `n_components` is odd one wave with a random phase. `sampling` says how frequencies are drawn: "plain" (scikit-learn's),
    "orthogonal" or "qmc", which leave less error at the same number.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> phi = RBFSampler(gamma=0.5, n_components=2000, sampling="qmc").fit_transform(x)
    >>> bool(np.abs(phi @ phi.T - np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(2))).max() < 0.05)
    True
    """

    def __init__(
        self,
        *,
        gamma: float | str = 1.0,
        n_components: int = 100,
        sampling: str = "orthogonal",
        kernel: Any = None,
        random_state: Any = 0,
    ) -> None:
        self.gamma = gamma
        self.n_components = n_components
        self.sampling = sampling
        self.kernel = kernel
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> RBFSampler:
        """Draws frequencies for points of X's columns; the points matter for `gamma="scale"` and `lengthscale=median` alone."""
        X = self._checked(X, fit=True, ensure_min_samples=1)
        seed = seed_of(self.random_state)
        if self.kernel is None:
            gamma = self.gamma
            if gamma == "scale":
                spread = float(X.var())
                gamma = 1.0 / (X.shape[1] * spread) if spread else 1.0
            if not isinstance(gamma, numbers.Real) or not gamma > 0:
                raise ValueError(f"gamma must be a number above 0 or 'scale', got {gamma!r}")
            expression = f"rbf(lengthscale={(0.5 / float(gamma)) ** 0.5!r})"
        else:
            expression = _mercer.Kernel(str(self.kernel)).resolve(X, seed)
        self.kernel_ = expression
        count = whole("n_components", self.n_components)
        even = count + count % 2
        self.map_ = _FourierMap(expression, X.shape[1], even, self.sampling, seed)
        self.phase_ = np.random.default_rng(seed).uniform(0, 2 * np.pi)
        self._n_features_out = count
        return self

    def transform(self, X: Any) -> np.ndarray:
        """`φ(x)` `[m, n_components]` at points X `[m, d]`, in float32 where X is."""
        check_is_fitted(self)
        waves = self.map_.features.transform(self._checked(X, fit=False))
        if self.n_components % 2 == 0:
            return waves
        # √2 cos(ω·x + b) in place of the last pair: E[φ(x)·φ(x')] = κ(x,x') over b as well.
        last, b = len(waves[0]) // 2 - 1, self.phase_
        waves[:, last] = 2**0.5 * (np.cos(b) * waves[:, last] - np.sin(b) * waves[:, -1])
        return np.ascontiguousarray(waves[:, :-1])

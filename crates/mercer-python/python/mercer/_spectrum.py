"""Eigenvalues and eigenfunctions as a transformer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from . import _mercer
from ._base import KernelParameters, as_json, whole
from ._certificate import Certificate
from ._kernel import Operator
from ._model import Model

#: The kind of features of a model whose new points are given by their kernel values.
_BY_ROWS = "rows"


class Spectrum(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelParameters):
    """The leading eigenvalues `μ_j` and eigenfunctions `ψ_j` of a kernel, `κ(x,x') = Σ_j μ_j ψ_j(x) ψ_j(x')`, with a certificate.

    Parameters
    ----------
    n_components : number of pairs.
    kernel : an expression such as `"rbf(lengthscale=median)"`, a name that scikit-learn has (with `gamma`, `degree`, `coef0`), a
        callable of two arrays that gives their matrix, or `"precomputed"`: then `X` is a kernel matrix or a `LinearOperator`, and
        `transform` takes the kernel values `[m, n]` of new points with the fitted ones.
    method : one of `mercer.methods()`: exact, krylov, nystrom, rff, positive, or by networks neuralef, spin, nested, omm, ritz.
    method_params : its options, by the names of the program (`landmarks`, `features`, `steps`, `net`, …).
    holdout : share of the rows, at most 2000, that are held out to certify the result; 0 for none. Fewer than 50 rows are all fitted.
    precision : of kernel values, "f64" or "f32".
    random_state : the seed; the program gives the same numbers for the same one.
    device : "cpu" or "cuda:0".
    memory : what a fit may allocate, such as "4GiB"; 70 % of the free memory by default.

    Attributes
    ----------
    eigenvalues_ : of the operator `(Kf)(x) = E[κ(x,x')f(x')]`, descending.
    certificate_ : how good each pair is; a table in notebooks.
    kernel_ : the kernel with every parameter a number.
    training_ : how networks were trained, where they were; `finished` is False after an interrupt.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> spectrum = Spectrum(n_components=3, kernel="rbf(1)", method="exact").fit(x)
    >>> spectrum.certificate_.held_out, spectrum.certificate_.standing[0]
    (30, 'simple')
    >>> spectrum.transform(x[:4]).shape
    (4, 3)
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        kernel: Any = "rbf(lengthscale=median)",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        method: str = "krylov",
        method_params: dict[str, Any] | None = None,
        holdout: float = 0.1,
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
        self.method = method
        self.method_params = method_params
        self.holdout = holdout
        self.precision = precision
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    def _method(self) -> tuple[str, dict[str, Any]]:
        return self.method, self.method_params or {}

    def fit(self, X: Any, y: Any = None) -> Spectrum:
        """Finds the pairs for points X `[n, d]`."""
        name, options = self._method()
        settings, words, k = self._settings(), as_json(options), whole("n_components", self.n_components)
        if self._is_matrix() and isinstance(X, LinearOperator):
            own = X._handle if isinstance(X, Operator) else _mercer.Operator.of_python(X, X.shape[0])
            model = _mercer.Model.spectrum_of_operator(own, None, k, name, words, settings)
            header = json.loads(model.header())
            # An operator of the library may know its formula; then new points are coordinates.
            self.n_features_in_ = X.shape[0] if header["features"] == _BY_ROWS else header["origin"]["d"]
            return self._take(model)
        X = self._checked(X, fit=True)
        if self._is_matrix():
            matrix = _mercer.Operator.of_matrix(X)
            model = _mercer.Model.spectrum_of_operator(matrix, X, k, name, words, settings)
        elif self._function() is not None:
            self.X_fit_ = X
            matrix = _mercer.Operator.of_matrix(self._matrix(X, X))
            model = _mercer.Model.spectrum_of_operator(matrix, X, k, name, words, settings)
        else:
            expression = self._expression(X.shape[1])
            model = _mercer.Model.spectrum_of_points(expression, X, k, name, words, self.holdout, settings)
        return self._take(model)

    def _take(self, model: _mercer.Model) -> Spectrum:
        header = self._keep(model)
        self.eigenvalues_ = np.array(header["eigenvalues"])
        self.certificate_ = Certificate.of_header(header)
        self.training_ = _honest(header.get("training"))
        self._by_rows = header["features"] == _BY_ROWS
        self._n_features_out = len(self.eigenvalues_)
        self._end_fit()
        return self

    def transform(self, X: Any) -> np.ndarray:
        """`ψ(x)` `[m, k]` at points X `[m, d]`; columns of zero eigenvalues are zero."""
        self._check_fitted()
        X = self._checked(X, fit=False)
        if self._function() is not None and self._by_rows:
            X = self._matrix(X, self.X_fit_)
        return self.model_.transform(X)

    def fit_samples(self, samples: Any, X: Any = None, *, factorised: bool = False) -> Spectrum:
        """Finds the pairs of `FᵀF/S` for functions sampled at the points, `[S, n]` or `[S, n, C]`; networks need their coordinates X.

        >>> import numpy as np
        >>> f = np.random.default_rng(0).normal(size=(50, 20))
        >>> Spectrum(n_components=2).fit_samples(f).transform_samples(f).shape
        (20, 2)
        """
        f = _as_samples(samples)
        X = None if X is None else self._checked(X, fit=True)
        name, options = self._method()
        settings, k = self._settings(), whole("n_components", self.n_components)
        own = _mercer.Operator.of_samples(f, factorised, settings)
        model = _mercer.Model.spectrum_of_operator(own, X, k, name, as_json(options), settings)
        return self._take(model)

    def transform_samples(self, samples: Any) -> np.ndarray:
        """`ψ` `[m·C, k]` where the fitted functions are sampled at m new points, `[S, m]` or `[S, m, C]`."""
        self._check_fitted()
        return self.model_.transform_samples(_as_samples(samples))

    @classmethod
    def load(cls, path: str | Path) -> Spectrum:
        """Reads a spectrum that `save` or the program wrote."""
        return cls()._of_model(_mercer.Model.load(str(path)))

    def _of_model(self, model: _mercer.Model) -> Spectrum:
        header = json.loads(model.header())
        if header["kind"] != "spectrum":
            raise ValueError(f"the file holds a model of kind '{header['kind']}', not a spectrum")
        origin = header["origin"]
        self.set_params(n_components=len(header["eigenvalues"]), kernel=origin["kernel"], random_state=origin["seed"])
        if "method" in self.get_params():
            self.set_params(method=origin["method"])
        self.n_features_in_ = origin["d"] or origin["n"]
        if schema := header.get("schema"):
            self.n_features_in_ = len(schema["columns"])
            if schema["named"]:
                self.feature_names_in_ = np.array([column["name"] for column in schema["columns"]], dtype=object)
        return self._take(model)


def _honest(training: dict[str, Any] | None) -> dict[str, Any] | None:
    """How networks were trained: `finished` unless it was interrupted, `rayleigh_ritz` where that gave the eigenvalues in the end."""
    return training and training | {"finished": training["stop"] != "interrupted", "rayleigh_ritz": training["finished"]}


def _as_samples(samples: Any) -> np.ndarray:
    f = np.ascontiguousarray(samples, dtype=np.float64)
    if f.ndim not in (2, 3):
        raise ValueError(f"samples of functions must be an array [S, n] or [S, n, C], and this one has the shape {f.shape}")
    return f[:, :, None] if f.ndim == 2 else f


class NeuralEigenfunctions(Spectrum):
    """Eigenfunctions by trained networks: a `Spectrum` whose method is an objective.

    Parameters beside those of `Spectrum`
    ----------
    objective : "neuralef", "spin", "nested", "omm" or "ritz".
    steps : of training; 2000 by default, 200 for ritz.
    batch_size : points of a batch.
    learning_rate : the largest one.
    net : the networks, such as `"dense(64) relu dense(64) relu dense(1)"`.

    >>> import numpy as np
    >>> x = np.linspace(-2, 2, 300)[:, None]
    >>> neural = NeuralEigenfunctions(n_components=2, objective="ritz", kernel="rbf(1)", steps=20).fit(x)
    >>> bool(abs(neural.eigenvalues_[0] - 0.52) < 0.03)
    True
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        objective: str = "neuralef",
        kernel: Any = "rbf(lengthscale=median)",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        net: str | None = None,
        method_params: dict[str, Any] | None = None,
        holdout: float = 0.1,
        precision: str = "f64",
        random_state: Any = 0,
        device: str = "cpu",
        memory: str | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.objective = objective
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.net = net
        self.method_params = method_params
        self.holdout = holdout
        self.precision = precision
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    def _method(self) -> tuple[str, dict[str, Any]]:
        own = {"steps": self.steps, "batch": self.batch_size, "rate": self.learning_rate, "net": self.net}
        return self.objective, own | (self.method_params or {})


def load(path: str | Path) -> Spectrum | Model:
    """Reads a file that `save` or the program wrote: a `Spectrum`, or a `Model` of any other kind.

    The numbers are those of `mercer predict` and `mercer transform`, to the bit: tables are scaled, and their words and missing values
    become features, as they were in the fit.
    """
    model = _mercer.Model.load(str(path))
    return Spectrum()._of_model(model) if json.loads(model.header())["kind"] == "spectrum" else Model(model)

"""Estimators that predict: ridge regression, averages, Gaussian processes, recursive feature machines."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from . import _mercer
from ._base import KernelParameters, as_json


class _Predictor(KernelParameters):
    """Numbers or classes from points."""

    def _way(self) -> tuple[str, dict[str, Any]]:
        """The estimator of the library, and its options without the kernel."""
        raise NotImplementedError

    def _learn(self, X: np.ndarray, values: Any = None, labels: Any = None, names: list[str] | None = None) -> None:
        way, options = self._way()
        if self._is_matrix() or self._function() is not None:
            points = X
            if not self._is_matrix():
                self.X_fit_, points = X, self._matrix(X, X)
            way, options = "matrix", self._of_matrix(way, options)
        else:
            points, options = X, options | {"kernel": self._expression(X.shape[1])}
        model = _mercer.Model.fit(way, as_json(options), points, values, labels, names or [], self._settings())
        self.header_ = self._keep(model)
        if "alpha" in self.header_:
            self.alpha_ = self.header_["alpha"]

    def _of_matrix(self, way: str, options: dict[str, Any]) -> dict[str, Any]:
        """The options of ridge regression on a kernel matrix; other ways need a formula."""
        if way not in ("ridge", "auto") or options.get("loss") == "logistic":
            raise ValueError(
                f"{type(self).__name__} needs a kernel expression here; callables and matrices are for KernelRidge and KernelClassifier by the "
                "method ridge, with squared errors"
            )
        return {name: options.get(name) for name in ("alpha", "cv", "class_weight", "intercept")}

    def _scores(self, X: Any) -> np.ndarray:
        self._check_fitted()
        X = self._checked(X, fit=False)
        if self._function() is not None:
            X = self._matrix(X, self.X_fit_)
        return self.model_.scores(X)


class _Regressor(RegressorMixin, _Predictor):
    def fit(self, X: Any, y: Any) -> Any:
        """Fits points X `[n, d]` with numbers y `[n]`."""
        X, y = self._checked(X, y, fit=True, y_numeric=True, multi_output=True)
        y = column_or_1d(y, warn=True)
        self._learn(X, values=np.ascontiguousarray(y, dtype=np.float64))
        self._end_fit()
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Numbers `[m]` at points X `[m, d]`."""
        return self._scores(X)[:, 0]


def _has_probabilities(classifier: Any) -> bool:
    model = getattr(classifier, "model_", None)
    return model is None or model.probabilities(np.zeros((1, len(classifier.classes_)))) is not None


class _Classifier(ClassifierMixin, _Predictor):
    def fit(self, X: Any, y: Any) -> Any:
        """Fits points X `[n, d]` with classes y `[n]`."""
        X, y = self._checked(X, y, fit=True, multi_output=True)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"{type(self).__name__} needs at least two classes, and y has one class: {self.classes_[0]!r}")
        names = [str(name) for name in self.classes_]
        self._learn(X, labels=np.ascontiguousarray(labels, dtype=np.int64), names=names)
        self._end_fit()
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """A score for each class `[m, C]`; for two classes how far the second is ahead, `[m]`."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Classes `[m]` at points X `[m, d]`."""
        best = self._scores(X).argmax(axis=1)
        return self.classes_[best]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes `[m, C]`, where left-out scores say how far they can be trusted."""
        scores = self._scores(X)
        found = self.model_.probabilities(scores)
        assert found is not None
        return found


def _class_weight(weights: Any, classes: np.ndarray) -> Any:
    """scikit-learn's class weights as the library takes them, by the names of the classes."""
    if isinstance(weights, dict):
        known = dict(zip(classes.tolist(), map(str, classes), strict=True))
        for name in weights:
            if name not in known:
                raise ValueError(f"class_weight has a weight for {name!r}, which is none of the classes {', '.join(map(str, classes))}")
        return [[known[name], float(weight)] for name, weight in weights.items()]
    if weights is not None and weights != "balanced":
        raise ValueError(f"class_weight must be 'balanced' or a dict, not {weights!r}")
    return weights


def _alpha(alpha: float | str | None) -> float | None:
    """A number, or None for the value with the least left-out error."""
    if alpha is None or (isinstance(alpha, str) and alpha == "auto"):
        return None
    if not isinstance(alpha, numbers.Real) or not alpha >= 0:
        raise ValueError(f"alpha must be a number of at least 0, or 'auto', not {alpha!r}")
    return float(alpha)


def _folds(cv: Any) -> int | None:
    """The number of folds, where there are some."""
    if cv is not None and (not isinstance(cv, numbers.Integral) or cv < 2):
        raise ValueError(f"cv must be a number of folds of at least 2, not {cv!r}")
    return None if cv is None else int(cv)


class KernelRidge(_Regressor):
    """Kernel ridge regression; scikit-learn's with its parameters, for any number of points.

    Parameters
    ----------
    alpha : added to the diagonal of the kernel matrix, or "auto" for the least left-out error (`cv` chooses folds in place of single
        points).
    kernel : a name that scikit-learn has, an expression such as `"matern52(lengthscale=auto)"`, a callable, or "precomputed".
    fit_intercept : whether a constant is added. "auto": none by the method ridge, as in scikit-learn, and one by every other method, as in
        the program. The methods nystrom, random-features, linear, falkon and krill always have one.
    method : "ridge" (all points), "nystrom", "random-features", "spectrum", "linear", "falkon", "krill", or "auto" by the number of points.
    rank : landmarks, features or eigenfunctions of a method; of the preconditioner for ridge by conjugate gradients.
    solver : of "ridge": "auto", "direct", "cg", "askotch", "eigenpro" or "richardson".

    >>> import numpy as np
    >>> x = np.linspace(0, 6, 80)[:, None]
    >>> ridge = KernelRidge(alpha="auto", kernel="rbf(lengthscale=median)").fit(x, np.sin(x[:, 0]))
    >>> bool(abs(ridge.predict([[1.0]])[0] - np.sin(1)) < 1e-3)
    True
    """

    def __init__(
        self,
        alpha: float | str = 1.0,
        *,
        kernel: Any = "linear",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        fit_intercept: bool | str = "auto",
        method: str = "ridge",
        rank: int | None = None,
        solver: str | None = None,
        cv: int | None = None,
        precision: str = "f64",
        random_state: Any = 0,
        device: str = "cpu",
        memory: str | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.method = method
        self.rank = rank
        self.solver = solver
        self.cv = cv
        self.precision = precision
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    def _way(self) -> tuple[str, dict[str, Any]]:
        options = {"alpha": _alpha(self.alpha), "cv": _folds(self.cv), "rank": self.rank, "solver": self.solver}
        if isinstance(self.fit_intercept, str) and self.fit_intercept != "auto":
            raise ValueError(f"fit_intercept must be True, False or 'auto', not {self.fit_intercept!r}")
        intercept = self.method != "ridge" if isinstance(self.fit_intercept, str) else bool(self.fit_intercept)
        return self.method, options | {"intercept": intercept}

    @property
    def dual_coef_(self) -> np.ndarray:
        """Coefficients `[n]` over the fitted points, of the method ridge."""
        self._check_fitted()
        if self.header_["kind"] != "ridge":
            raise AttributeError(f"a model of kind '{self.header_['kind']}' has no coefficients over the fitted points")
        return self.model_.matrix("coefficients")[:, 0]


class KernelClassifier(_Classifier):
    """Ridge or logistic regression of classes under a kernel; probabilities are fitted to left-out scores.

    The parameters are those of `KernelRidge`, with `loss` "squared" or "logistic" (on features: nystrom, random-features, spectrum, linear)
    and `class_weight`. `alpha` is found by the left-out error unless it is given.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.where((x ** 2).sum(1) < 1, "in", "out")
    >>> classifier = KernelClassifier().fit(x, y)
    >>> classifier.predict([[0.0, 0.0], [3.0, 0.0]])
    array(['in', 'out'], dtype='<U3')
    >>> classifier.predict_proba([[0.0, 0.0]]).shape
    (1, 2)
    """

    def __init__(
        self,
        alpha: float | str = "auto",
        *,
        kernel: Any = "rbf(lengthscale=median)",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        loss: str = "squared",
        class_weight: Any = None,
        method: str = "auto",
        rank: int | None = None,
        solver: str | None = None,
        cv: int | None = None,
        precision: str = "f64",
        random_state: Any = 0,
        device: str = "cpu",
        memory: str | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.loss = loss
        self.class_weight = class_weight
        self.method = method
        self.rank = rank
        self.solver = solver
        self.cv = cv
        self.precision = precision
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    def _way(self) -> tuple[str, dict[str, Any]]:
        options = {"alpha": _alpha(self.alpha), "cv": _folds(self.cv), "rank": self.rank, "solver": self.solver, "loss": self.loss}
        return self.method, options | {"class_weight": _class_weight(self.class_weight, self.classes_)}


class _Average(_Predictor):
    degree: float = 3
    coef0: float = 1

    def __init__(
        self,
        bandwidth: float | None = None,
        *,
        kernel: Any = "rbf(lengthscale=median)",
        gamma: float | None = None,
        random_state: Any = 0,
        device: str = "cpu",
        memory: str | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.bandwidth = bandwidth
        self.kernel = kernel
        self.gamma = gamma
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    def _way(self) -> tuple[str, dict[str, Any]]:
        return "nadaraya-watson", {"bandwidth": self.bandwidth}

    @property
    def bandwidth_(self) -> float:
        """The factor on the kernel's width, given or found."""
        self._check_fitted()
        return self.header_["bandwidth"]


class NadarayaWatson(_Regressor, _Average):
    """Averages of numbers, weighted by a kernel that is never negative; `bandwidth`, a factor on its width, is
    found by leave-one-out where every lengthscale is `median` or `auto`, and is 1 where they are numbers, unless it is given.

    >>> import numpy as np
    >>> x = np.linspace(0, 6, 200)[:, None]
    >>> average = NadarayaWatson().fit(x, np.sin(x[:, 0]))
    >>> bool(abs(average.predict([[1.0]])[0] - np.sin(1)) < 0.05)
    True
    """


class NadarayaWatsonClassifier(_Classifier, _Average):
    """The same for classes: each class's share of the weights.

    >>> import numpy as np
    >>> x = np.linspace(0, 6, 200)[:, None]
    >>> NadarayaWatsonClassifier().fit(x, x[:, 0] > 3).predict([[1.0], [5.0]])
    array([False,  True])
    """


class _Machine(_Predictor):
    degree: float = 3
    coef0: float = 1

    def __init__(
        self,
        alpha: float | str = "auto",
        *,
        kernel: Any = "laplacian(lengthscale=auto)",
        gamma: float | None = None,
        metric: str | None = None,
        rounds: int | None = None,
        rank: int | None = None,
        cv: int | None = None,
        random_state: Any = 0,
        device: str = "cpu",
        memory: str | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.metric = metric
        self.rounds = rounds
        self.rank = rank
        self.cv = cv
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    def _way(self) -> tuple[str, dict[str, Any]]:
        options = {"alpha": _alpha(self.alpha), "metric": self.metric, "rounds": self.rounds, "rank": self.rank, "cv": _folds(self.cv)}
        return "rfm", options

    @property
    def importances_(self) -> dict[str, Any]:
        """How much each column, and each direction, changes the prediction."""
        self._check_fitted()
        return self.header_["importances"]


class RecursiveFeatureMachine(_Regressor, _Machine):
    """Ridge regression under a metric that is learnt from the gradients of its own predictions.

    `metric` is "diagonal" or "full", `rounds` how often it is learnt anew; both by the left-out error unless they are given.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(150, 4))
    >>> machine = RecursiveFeatureMachine(kernel="rbf(lengthscale=median)", rounds=2).fit(x, np.sin(2 * x[:, 1]))
    >>> int(np.argmax(machine.importances_["columns"]))
    1
    """


class RecursiveFeatureMachineClassifier(_Classifier, _Machine):
    """The same for classes.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(150, 4))
    >>> machine = RecursiveFeatureMachineClassifier(kernel="rbf(lengthscale=median)", rounds=1).fit(x, x[:, 1] > 0)
    >>> machine.predict([[0, 2, 0, 0], [0, -2, 0, 0]])
    array([ True, False])
    """


class _Process(_Predictor):
    degree: float = 3
    coef0: float = 1
    n_restarts_optimizer: int
    search_rows: int | None

    def _search(self) -> dict[str, Any]:
        """The options of the search for hyper-parameters."""
        return {"restarts": self.n_restarts_optimizer, "search_rows": self.search_rows}


class GaussianProcessRegressor(_Regressor, _Process):
    """A Gaussian process: numbers with standard deviations.

    The amplitude of each term of the kernel, the noise, and lengthscales that are `auto` or `ard` are those of the largest marginal
    likelihood, from `n_restarts_optimizer` random starts beside one at the median distances.

    `method` is "exact", "cg" (all points without their matrix), or on features "nystrom", "random-features" and "spectrum" (`rank` of them); "auto"
    is exact up to 8000 points, and "nystrom" for more, as in the program. `precision` is for "cg".

    >>> import numpy as np
    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> process = GaussianProcessRegressor().fit(x, np.sin(x[:, 0]))
    >>> mean, deviation = process.predict([[1.0], [30.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1)) < 1e-2), bool(deviation[1] > 10 * deviation[0])
    (True, True)
    """

    def __init__(
        self,
        kernel: Any = "rbf(lengthscale=auto)",
        *,
        gamma: float | None = None,
        method: str = "exact",
        rank: int | None = None,
        n_restarts_optimizer: int = 2,
        search_rows: int | None = None,
        precision: str = "f64",
        random_state: Any = 0,
        device: str = "cpu",
        memory: str | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.method = method
        self.rank = rank
        self.n_restarts_optimizer = n_restarts_optimizer
        self.search_rows = search_rows
        self.precision = precision
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    def _way(self) -> tuple[str, dict[str, Any]]:
        precision = None if self.precision == "f64" else self.precision
        return "gp", self._search() | {"method": self.method, "rank": self.rank, "precision": precision}

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Numbers `[m]` at points X `[m, d]`, and with `return_std` the standard deviations of the target, its noise included."""
        mean = self._scores(X)[:, 0]
        if not return_std:
            return mean
        return mean, self.model_.deviations(self._checked(X, fit=False))

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """`log p(y)`; a lower bound of it for `nystrom` and `spectrum`, and under the features' own kernel for `random-features`."""
        self._check_fitted()
        found: float = self.header_["likelihood" if "likelihood" in self.header_ else "bound"]
        return found

    @property
    def noise_(self) -> float:
        """The variance of the noise."""
        self._check_fitted()
        return self.header_["noise"]


class GaussianProcessClassifier(_Classifier, _Process):
    """A Gaussian process for classes, by Laplace's approximation of the softmax posterior.

    >>> import numpy as np
    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> process = GaussianProcessClassifier().fit(x, x[:, 0] > 3)
    >>> bool(process.predict_proba([[0.5]])[0, 0] > 0.9)
    True
    """

    def __init__(
        self,
        kernel: Any = "rbf(lengthscale=auto)",
        *,
        gamma: float | None = None,
        n_restarts_optimizer: int = 2,
        search_rows: int | None = None,
        random_state: Any = 0,
        device: str = "cpu",
        memory: str | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.n_restarts_optimizer = n_restarts_optimizer
        self.search_rows = search_rows
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    def _way(self) -> tuple[str, dict[str, Any]]:
        return "gp", self._search() | {"method": "exact"}

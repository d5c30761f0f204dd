"""Estimators that predict: ridge regression, averages, Gaussian processes, recursive feature machines."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from . import _mercer
from ._base import KernelParameters, as_json, whole
from ._registry import Registered, entries_with, parameters


class _Predictor(KernelParameters):
    """Numbers or classes from points."""

    def _way(self) -> tuple[str, dict[str, Any]]:
        """The estimator of the library, and its options without the kernel."""
        raise NotImplementedError

    def _learn(self, X: np.ndarray, values: Any = None, labels: Any = None, names: list[str] | None = None) -> None:
        way, options = self._way()
        points = X
        if self._is_matrix() or self._function() is not None:
            options = self._of_matrix(options)
            if not self._is_matrix():
                self.X_fit_, points = X, self._matrix(X, X)
        elif self._takes_a_kernel():
            options = options | {"kernel": self._expression(X.shape[1])}
        model = _mercer.Model.fit(way, as_json(options), points, values, labels, names or [], self._settings())
        self.header_ = self._keep(model)
        if "alpha" in self.header_:
            self.alpha_ = self.header_["alpha"]

    def _of_matrix(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options for a kernel matrix in place of points."""
        raise ValueError(f"{type(self).__name__} needs a kernel expression here; callables and matrices are for KernelRidge and KernelClassifier")

    def _takes_a_kernel(self) -> bool:
        """Whether the kernel is the one of the parameters."""
        return True

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


class _Regression(_Predictor):
    """A regression of the registry, by its options."""

    _registered: Registered

    def _way(self) -> tuple[str, dict[str, Any]]:
        options = self._registered.given(self)
        if "class_weight" in options:
            options["class_weight"] = _class_weight(options["class_weight"], self.classes_)
        return "regress", options | {"intercept": self._intercept(options["method"])}

    def _intercept(self, method: str) -> bool | None:
        """Whether a constant is fitted; None for what the method does."""
        asked = getattr(self, "fit_intercept", None)
        if isinstance(asked, str) and asked != "auto":
            raise ValueError(f"fit_intercept must be True, False or 'auto', not {asked!r}")
        if isinstance(asked, str):
            return False if method == "ridge" else None
        return None if asked is None else bool(asked)

    def _of_matrix(self, options: dict[str, Any]) -> dict[str, Any]:
        return options | {"matrix": True}

    def _takes_a_kernel(self) -> bool:
        return getattr(self, "search", None) is None or not self._registered.is_default(self, "kernel")

    @property
    def dual_coef_(self) -> np.ndarray:
        """Coefficients `[n]` over the fitted points, of kernel ridge regression on all of them."""
        self._check_fitted()
        if self.header_["kind"] != "ridge":
            raise AttributeError(f"a model of kind '{self.header_['kind']}' has no coefficients over the fitted points")
        return self.model_.matrix("coefficients")[:, 0]

    @property
    def bandwidth_(self) -> float:
        """The factor on the kernel's width, given or found, of averages."""
        return self._found("bandwidth")

    @property
    def importances_(self) -> dict[str, Any]:
        """How much each column, and each direction, changes the prediction of a recursive feature machine."""
        return self._found("importances")

    def _found(self, name: str) -> Any:
        """A value of the model's file."""
        self._check_fitted()
        if name not in self.header_:
            raise AttributeError(f"a model of kind '{self.header_['kind']}' has no {name}")
        return self.header_[name]


class _WithDeviations(_Regressor):
    """Numbers with standard deviations."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Numbers `[m]` at points X `[m, d]`, and with `return_std` their standard deviations."""
        mean = self._scores(X)[:, 0]
        if not return_std:
            return mean
        return mean, self.model_.deviations(self._checked(X, fit=False))


_FAMILY = "regressions"
_RIDGES = entries_with(_FAMILY, "class_weight", "search")


@parameters(_FAMILY, _RIDGES, first="alpha", without=("loss", "class_weight"), alpha=1.0, kernel="linear", fit_intercept="auto", method="ridge")
class KernelRidge(_Regressor, _Regression):
    """Kernel ridge regression; scikit-learn's with its parameters, for any number of points.

    >>> import numpy as np
    >>> x = np.linspace(0, 6, 80)[:, None]
    >>> ridge = KernelRidge(alpha="auto", kernel="rbf(lengthscale=median)").fit(x, np.sin(x[:, 0]))
    >>> bool(abs(ridge.predict([[1.0]])[0] - np.sin(1)) < 1e-3)
    True
    """


@parameters(_FAMILY, _RIDGES, first="alpha", alpha="auto", method="auto")
class KernelClassifier(_Classifier, _Regression):
    """Ridge or logistic regression of classes under a kernel; probabilities are fitted to left-out scores.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.where((x ** 2).sum(1) < 1, "in", "out")
    >>> classifier = KernelClassifier().fit(x, y)
    >>> classifier.predict([[0.0, 0.0], [3.0, 0.0]])
    array(['in', 'out'], dtype='<U3')
    >>> classifier.predict_proba([[0.0, 0.0]]).shape
    (1, 2)
    """


@parameters(_FAMILY, ["nadaraya-watson"], first="bandwidth")
class NadarayaWatson(_Regressor, _Regression):
    """Averages of numbers, weighted by a kernel that is never negative.

    >>> import numpy as np
    >>> x = np.linspace(0, 6, 200)[:, None]
    >>> average = NadarayaWatson().fit(x, np.sin(x[:, 0]))
    >>> bool(abs(average.predict([[1.0]])[0] - np.sin(1)) < 0.05)
    True
    """


@parameters(_FAMILY, ["nadaraya-watson"], first="bandwidth")
class NadarayaWatsonClassifier(_Classifier, _Regression):
    """Averages of classes: each class's share of the weights of a kernel that is never negative.

    >>> import numpy as np
    >>> x = np.linspace(0, 6, 200)[:, None]
    >>> NadarayaWatsonClassifier().fit(x, x[:, 0] > 3).predict([[1.0], [5.0]])
    array([False,  True])
    """


@parameters(_FAMILY, ["rfm"], first="alpha", without=("loss", "class_weight"), alpha="auto", kernel="laplacian(lengthscale=auto)")
class RecursiveFeatureMachine(_Regressor, _Regression):
    """Ridge regression under a metric that is learnt from the gradients of its own predictions.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(150, 4))
    >>> machine = RecursiveFeatureMachine(kernel="rbf(lengthscale=median)", rounds=2).fit(x, np.sin(2 * x[:, 1]))
    >>> int(np.argmax(machine.importances_["columns"]))
    1
    """


@parameters(_FAMILY, ["rfm"], first="alpha", alpha="auto", kernel="laplacian(lengthscale=auto)")
class RecursiveFeatureMachineClassifier(_Classifier, _Regression):
    """Classification under a metric that is learnt from the gradients of its own predictions.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(150, 4))
    >>> machine = RecursiveFeatureMachineClassifier(kernel="rbf(lengthscale=median)", rounds=1).fit(x, x[:, 1] > 0)
    >>> machine.predict([[0, 2, 0, 0], [0, -2, 0, 0]])
    array([ True, False])
    """


@parameters(_FAMILY, ["ntk-ensemble"], first="time", kernel="ntk(depth=3, b_var=0.1)")
class NtkEnsemble(_WithDeviations, _Regression):
    """All infinitely wide networks of a kernel `ntk(…)`, trained for a time: their mean and standard deviations.

    >>> import numpy as np
    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> mean, deviation = NtkEnsemble().fit(x, np.sin(x[:, 0])).predict([[1.0], [30.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1)) < 0.05), bool(deviation[1] > 10 * deviation[0])
    (True, True)
    """


@parameters(_FAMILY, ["quantile"], first="quantile")
class QuantileRegressor(_Regressor, _Regression):
    """Kernel quantile regression: the number that a share of the targets lies below, by the pinball loss.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(0, 3, size=(200, 1))
    >>> y = x[:, 0] * (1 + rng.normal(size=200))
    >>> below = y < QuantileRegressor(0.9, alpha=0.1).fit(x, y).predict(x)
    >>> bool(0.85 < below.mean() <= 0.9)
    True
    """


class _Process(_Predictor):
    """A Gaussian process of the registry, by its options."""

    _registered: Registered
    n_restarts_optimizer: int

    def _way(self) -> tuple[str, dict[str, Any]]:
        options = self._registered.given(self) | {"restarts": whole("n_restarts_optimizer", self.n_restarts_optimizer, 0)}
        if not self._registered.is_default(self, "precision"):
            options["precision"] = self.precision
        return "gp", options


#: Options that scikit-learn has another name for, or that every estimator has.
_OWN_NAMES = ("restarts", "precision")


@parameters("processes", entries_with("processes"), first="kernel", without=_OWN_NAMES, kernel="rbf(lengthscale=auto)", method="exact", n_restarts_optimizer=2)
class GaussianProcessRegressor(_WithDeviations, _Process):
    """A Gaussian process: numbers with standard deviations of the target, its noise included.

    The amplitude of each term of the kernel, the noise, and lengthscales that are `auto` or `ard` are those of the largest marginal
    likelihood, from `n_restarts_optimizer` random starts beside one at the median distances. `precision` is for the method "cg".

    >>> import numpy as np
    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> process = GaussianProcessRegressor().fit(x, np.sin(x[:, 0]))
    >>> mean, deviation = process.predict([[1.0], [30.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1)) < 1e-2), bool(deviation[1] > 10 * deviation[0])
    (True, True)
    """

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


@parameters("processes", ["exact"], first="kernel", without=_OWN_NAMES, kernel="rbf(lengthscale=auto)", n_restarts_optimizer=2)
class GaussianProcessClassifier(_Classifier, _Process):
    """A Gaussian process for classes, by Laplace's approximation of the softmax posterior.

    >>> import numpy as np
    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> process = GaussianProcessClassifier().fit(x, x[:, 0] > 3)
    >>> bool(process.predict_proba([[0.5]])[0, 0] > 0.9)
    True
    """

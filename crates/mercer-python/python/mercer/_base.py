"""What all estimators share: settings, checked arrays, kernels by name, and the fitted model."""

from __future__ import annotations

import json
import numbers
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _cuda, _mercer
from ._kernel import Kernel, Operator


#: Stands for a target that an estimator does not look at; None is one that is missing.
_NONE: Any = object()


#: What the library reads without a copy.
_TYPES = (np.dtype(np.float64), np.dtype(np.float32))


# The threads of the library do not live on in a forked process: it gets others.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mercer.forked)


class MercerWarning(UserWarning):
    """What the user should know of a fit: a component that does not exist, an iteration that ended early."""


#: Packages whose lines are not those of the user.
_INNER = ("mercer", "sklearn")


def warn(message: str) -> None:
    """Shows a `MercerWarning` at the line of the user's code."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _INNER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, MercerWarning, stacklevel=level)


class Progress:
    """Shows the newest state of a computation on standard error, in one line."""

    def __call__(self, what: str, done: int, total: int, note: str) -> None:
        state = f"{what}: {done} of {total}" + (f", {note}" if note else "")
        sys.stderr.write(f"\r{state[:118]:<118}")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\n")


def whole(name: str, value: Any, least: int = 1) -> int:
    """A parameter that is a whole number."""
    if not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError


def as_json(options: dict[str, Any]) -> str:
    """Options as the library reads them."""

    def option(name: str, value: Any) -> str:
        try:
            return f"{json.dumps(str(name))}: {json.dumps(value, default=_plain, allow_nan=False)}"
        except (TypeError, ValueError):
            raise ValueError(f"{name}={value!r} cannot be used; give a finite number, a word, or a list of them") from None

    return "{" + ", ".join(option(name, value) for name, value in options.items()) + "}"


def seed_of(random_state: Any) -> int:
    """A whole number as it is; anything else by scikit-learn's rule."""
    if isinstance(random_state, numbers.Integral):
        return whole("random_state", random_state, 0)
    return int(check_random_state(random_state).randint(2**31 - 1))


def as_array(x: Any) -> np.ndarray:
    """An array, or the memory of a tensor of another library; an array on a GPU is copied to the host."""
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack__"):
        return np.asarray(x)
    if _cuda.is_on_gpu(x):
        return _cuda.on_host(x)
    return np.from_dlpack(x.detach() if hasattr(x, "detach") else x)


def as_points(x: Any) -> np.ndarray:
    """A C-contiguous array [n, d] of float32 or float64: `x` itself, or the memory of a tensor (by DLPack), where it is one."""
    x = as_array(x)
    if x.dtype not in _TYPES:
        x = x.astype(np.float64)
    if x.ndim != 2:
        raise ValueError(f"points must be an array [n, d], and this one has the shape {x.shape}")
    return np.ascontiguousarray(x)


def _column(column: Any) -> np.ndarray | list[str | None]:
    """A column of a frame: numbers, NaN where one is missing; or the text that a .csv would have, None where a value is missing."""
    if hasattr(column, "isna") or hasattr(column, "is_null"):
        missing = np.asarray(column.isna() if hasattr(column, "isna") else column.is_null())
    else:
        missing = np.array([value is None or value != value for value in column])
    values = np.asarray(column)
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    if values.dtype.kind == "M":
        values = np.datetime_as_string(values)
    return [None if gone else str(value) for gone, value in zip(missing, values, strict=True)]


def encoded(model: _mercer.Model, X: Any) -> np.ndarray:
    """The numbers `[m, d]` that a model's schema makes of a table: a frame, or an array with the columns in their order."""
    if hasattr(X, "columns"):
        named = all(isinstance(name, str) for name in X.columns)
        columns = [_column(X.iloc[:, j] if hasattr(X, "iloc") else X[:, j]) for j in range(X.shape[1])]
        found, notes = model.features_of_columns(columns, list(X.columns) if named else None)
    elif (x := as_array(X)).dtype.kind in "OUSM" and x.ndim == 2:
        found, notes = model.features_of_columns([_column(column) for column in x.T], None)
    else:
        found, notes = model.features(as_points(x), None)
    for note in notes:
        warn(note)
    return found


class MercerEstimator(BaseEstimator):
    """The base of the estimators: `random_state`, `device`, `memory` and `verbose` are the settings of every fit."""

    random_state: Any
    device: str
    memory: str | int | None
    verbose: int

    #: Whether the model takes tables, of which its schema makes features.
    _takes_tables = False

    def _settings(self) -> _mercer.Settings:
        progress = Progress() if self.verbose else None
        precision = getattr(self, "precision", "f64")
        return _mercer.Settings(seed_of(self.random_state), self.device, precision, self._memory(), progress)

    def _memory(self) -> str | None:
        return None if self.memory is None else str(self.memory)

    def _checked(self, X: Any, y: Any = _NONE, *, fit: bool, **options: Any) -> Any:
        """Arrays as the library reads them: X C-contiguous in float32 or float64. Arrays on a GPU are copied to the host, once."""
        X = _cuda.on_host(X) if _cuda.is_on_gpu(X) else X
        y = _cuda.on_host(y) if _cuda.is_on_gpu(y) else y
        if not fit and self._takes_tables:
            return encoded(self.model_, X)
        if not fit and y is _NONE and self._is_plain(X):
            return X
        options |= {"dtype": [np.float64, np.float32], "order": "C", "reset": fit}
        if fit:
            options.setdefault("ensure_min_samples", 2)
        if y is _NONE:
            return validate_data(self, X, **options)
        return validate_data(self, X, y, **options)

    def _check_fitted(self) -> None:
        """scikit-learn's error on an estimator that was not fitted; its own check takes longer than a small evaluation."""
        if "model_" not in vars(self):
            check_is_fitted(self, "model_")

    def _is_plain(self, X: Any) -> bool:
        """Whether `validate_data` would find nothing in new points to convert or to refuse; its checks take longer than a small evaluation."""
        if type(X) is not np.ndarray or X.ndim != 2 or X.dtype not in _TYPES or not X.flags.c_contiguous:
            return False
        known = len(X) > 0 and X.shape[1] == self.n_features_in_ and not hasattr(self, "feature_names_in_")
        with np.errstate(over="ignore", invalid="ignore"):
            return known and bool(np.isfinite(X.sum(dtype=np.float64)))

    def _keep(self, model: _mercer.Model, quiet: bool = False) -> dict[str, Any]:
        """Keeps the fitted model and shows its warnings; returns what its file holds."""
        self.model_ = model
        header: dict[str, Any] = json.loads(model.header())
        self.kernel_ = header.get("origin", {}).get("kernel")
        self._takes_tables = bool(header.get("schema"))
        if not quiet:
            for note in model.notes:
                warn(note)
        return header

    def _end_fit(self) -> None:
        """Raises the exception of a Ctrl-C that ended the fit early; the best result so far stays."""
        interrupted = self.model_.interrupted
        if interrupted is not None:
            try:
                warn(f"the fit was interrupted; {type(self).__name__} keeps its best result so far")
            finally:
                raise interrupted

    def _column_names(self) -> list[str] | None:
        """The names of the columns that the model takes, where the fitted table has some."""
        names = [str(name) for name in getattr(self, "feature_names_in_", [])]
        return names if names and len(set(names)) == len(names) else None

    def save(self, path: str | Path) -> None:
        """Writes the fitted model to a file that the program and `mercer.load` read, with the names of its columns."""
        self._check_fitted()
        self.model_.save(str(path), self._column_names())


class KernelParameters(MercerEstimator):
    """The parameters of a kernel, as scikit-learn has them: a name with gamma, degree and coef0; a callable; or an expression."""

    kernel: Any
    gamma: float | None
    degree: float
    coef0: float

    #: scikit-learn's names whose kernels the library has.
    _NAMES = ("linear", "rbf", "poly", "polynomial", "laplacian", "cosine")
    #: Those that it has not.
    _OTHERS = ("sigmoid", "additive_chi2", "chi2")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags

    def _is_matrix(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _checked(self, X: Any, y: Any = _NONE, *, fit: bool, **options: Any) -> Any:
        if fit and self._is_matrix() and isinstance(X, LinearOperator):
            X = X.to_dense(self._memory()) if isinstance(X, Operator) else X @ np.eye(X.shape[1])
        return super()._checked(X, y, fit=fit, **options)

    def _column_names(self) -> list[str] | None:
        return None if self._is_matrix() or self._function() is not None else super()._column_names()

    def _function(self) -> Callable[[Any, Any], Any] | None:
        """The kernel as a function of two arrays that gives a matrix, where the library has no formula for it."""
        if callable(self.kernel) and not isinstance(self.kernel, Kernel):
            return self.kernel
        if self.kernel in self._OTHERS:
            own = {} if self.kernel == "additive_chi2" else {"gamma": self.gamma}
            if self.kernel == "sigmoid":
                own["coef0"] = self.coef0
            name = self.kernel
            return lambda x, y: pairwise_kernels(x, y, metric=name, **own)
        return None

    def _expression(self, d: int) -> str:
        """The kernel as an expression, for points of d columns."""
        if isinstance(self.kernel, Kernel) or self.kernel not in self._NAMES:
            if self.gamma is not None:
                raise ValueError(f"gamma is for the kernels {', '.join(self._NAMES[1:])}; write the lengthscale into the expression {self.kernel}")
            return str(self.kernel)
        gamma = 1.0 / d if self.gamma is None else float(self.gamma)
        if gamma <= 0:
            raise ValueError(f"gamma must be above 0, got {gamma}")
        match self.kernel:
            case "rbf":
                return f"rbf(lengthscale={(0.5 / gamma) ** 0.5!r})"
            case "laplacian":
                return f"laplacian(lengthscale={1 / gamma!r})"
            case "poly" | "polynomial":
                return f"poly(degree={int(self.degree)}, scale={gamma!r}, offset={float(self.coef0)!r})"
            case name:
                return str(name)

    def _matrix(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The matrix [n, m] of a callable kernel."""
        function = self._function()
        assert function is not None
        values = as_points(function(x, y)).astype(np.float64, copy=False)
        if values.shape != (len(x), len(y)):
            raise ValueError(f"the kernel gave an array of shape {values.shape} for {len(x)} and {len(y)} points")
        return values

"""Models of any kind from their files, and the tables that they take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from . import _cuda, _mercer
from ._base import as_array, as_points, encoded


class Model:
    """A model that an estimator or the program wrote, with the program's numbers. Made by `load`.

    Models that were fitted on a table take tables like it: frames, whose columns are found by name and may hold words, dates and missing
    values, or arrays with the columns in their order. Scaling and categories are those of the fit.

    >>> import numpy as np, tempfile, mercer
    >>> x = np.linspace(0, 6, 80)[:, None]
    >>> ridge = mercer.KernelRidge(kernel="rbf").fit(x, np.sin(x[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ridge.save(folder + "/m.mercer")
    ...     model = mercer.load(folder + "/m.mercer")
    >>> bool((model.predict(x) == ridge.predict(x)).all())
    True
    """

    def __init__(self, model: _mercer.Model) -> None:
        self.model_ = model
        self.header_: dict[str, Any] = json.loads(model.header())

    def _points(self, X: Any) -> np.ndarray:
        X = _cuda.on_host(X) if _cuda.is_on_gpu(X) else X
        return encoded(self.model_, X) if self.header_.get("schema") else as_points(as_array(X))

    def scores(self, X: Any) -> np.ndarray:
        """One column of numbers, or a score for each class, `[m, ·]`, at rows X."""
        return self.model_.scores(self._points(X))

    def predict(self, X: Any) -> np.ndarray:
        """Numbers or classes `[m]` at rows X; the names of classes are words."""
        found, names = self.model_.decode(self.scores(X))
        return np.array(names)[found] if names else found

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes `[m, C]` at rows X, in the order of the scores."""
        found = self.model_.probabilities(self.scores(X))
        if found is None:
            raise ValueError(f"{self!r} has no probabilities; use predict or scores")
        return found

    def deviations(self, X: Any) -> np.ndarray | None:
        """Standard deviations `[m]` of numbers at rows X, where the model has some."""
        return self.model_.deviations(self._points(X))

    def transform(self, X: Any) -> np.ndarray:
        """Coordinates `[m, k]` of rows X."""
        return self.model_.transform(self._points(X))

    def save(self, path: str | Path) -> None:
        """Writes the model to a file again."""
        self.model_.save(str(path))

    def __repr__(self) -> str:
        return f"<mercer.Model of kind '{self.header_['kind']}'>"

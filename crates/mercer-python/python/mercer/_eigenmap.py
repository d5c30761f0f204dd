"""Codes in the order of importance, learnt from pairs of views of unlabelled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from . import _mercer
from ._base import MercerEstimator, as_json, whole


class Eigenmap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MercerEstimator):
    """A network whose outputs are eigenfunctions of the kernel of views: the first m coordinates are the code of length m.

    Functions without a positive eigenvalue are left out, so that there may be fewer coordinates than were asked for.

    Parameters
    ----------
    n_components : coordinates at most.
    net : the layers before the projector, such as `"dense(128) relu"`, or a name such as `"resnet18"`.
    augment : how views are made, such as `"crops(0.4)+noise"` of images or `"noise+mask"` of rows; None for the usual way.
    image : channels, height and width, where rows are images.
    objective : "eigenmap", "eigenmap-unordered", "neuralef", "nested", "spectral-contrastive", "barlow-twins", "vicreg" or "simclr".
    ritz : whether Rayleigh–Ritz on the pairs orders the functions in the end.
    projector : units of the hidden layer of the projector; 0 for no projector, None for 8 times as many as coordinates, from 64 to 2048.
    epochs, batch_size, learning_rate : of the training.

    Attributes
    ----------
    eigenvalues_ : of `κ − 1`, where `κ(x,x') = p(x,x')/(p(x)p(x'))`, in falling order.
    certificate_ : what was measured on pairs of held-out rows.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 5))
    >>> code = Eigenmap(n_components=3, net="dense(16) relu", epochs=3).fit(x)
    >>> code.transform(x[:4]).shape[0], len(code.eigenvalues_) <= 3
    (4, True)
    """

    def __init__(
        self,
        n_components: int = 64,
        *,
        net: str = "dense(128) relu",
        augment: str | None = None,
        image: tuple[int, int, int] | None = None,
        objective: str = "eigenmap",
        ritz: bool = True,
        projector: int | None = None,
        epochs: int = 100,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        random_state: Any = 0,
        device: str = "cpu",
        memory: str | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.net = net
        self.augment = augment
        self.image = image
        self.objective = objective
        self.ritz = ritz
        self.projector = projector
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.device = device
        self.memory = memory
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Eigenmap:
        """Trains the network on views of the rows X `[n, d]`; y is not used."""
        X = self._checked(X, fit=True)
        options = {
            "k": whole("n_components", self.n_components),
            "net": self.net,
            "augment": self.augment,
            "image": None if self.image is None else list(self.image),
            "objective": self.objective,
            "ritz": self.ritz,
            "projector": self.projector,
            "epochs": self.epochs,
            "batch": self.batch_size,
            "rate": self.learning_rate,
        }
        model = _mercer.Model.fit("eigenmap", as_json(options), X, None, None, [], self._settings())
        header = self._keep(model)
        self.eigenvalues_ = np.array(header["eigenvalues"])
        self.certificate_: dict[str, Any] = header["certificate"]
        self._n_features_out = len(self.eigenvalues_)
        self._end_fit()
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Codes `[m, k]` of rows X `[m, d]`, `√μ_j ψ_j(x)`."""
        self._check_fitted()
        return self.model_.transform(self._checked(X, fit=False))

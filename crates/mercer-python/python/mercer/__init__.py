"""Spectral kernel learning: kernels, their eigenfunctions with a certificate, and scikit-learn estimators that stand on them.

>>> import numpy as np, mercer
>>> x = np.linspace(-2, 2, 200)[:, None]
>>> spectrum = mercer.Spectrum(n_components=3, kernel="rbf(1)", holdout=0).fit(x)
>>> spectrum.eigenvalues_.round(3)
array([0.519, 0.303, 0.127])
>>> spectrum.transform([[0.3], [1.7]]).shape
(2, 3)
"""

from ._base import MercerWarning
from ._certificate import Certificate
from ._eigenmap import Eigenmap
from ._features import Nystroem, RBFSampler
from ._figure import Figure, scatter
from ._kernel import Kernel, Operator, kernel, kernels, operator
from ._maps import DiffusionMaps, KernelPCA, LaplacianEigenmaps
from ._mercer import __version__, methods
from ._model import Model
from ._predict import (
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    KernelClassifier,
    KernelRidge,
    NadarayaWatson,
    NadarayaWatsonClassifier,
    NtkEnsemble,
    RecursiveFeatureMachine,
    RecursiveFeatureMachineClassifier,
)
from ._spectrum import NeuralEigenfunctions, Spectrum, load

__all__ = [
    "Certificate",
    "DiffusionMaps",
    "Eigenmap",
    "Figure",
    "GaussianProcessClassifier",
    "GaussianProcessRegressor",
    "Kernel",
    "KernelClassifier",
    "KernelPCA",
    "KernelRidge",
    "LaplacianEigenmaps",
    "MercerWarning",
    "Model",
    "NadarayaWatson",
    "NadarayaWatsonClassifier",
    "NeuralEigenfunctions",
    "NtkEnsemble",
    "Nystroem",
    "Operator",
    "RBFSampler",
    "RecursiveFeatureMachine",
    "RecursiveFeatureMachineClassifier",
    "Spectrum",
    "__version__",
    "kernel",
    "kernels",
    "load",
    "methods",
    "operator",
    "scatter",
]

"""scikit-learn's own checks on every estimator; none is expected to fail."""

from sklearn.utils.estimator_checks import parametrize_with_checks

import mercer


@parametrize_with_checks(
    [
        mercer.Spectrum(n_components=2),
        mercer.Spectrum(n_components=2, method="nystrom"),
        mercer.NeuralEigenfunctions(n_components=2, steps=5, objective="neuralef"),
        mercer.NeuralEigenfunctions(n_components=2, steps=5, objective="ritz"),
        mercer.Eigenmap(n_components=2, net="dense(8) relu", epochs=2),
        mercer.KernelPCA(),
        mercer.KernelPCA(n_components=2, kernel="rbf(lengthscale=median)"),
        mercer.Nystroem(),
        mercer.RBFSampler(),
        mercer.LaplacianEigenmaps(),
        mercer.DiffusionMaps(),
        mercer.KernelRidge(),
        mercer.KernelRidge(alpha="auto", kernel="rbf(lengthscale=median)", fit_intercept=True),
        mercer.KernelClassifier(),
        mercer.KernelClassifier(loss="logistic", method="nystrom"),
        mercer.KernelRidge(method="askotch", kernel="rbf(lengthscale=median)"),
        mercer.NtkEnsemble(),
        mercer.NadarayaWatson(),
        mercer.NadarayaWatsonClassifier(),
        mercer.GaussianProcessRegressor(n_restarts_optimizer=0),
        mercer.GaussianProcessClassifier(n_restarts_optimizer=0),
        mercer.RecursiveFeatureMachine(kernel="rbf(lengthscale=median)", rounds=1),
        mercer.RecursiveFeatureMachineClassifier(kernel="rbf(lengthscale=median)", rounds=1),
    ]
)
def test_estimator(estimator, check):
    check(estimator)

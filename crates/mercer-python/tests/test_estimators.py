"""Estimators against scikit-learn's own, and against closed forms."""

import pickle

import numpy as np
import pytest
import sklearn.decomposition
import sklearn.gaussian_process
import sklearn.kernel_approximation
import sklearn.kernel_ridge
from sklearn.datasets import make_moons
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mercer

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(120, 3)), RNG.normal(size=(30, 3))
Y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
MOONS = make_moons(300, noise=0.1, random_state=0)
KERNELS = [("linear", {}), ("rbf", {"gamma": 0.3}), ("rbf", {}), ("poly", {"degree": 2, "coef0": 0.5}), ("laplacian", {"gamma": 0.2}), ("cosine", {}), ("sigmoid", {"gamma": 0.01})]


@pytest.mark.parametrize(("kernel", "parameters"), KERNELS[:-1])
@pytest.mark.parametrize("solver", ["dense", "arpack"])
def test_kernel_pca_is_that_of_scikit_learn(kernel, parameters, solver):
    own = mercer.KernelPCA(n_components=2, kernel=kernel, eigen_solver=solver, tol=1e-10, **parameters).fit(X)
    matrix = pairwise_kernels(X, metric=kernel, **parameters)
    peer = sklearn.decomposition.KernelPCA(n_components=2, kernel="precomputed", eigen_solver="dense").fit(matrix)
    np.testing.assert_allclose(own.eigenvalues_, peer.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(own.transform(NEW), peer.transform(pairwise_kernels(NEW, X, metric=kernel, **parameters)), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(own.embedding_, own.transform(X), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(own.eigenvectors_.T @ own.eigenvectors_, np.eye(2), atol=1e-8)


def test_kernel_pca_without_a_number_has_every_component():
    own, peer = mercer.KernelPCA(kernel="linear").fit(X), sklearn.decomposition.KernelPCA(kernel="linear").fit(X)
    np.testing.assert_allclose(own.eigenvalues_, peer.eigenvalues_[:3], rtol=1e-9)
    assert own.transform(NEW).shape == (30, 3) and own.explained_ratio_.sum() == pytest.approx(1)


@pytest.mark.parametrize(("kernel", "parameters"), KERNELS)
def test_kernel_ridge_is_that_of_scikit_learn(kernel, parameters):
    own = mercer.KernelRidge(alpha=0.5, kernel=kernel, **parameters).fit(X, Y)
    peer = sklearn.kernel_ridge.KernelRidge(alpha=0.5, kernel=kernel, **parameters).fit(X, Y)
    # The sigmoid kernel is not positive: the library leaves its negative directions out.
    tolerance = 1e-2 if kernel == "sigmoid" else 1e-8
    np.testing.assert_allclose(own.predict(NEW), peer.predict(NEW), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("method", ["nystrom", "random-features", "spectrum", "falkon", "krill", "auto"])
def test_every_way_of_ridge_learns(method):
    ridge = mercer.KernelRidge(alpha="auto", kernel="rbf(lengthscale=median)", method=method, fit_intercept=True).fit(X, Y)
    assert ridge.score(NEW, np.sin(NEW[:, 0]) + 0.1 * NEW[:, 1]) > 0.9 and ridge.alpha_ > 0


@pytest.mark.parametrize(
    "way",
    [{"solver": "direct"}, {"solver": "cg", "tolerance": 1e-6}, *({"method": method, "fit_intercept": False} for method in ("askotch", "eigenpro", "richardson"))],
    ids=str,
)
def test_every_solver_of_ridge_agrees(way):
    want = mercer.KernelRidge(alpha=1.0, kernel="rbf").fit(X, Y).predict(NEW)
    own = mercer.KernelRidge(alpha=1.0, kernel="rbf", **way).fit(X, Y)
    np.testing.assert_allclose(own.predict(NEW), want, atol=5e-3)


def test_an_automatic_lengthscale_is_found():
    ridge = mercer.KernelRidge(alpha="auto", kernel="rbf(lengthscale=auto)").fit(X, Y)
    assert "auto" not in ridge.kernel_ and ridge.score(X, Y) > 0.9


def test_callables_and_matrices_are_ridge_regression_too():
    want = mercer.KernelRidge(alpha=0.5, kernel="rbf(1)").fit(X, Y).predict(NEW)
    kernel = mercer.kernel("rbf(1)")
    function = mercer.KernelRidge(alpha=0.5, kernel=lambda a, b: kernel(a, b)).fit(X, Y)
    matrix = mercer.KernelRidge(alpha=0.5, kernel="precomputed").fit(kernel(X), Y)
    np.testing.assert_allclose(function.predict(NEW), want, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(matrix.predict(kernel(NEW, X)), want, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(mercer.KernelRidge(alpha=0.5, kernel=kernel).fit(X, Y).predict(NEW), want, rtol=1e-12)
    pca = mercer.KernelPCA(n_components=2, kernel="precomputed").fit(kernel(X)).transform(kernel(NEW, X))
    np.testing.assert_allclose(pca, mercer.KernelPCA(n_components=2, kernel="rbf(1)").fit(X).transform(NEW), rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="needs a kernel expression"):
        mercer.NadarayaWatson(kernel=lambda a, b: kernel(a, b)).fit(X, Y)
    with pytest.raises(ValueError, match="loss='logistic' is for methods on features"):
        mercer.KernelClassifier(kernel="precomputed", loss="logistic").fit(kernel(X), Y > 0)
    by_function = mercer.KernelClassifier(kernel=lambda a, b: kernel(a, b)).fit(X, Y > 0)
    assert by_function.score(X, Y > 0) > 0.9


def test_coefficients_are_those_of_scikit_learn():
    own = mercer.KernelRidge(alpha=0.5, kernel="rbf").fit(X, Y)
    peer = sklearn.kernel_ridge.KernelRidge(alpha=0.5, kernel="rbf").fit(X, Y)
    np.testing.assert_allclose(own.dual_coef_, peer.dual_coef_, rtol=1e-6, atol=1e-8)
    with pytest.raises(AttributeError, match="no coefficients"):
        mercer.KernelRidge(alpha=0.5, kernel="precomputed").fit(mercer.kernel("rbf(1)")(X), Y).dual_coef_  # noqa: B018


def test_nystroem_with_all_points_is_exact_and_with_few_that_of_scikit_learn():
    few = mercer.Nystroem(gamma=0.3, n_components=40, random_state=0).fit(X)
    peer = sklearn.kernel_approximation.Nystroem(gamma=0.3, n_components=40).fit(X)
    z = few.components_
    w = np.exp(-0.3 * ((z[:, None] - z) ** 2).sum(2))
    cross = np.exp(-0.3 * ((NEW[:, None] - z) ** 2).sum(2))
    phi = few.transform(NEW)
    np.testing.assert_allclose(phi @ phi.T, cross @ np.linalg.solve(w, cross.T), atol=1e-6)
    assert phi.shape == peer.transform(NEW).shape and few.transform(NEW.astype(np.float32)).dtype == np.float32
    function = mercer.Nystroem(kernel=lambda a, b: mercer.kernel("rbf(1)")(a, b), n_components=120).fit(X)
    phi = function.transform(X)
    np.testing.assert_allclose(phi @ phi.T, mercer.kernel("rbf(1)")(X), atol=1e-6)


def test_landmarks_are_never_more_than_the_points():
    with pytest.warns(mercer.MercerWarning, match="all are landmarks"):
        assert len(mercer.Nystroem(n_components=500).fit(X).components_) == 120
    with pytest.raises(ValueError, match="uniform"):
        mercer.Nystroem(kernel=lambda a, b: a @ b.T, choice="leverage", n_components=5).fit(X)


@pytest.mark.parametrize("choice", ["uniform", "kmeans++", "leverage", "cholesky"])
def test_landmarks_are_rows_of_the_data(choice):
    nystroem = mercer.Nystroem(n_components=20, choice=choice).fit(X)
    assert np.array_equal(X[nystroem.component_indices_], nystroem.components_)


@pytest.mark.parametrize("sampling", ["plain", "orthogonal", "qmc"])
def test_random_features_stand_for_the_kernel(sampling):
    want = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(2))
    phi = mercer.RBFSampler(gamma=0.3, n_components=4000, sampling=sampling).fit_transform(X)
    assert np.abs(phi @ phi.T - want).mean() < 0.02
    other = mercer.RBFSampler(kernel="matern32(2)", n_components=4000, sampling=sampling).fit_transform(X)
    assert np.abs(other @ other.T - mercer.kernel("matern32(2)")(X)).mean() < 0.02
    odd = mercer.RBFSampler(gamma=0.3, n_components=4001, sampling=sampling).fit_transform(X)
    assert odd.shape == (120, 4001) and np.abs(odd @ odd.T - want).mean() < 0.02


def test_one_wave_with_a_random_phase_has_the_kernel_as_its_mean():
    few, want = X[:5], np.exp(-0.3 * ((X[:5, None] - X[:5]) ** 2).sum(2))
    draws = [mercer.RBFSampler(gamma=0.3, n_components=1, random_state=seed).fit_transform(few) for seed in range(4000)]
    mean = np.mean([phi @ phi.T for phi in draws], axis=0)
    assert np.abs(mean - want).max() < 0.08


def test_nadaraya_watson_is_the_weighted_mean():
    own = mercer.NadarayaWatson(bandwidth=1.0, kernel="rbf(1)").fit(X, Y)
    w = np.exp(-0.5 * ((NEW[:, None] - X) ** 2).sum(2))
    np.testing.assert_allclose(own.predict(NEW), w @ Y / w.sum(1), rtol=1e-10)
    assert mercer.NadarayaWatsonClassifier().fit(*MOONS).score(*MOONS) > 0.95


def test_a_gaussian_process_is_that_of_scikit_learn_at_its_own_parameters():
    y = Y + 0.1 * np.random.default_rng(5).normal(size=len(Y))
    own = mercer.GaussianProcessRegressor("rbf(lengthscale=auto)").fit(X, y)
    scale, rest = own.kernel_.split("*", 1) if "*" in own.kernel_ else ("1", own.kernel_)
    lengthscale = float(rest.split("lengthscale=")[1].rstrip(")"))
    kernels = sklearn.gaussian_process.kernels
    kernel = kernels.ConstantKernel(float(scale)) * kernels.RBF(lengthscale) + kernels.WhiteKernel(own.noise_)
    peer = sklearn.gaussian_process.GaussianProcessRegressor(kernel, optimizer=None, alpha=0).fit(X, y - y.mean())
    mean, deviation = own.predict(NEW, return_std=True)
    want = peer.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, want[0] + y.mean(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(deviation, want[1], rtol=1e-6)
    assert own.log_marginal_likelihood_value_ == pytest.approx(peer.log_marginal_likelihood_value_, rel=1e-6)


@pytest.mark.parametrize("method", ["cg", "nystrom", "random-features", "spectrum"])
def test_every_way_of_a_process_predicts(method):
    process = mercer.GaussianProcessRegressor(method=method, rank=100 if method != "cg" else None).fit(X, Y)
    mean, deviation = process.predict(NEW, return_std=True)
    assert np.abs(mean - np.sin(NEW[:, 0]) - 0.1 * NEW[:, 1]).mean() < 0.2 and (deviation > 0).all()


@pytest.mark.parametrize(
    "classifier",
    [mercer.KernelClassifier(), mercer.KernelClassifier(loss="logistic"), mercer.KernelClassifier(class_weight="balanced"), mercer.GaussianProcessClassifier(), mercer.RecursiveFeatureMachineClassifier(rounds=1)],
    ids=lambda c: repr(c)[:50],
)
def test_classifiers_tell_the_moons_apart(classifier):
    x, y = MOONS
    classifier.fit(x[:200], y[:200])
    assert classifier.score(x[200:], y[200:]) > 0.95
    p = classifier.predict_proba(x[200:])
    np.testing.assert_allclose(p.sum(axis=1), 1)
    again = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(again.predict_proba(x), classifier.predict_proba(x))


def test_a_feature_machine_finds_the_column_that_matters():
    machine = mercer.RecursiveFeatureMachine(kernel="rbf(lengthscale=median)").fit(X, np.sin(3 * X[:, 2]))
    assert int(np.argmax(machine.importances_["columns"])) == 2


def test_maps_tell_clusters_apart():
    x = np.r_[RNG.normal(size=(30, 2)), RNG.normal(size=(30, 2)) + 8]
    for maps in (mercer.DiffusionMaps(n_components=1, kernel="rbf(2)"), mercer.LaplacianEigenmaps(n_components=1, affinity="rbf(2)")):
        z = maps.fit(x).transform(x)[:, 0]
        assert (np.sign(z[:30]) == -np.sign(z[30])).all() and (np.sign(z[30:]) == np.sign(z[30])).all()
        np.testing.assert_allclose(maps.embedding_[:, 0], z, rtol=1e-6, atol=1e-8)


def test_pipelines_grids_and_clones():
    pipeline = make_pipeline(StandardScaler(), mercer.KernelPCA(n_components=5, kernel="rbf"), mercer.KernelRidge(kernel="rbf"))
    grid = GridSearchCV(pipeline, {"kernelpca__gamma": [0.1, 0.3], "kernelridge__alpha": [0.01, 0.1]}, cv=3).fit(X, Y)
    assert grid.best_score_ > 0.5
    assert np.array_equal(pickle.loads(pickle.dumps(grid)).predict(NEW), grid.predict(NEW))
    precomputed = GridSearchCV(mercer.KernelRidge(kernel="precomputed"), {"alpha": [0.01, 0.1]}, cv=3).fit(mercer.kernel("rbf(1)")(X), Y)
    assert precomputed.best_score_ > 0.5


def test_warnings_reach_the_user():
    with pytest.warns(mercer.MercerWarning, match="2 of the 5 coordinates do not exist"):
        mercer.KernelPCA(n_components=5, kernel="linear").fit(X)

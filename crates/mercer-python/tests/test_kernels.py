"""Kernels and operators against dense computations by NumPy and scikit-learn."""

import pickle

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator, cg
from sklearn.metrics.pairwise import pairwise_kernels

import mercer

X = np.random.default_rng(0).normal(size=(150, 4))
Y = np.random.default_rng(1).normal(size=(40, 4))


@pytest.mark.parametrize(
    ("expression", "name", "parameters"),
    [
        ("linear", "linear", {}),
        ("rbf(lengthscale=2)", "rbf", {"gamma": 1 / 8}),
        ("laplacian(lengthscale=2)", "laplacian", {"gamma": 0.5}),
        ("poly(degree=3, scale=0.5, offset=2)", "poly", {"degree": 3, "gamma": 0.5, "coef0": 2}),
        ("cosine", "cosine", {}),
    ],
)
def test_matrices_are_those_of_scikit_learn(expression, name, parameters):
    kernel = mercer.kernel(expression)
    for second in (None, Y):
        want = pairwise_kernels(X, second, metric=name, **parameters)
        np.testing.assert_allclose(kernel(X, second), want, rtol=1e-12, atol=1e-12)
        single = kernel(X.astype(np.float32), None if second is None else second.astype(np.float32))
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(kernel.diagonal(X), np.diag(kernel(X)), rtol=1e-12)


def test_kernels_add_multiply_and_scale():
    a, b = mercer.kernel("rbf(1)"), mercer.kernel("linear")
    np.testing.assert_allclose((2 * a + b)(X), 2 * a(X) + b(X), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(((a + b) * a)(X), (a(X) + b(X)) * a(X), rtol=1e-12, atol=1e-12)
    assert pickle.loads(pickle.dumps(a)) == a and a != b and "rbf" in mercer.kernels()


def test_a_median_is_a_number_once_the_points_are_known():
    kernel = mercer.kernel("rbf(lengthscale=median)")
    resolved = kernel.resolve(X)
    assert np.array_equal(resolved(X), kernel(X))
    distances = np.sqrt(((X[:, None] - X) ** 2).sum(2))[np.triu_indices(len(X), 1)]
    assert float(str(resolved).split("=")[1][:-1]) == pytest.approx(np.median(distances), rel=0.05)


@pytest.mark.parametrize("name", [name for name in mercer.kernels() if name != "periodic"])
def test_every_kernel_divides_columns_by_lengthscales(name):
    lengthscales = np.arange(1.0, 1 + X.shape[1])
    scaled = mercer.kernel(f"{name}(lengthscale={lengthscales.tolist()})")
    np.testing.assert_allclose(scaled(X), mercer.kernel(name)(X / lengthscales), rtol=1e-12, atol=1e-12)


def test_a_matrix_that_does_not_fit_says_what_does():
    x = np.zeros((200_000, 1), np.float32)
    with pytest.raises(ValueError, match="mercer.operator"):
        mercer.kernel("rbf(1)")(x)


@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_an_operator_has_the_products_of_its_matrix(precision):
    k, dense = mercer.operator("rbf(1)", X, precision=precision), mercer.kernel("rbf(1)")(X)
    tolerance = 1e-12 if precision == "f64" else 1e-5
    assert isinstance(k, LinearOperator) and k.shape == dense.shape
    v = np.random.default_rng(2).normal(size=(len(X), 3))
    for product, want in [(k @ v, dense @ v), (k @ v[:, 0], dense @ v[:, 0]), (k.T @ v, dense @ v)]:
        np.testing.assert_allclose(product, want, rtol=tolerance, atol=10 * tolerance)
    np.testing.assert_allclose(k.block([3, 7], [1]), dense[[3, 7]][:, [1]], rtol=tolerance)
    np.testing.assert_allclose(k.diagonal(), np.ones(len(X)))
    np.testing.assert_allclose(k.to_dense(), dense, rtol=tolerance, atol=tolerance)
    with pytest.raises(ValueError, match="no row 150"):
        k.block([150], [0])


def test_scipy_solves_with_an_operator():
    k = mercer.operator("rbf(1)", X)
    ridge = LinearOperator(k.shape, matvec=lambda v: k.matvec(v) + v)
    solution, failed = cg(ridge, Y[:, 0].repeat(4)[: len(X)], rtol=1e-10)
    want = np.linalg.solve(mercer.kernel("rbf(1)")(X) + np.eye(len(X)), Y[:, 0].repeat(4)[: len(X)])
    assert not failed
    np.testing.assert_allclose(solution, want, rtol=1e-7, atol=1e-8)


def test_operators_of_matrices_and_of_function_samples():
    f = np.random.default_rng(3).normal(size=(20, 30))
    k = mercer.operator(samples=f)
    np.testing.assert_allclose(k.to_dense(), f.T @ f / 20, rtol=1e-12, atol=1e-12)
    again = mercer.operator("precomputed", f.T @ f / 20)
    np.testing.assert_allclose(again @ np.ones(30), k @ np.ones(30), rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="square"):
        mercer.operator("precomputed", f)


def test_a_spectrum_of_any_scipy_operator():
    dense = mercer.kernel("rbf(1)")(X)
    want = np.linalg.eigvalsh(dense)[::-1][:4] / len(X)
    found = mercer.Spectrum(n_components=4, kernel="precomputed").fit(aslinearoperator(dense))
    np.testing.assert_allclose(found.eigenvalues_, want, rtol=1e-8)
    psi = found.transform(dense)
    np.testing.assert_allclose(psi.T @ psi / len(X), np.eye(4), atol=1e-6)
    assert found.certificate_.worst_residual() < 1e-5


def test_a_spectrum_of_an_operator_with_a_formula_takes_coordinates():
    found = mercer.Spectrum(n_components=3, kernel="precomputed").fit(mercer.operator("rbf(1)", X))
    want = mercer.Spectrum(n_components=3, kernel="rbf(1)", holdout=0).fit(X)
    assert np.array_equal(found.eigenvalues_, want.eigenvalues_) and np.array_equal(found.transform(Y), want.transform(Y))


def test_estimators_take_operators_in_place_of_matrices():
    kernel, y = mercer.kernel("rbf(1)"), np.sin(X[:, 0])
    for operator in (aslinearoperator(kernel(X)), mercer.operator("rbf(1)", X)):
        ridge = mercer.KernelRidge(alpha=0.5, kernel="precomputed").fit(operator, y)
        want = mercer.KernelRidge(alpha=0.5, kernel="rbf(1)").fit(X, y)
        np.testing.assert_allclose(ridge.predict(kernel(Y, X)), want.predict(Y), rtol=1e-6, atol=1e-8)
        pca = mercer.KernelPCA(n_components=2, kernel="precomputed").fit(operator)
        np.testing.assert_allclose(pca.eigenvalues_, mercer.KernelPCA(n_components=2, kernel="rbf(1)").fit(X).eigenvalues_, rtol=1e-8)


def test_what_an_operator_raises_reaches_the_caller():
    def broken(v):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        mercer.Spectrum(n_components=2, kernel="precomputed").fit(LinearOperator((60, 60), matvec=broken, matmat=broken, dtype=float))

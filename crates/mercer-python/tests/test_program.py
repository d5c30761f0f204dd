"""The same numbers as the program, bit for bit, for the same seed. MERCER_PROGRAM names it."""

import json
import os
import subprocess

import numpy as np
import pytest

import mercer

PROGRAM = os.environ.get("MERCER_PROGRAM")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="MERCER_PROGRAM does not name the program")
X = np.random.default_rng(0).normal(size=(200, 3))
NEW = np.random.default_rng(1).normal(size=(40, 3))


def run(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in arguments else None


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "new.npy", NEW)
    for name, rows in [("train", X), ("test", NEW)]:
        lines = ["a,b,c,y"] + [",".join(map(repr, map(float, [*row, np.sin(row[0])]))) for row in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("method", "options"),
    [("exact", {}), ("krylov", {}), ("nystrom", {"landmarks": 50}), ("rff", {"features": 100}), ("neuralef", {"steps": 30}), ("ritz", {"steps": 10})],
)
@pytest.mark.parametrize("seed", [0, 7])
def test_spectra(files, method, options, seed):
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    common = ["fit", files / "x.npy", "--scale", "none", "--k", 4, "--method", method, "--seed", seed, "--json", "--out", files / "m.mercer"]
    want = run(*common, *flags)
    own = mercer.Spectrum(n_components=4, method=method, method_params=options, random_state=seed).fit(X)
    assert own.eigenvalues_.tolist() == want["eigenvalues"]
    assert own.certificate_.residual == want["certificate"]["residual"]
    assert own.certificate_.interval == want["certificate"]["interval"]
    run("transform", files / "m.mercer", files / "new.npy", "--out", files / "z.npy")
    assert np.array_equal(own.transform(NEW), np.load(files / "z.npy"))
    assert np.array_equal(mercer.Spectrum.load(files / "m.mercer").transform(NEW), np.load(files / "z.npy"))


@pytest.mark.parametrize(
    ("way", "estimator"),
    [
        (["--method", "kpca"], mercer.KernelPCA(n_components=2, kernel="rbf(lengthscale=median)")),
        (["--method", "laplacian"], mercer.LaplacianEigenmaps(n_components=2)),
        (["--method", "diffusion"], mercer.DiffusionMaps(n_components=2)),
        (["--method", "diffusion", "--alpha", 0.5, "--time", 2, "--solver", "exact"], mercer.DiffusionMaps(n_components=2, alpha=0.5, time=2, eigen_solver="dense")),
        (["--solver", "krylov", "--tolerance", 1e-8], mercer.KernelPCA(n_components=2, kernel="rbf(lengthscale=median)", eigen_solver="krylov", tol=1e-8)),
    ],
    ids=["kpca", "laplacian", "diffusion", "walk", "krylov"],
)
def test_embeddings(files, way, estimator):
    run("embed", files / "x.npy", "--scale", "none", "--k", 2, *way, "--out", files / "z.npy")
    assert np.array_equal(estimator.fit(X).embedding_, np.load(files / "z.npy"))


def test_kernel_matrices(files):
    run("gram", files / "x.npy", "--kernel", "0.5*rbf(2) + ntk(depth=3)", "--out", files / "k.npy")
    assert np.array_equal(mercer.kernel("0.5*rbf(2) + ntk(depth=3)")(X), np.load(files / "k.npy"))


@pytest.mark.parametrize(
    ("way", "estimator"),
    [
        ([], mercer.KernelRidge(alpha="auto", kernel="rbf(lengthscale=median)", method="auto", fit_intercept=True)),
        (["--alpha", 0.1], mercer.KernelRidge(alpha=0.1, kernel="rbf(lengthscale=median)", fit_intercept=True)),
        (["--method", "nystrom", "--rank", 50], mercer.KernelRidge(alpha="auto", kernel="rbf(lengthscale=median)", method="nystrom", rank=50, fit_intercept=True)),
        (["--method", "random-features"], mercer.KernelRidge(alpha="auto", kernel="rbf(lengthscale=median)", method="random-features", fit_intercept=True)),
        (["--method", "askotch", "--iterations", 20], mercer.KernelRidge(alpha="auto", kernel="rbf(lengthscale=median)", method="askotch", iterations=20)),
        (["--method", "eigenpro", "--rank", 50], mercer.KernelRidge(alpha="auto", kernel="rbf(lengthscale=median)", method="eigenpro", rank=50)),
        (["--solver", "cg", "--tolerance", 1e-4], mercer.KernelRidge(alpha="auto", kernel="rbf(lengthscale=median)", method="auto", solver="cg", tolerance=1e-4)),
        (["--search", "rbf,matern32", "--criterion", "likelihood"], mercer.KernelRidge(alpha="auto", method="auto", search="rbf,matern32", criterion="likelihood")),
        (["--method", "quantile", "--quantile", 0.8], mercer.QuantileRegressor(0.8)),
        (["--method", "ntk-ensemble", "--time", 50], mercer.NtkEnsemble(time=50)),
        (["--method", "nadaraya-watson"], mercer.NadarayaWatson()),
        (["--kernel", "matern32(lengthscale=auto)"], mercer.KernelRidge(alpha="auto", kernel="matern32(lengthscale=auto)", method="auto", fit_intercept=True)),
        (["--method", "rfm", "--rounds", 1], mercer.RecursiveFeatureMachine(kernel="rbf(lengthscale=median)", rounds=1)),
    ],
    ids=["auto", "alpha", "nystrom", "random-features", "askotch", "eigenpro", "cg", "kernels", "quantile", "ntk-ensemble", "nadaraya-watson", "search", "rfm"],
)
def test_regression(files, way, estimator):
    run("regress", files / "train.csv", "--target", "y", "--scale", "none", *way, "--predict", files / "test.csv", "--out", files / "p.npy")
    assert np.array_equal(estimator.fit(X, np.sin(X[:, 0])).predict(NEW), np.load(files / "p.npy").ravel())


@pytest.mark.parametrize(
    ("way", "parameters"),
    [([], {}), ([], {"method": "auto"}), (["--rank", 20], {"method": "auto", "rank": 20}), (["--method", "cg", "--rank", 20], {"method": "cg", "rank": 20})],
    ids=["exact", "auto", "landmarks", "cg"],
)
def test_gaussian_processes(files, way, parameters):
    run("gp", files / "train.csv", "--target", "y", "--scale", "none", *way, "--predict", files / "test.csv", "--out", files / "p.npy")
    want = np.load(files / "p.npy")
    mean, deviation = mercer.GaussianProcessRegressor(**parameters).fit(X, np.sin(X[:, 0])).predict(NEW, return_std=True)
    assert np.array_equal(mean, want[:, 0]) and np.array_equal(deviation, want[:, 1])

"""Parameters: NumPy's numbers are Python's, options that a method does not have are refused, and mistakes get a sentence."""

import inspect
import itertools
import linecache
import warnings

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

import mercer
from mercer._registry import family

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3))
Y = np.sin(X[:, 0]) + 0.1 * X[:, 1] + 3
LABELS = (Y > 3).astype(int)
NEW = RNG.normal(size=(20, 3))

#: An estimator with Python's numbers, and the same with NumPy's.
PAIRS = [
    (mercer.RBFSampler, {"gamma": 0.5, "n_components": 21}, {"gamma": np.float32(0.5), "n_components": np.int64(21)}),
    (mercer.Nystroem, {"gamma": 0.25, "n_components": 10}, {"gamma": np.float64(0.25), "n_components": np.int32(10)}),
    (mercer.LaplacianEigenmaps, {"n_neighbors": 8}, {"n_neighbors": np.int64(8)}),
    (mercer.DiffusionMaps, {"n_components": 2, "time": 1.5}, {"n_components": np.int64(2), "time": np.float32(1.5)}),
    (mercer.KernelPCA, {"n_components": 2, "kernel": "rbf", "gamma": 0.5}, {"n_components": np.int64(2), "kernel": "rbf", "gamma": np.float64(0.5)}),
    (mercer.KernelPCA, {"n_components": 2, "kernel": "poly", "coef0": 0.5, "degree": 2}, {"n_components": 2, "kernel": "poly", "coef0": np.float64(0.5), "degree": np.int64(2)}),
    (mercer.NadarayaWatson, {"bandwidth": 0.5}, {"bandwidth": np.float32(0.5)}),
    (mercer.NeuralEigenfunctions, {"n_components": 2, "steps": 5, "learning_rate": 0.25}, {"n_components": np.int64(2), "steps": np.int64(5), "learning_rate": np.float32(0.25)}),
    (mercer.Spectrum, {"method": "nystrom", "n_components": 3, "holdout": 0.25, "method_params": {"landmarks": 20}}, {"method": "nystrom", "n_components": np.int64(3), "holdout": np.float32(0.25), "method_params": {"landmarks": np.int64(20)}}),
    (mercer.GaussianProcessRegressor, {"n_restarts_optimizer": 1}, {"n_restarts_optimizer": np.int64(1)}),
    (mercer.RecursiveFeatureMachine, {"rounds": 1, "alpha": 0.5}, {"rounds": np.int64(1), "alpha": np.float32(0.5)}),
    (mercer.KernelRidge, {"alpha": "auto", "cv": 3, "fit_intercept": True}, {"alpha": "auto", "cv": np.int64(3), "fit_intercept": np.bool_(True)}),
    (mercer.KernelRidge, {"kernel": "rbf", "method": "nystrom", "rank": 20, "random_state": 5}, {"kernel": "rbf", "method": "nystrom", "rank": np.int64(20), "random_state": np.int64(5)}),
    (mercer.KernelClassifier, {"class_weight": {0: 1, 1: 2}}, {"class_weight": {np.int64(0): np.float32(1), 1.0: np.int64(2)}}),
    (mercer.Eigenmap, {"n_components": 2, "net": "dense(8) relu", "epochs": 2, "learning_rate": 0.125}, {"n_components": np.int64(2), "net": "dense(8) relu", "epochs": np.int64(2), "learning_rate": np.float32(0.125)}),
]


@pytest.mark.parametrize(("kind", "own", "numpy"), PAIRS, ids=lambda value: getattr(value, "__name__", ""))
def test_numbers_of_numpy_are_numbers(kind, own, numpy):
    y = LABELS if kind is mercer.KernelClassifier else Y
    fitted = [kind(**options).fit(X, y) for options in (own, numpy)]
    one, other = (f.transform(NEW) if hasattr(f, "transform") else f.predict(NEW) for f in fitted)
    assert np.array_equal(one, other)


def test_grids_over_arrays_of_numpy():
    grid = GridSearchCV(mercer.KernelRidge("auto", kernel="rbf", method="nystrom"), {"rank": np.arange(20, 60, 20)}, cv=2, error_score="raise").fit(X, Y)
    assert grid.best_params_["rank"] in (20, 40)
    grid = GridSearchCV(make_pipeline(mercer.RBFSampler(), Ridge()), {"rbfsampler__gamma": np.logspace(-2, 0, 3)}, cv=2, error_score="raise").fit(X, Y)
    assert grid.best_score_ > 0


def test_kernels_are_scaled_by_numbers_of_numpy():
    want = 2.5 * mercer.kernel("rbf(1)")(X)
    for k in (np.float64(2.5) * mercer.kernel("rbf(1)"), mercer.kernel("rbf(1)") * np.float32(2.5)):
        assert np.allclose(k(X), want, rtol=1e-15)


METHODS = ["auto", "ridge", "nystrom", "random-features", "spectrum", "linear", "falkon", "krill", "askotch", "eigenpro", "richardson"]
ITERATIVE = {"falkon", "krill", "askotch", "eigenpro", "richardson"}
#: A value that is not the default, the methods that have the option, and whether it changes predictions.
OPTIONS = {
    "rank": (7, {"auto", "ridge", "nystrom", "random-features", "spectrum", "falkon", "krill", "eigenpro"}, True),
    "solver": ("cg", {"auto", "ridge"}, False),
    "iterations": (1, ITERATIVE | {"ridge"}, True),
    "tolerance": (0.5, ITERATIVE | {"ridge"}, True),
    "cv": (2, set(METHODS), False),
    "criterion": ("likelihood", set(METHODS), False),
    "fit_intercept": (False, {"auto", "ridge", "spectrum", "askotch", "eigenpro", "richardson"}, True),
    "loss": ("logistic", {"auto", "nystrom", "random-features", "spectrum", "linear"}, True),
    "class_weight": ({0: 1.0, 1: 30.0}, set(METHODS), True),
}
#: What an error says that does not name the option as the others do.
WORDS = {"loss": "loss='logistic' is for methods on features", "fit_intercept": "always has an intercept"}


@pytest.mark.filterwarnings("ignore::mercer.MercerWarning")
@pytest.mark.parametrize(("method", "option"), list(itertools.product(METHODS, OPTIONS)))
def test_an_option_is_used_or_refused(method, option):
    value, known, changes = OPTIONS[option]
    # The method ridge has no intercept by default.
    value = True if (method, option) == ("ridge", "fit_intercept") else value
    classes = option in ("loss", "class_weight")
    kind, y = (mercer.KernelClassifier, LABELS) if classes else (mercer.KernelRidge, Y)
    common = {"method": method, "kernel": "linear" if method == "linear" else "rbf", "alpha": "auto"}
    usual = kind(**common).fit(X, y)
    if method not in known:
        words = "is for iterative solvers" if method == "auto" else "does not take"
        with pytest.raises(ValueError, match=WORDS.get(option, f"{option} {words}|{words} {option}")):
            kind(**common, **{option: value}).fit(X, y)
        return
    other = kind(**common, **{option: value}).fit(X, y)
    scores = [f.decision_function(NEW) if classes else f.predict(NEW) for f in (usual, other)]
    # By ridge on all points the rank is that of a preconditioner, and a solver may reach more than it is asked for.
    if changes and not (option in ("rank", "iterations", "tolerance") and method not in ("nystrom", "random-features", "spectrum", "auto")):
        assert np.abs(scores[0] - scores[1]).max() > 1e-6


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("option", ["metric", "bandwidth", "time"])
def test_a_parameter_of_another_class_is_none_of_the_signature(method, option):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'"):
        mercer.KernelRidge(method=method, **{option: 1})


@pytest.mark.parametrize("option", ["rank", "tolerance", "iterations"])
def test_a_direct_solver_refuses_options_of_others(option):
    with pytest.raises(ValueError, match=f"{option} is for solver='cg'; solver='direct' takes none"):
        mercer.KernelRidge(kernel="rbf", solver="direct", **{option: 5}).fit(X, Y)


@pytest.mark.parametrize("method", ["askotch", "eigenpro", "richardson"])
def test_a_solver_that_is_a_method_is_named(method):
    with pytest.raises(ValueError, match=f"solver='{method}' is not known, as {method} is a method; write method='{method}'"):
        mercer.KernelRidge(kernel="rbf", solver=method).fit(X, Y)


def test_parameters_are_those_of_the_registry():
    """Signatures, defaults and documentation come from the library; scikit-learn's tools see them."""
    names = list(inspect.signature(mercer.KernelRidge).parameters)
    assert names[0] == "alpha" and {"tolerance", "iterations", "criterion", "search", "checkpoint", "solver"} < set(names)
    assert not {"loss", "class_weight", "metric", "time"} & set(names)
    assert mercer.KernelClassifier().get_params() | {"loss": None, "alpha": "auto", "method": "auto"} == mercer.KernelClassifier().get_params()
    processes = (mercer.GaussianProcessRegressor, mercer.GaussianProcessClassifier)
    maps = (mercer.KernelPCA, mercer.LaplacianEigenmaps, mercer.DiffusionMaps)
    for kind in (mercer.KernelRidge, mercer.NadarayaWatson, mercer.RecursiveFeatureMachine, mercer.NtkEnsemble, mercer.QuantileRegressor, *processes, *maps):
        documented = {name.strip() for line in kind.__doc__.splitlines() if " : " in line for name in line.split(" : ")[0].split(",")}
        assert set(inspect.signature(kind).parameters) <= documented
    assert mercer.KernelRidge(2.0, kernel="rbf").alpha == 2.0
    with pytest.raises(TypeError, match="too many positional"):
        mercer.KernelRidge(2.0, "rbf")


PROCESSES = {entry["name"]: entry["options"] for entry in family("processes")["entries"]}
MAPS = {"kpca": mercer.KernelPCA, "laplacian": mercer.LaplacianEigenmaps, "diffusion": mercer.DiffusionMaps}


@pytest.mark.parametrize("method", PROCESSES)
def test_a_process_refuses_what_is_not_its_own(method):
    for option, value, wrong in [("rank", 5, 0), ("search_rows", 50, 1), ("precision", "f32", "f16")]:
        if option in PROCESSES[method]:
            with pytest.raises(ValueError, match=f"{option} cannot be `\"?{wrong}\"?`|unknown precision"):
                mercer.GaussianProcessRegressor(method=method, **{option: wrong}).fit(X, Y)
        else:
            with pytest.raises(ValueError, match=f"the method {method} does not take {option}, which is for"):
                mercer.GaussianProcessRegressor(method=method, **{option: value}).fit(X, Y)
    with pytest.raises(ValueError, match="n_restarts_optimizer must be a whole number of at least 0, not -1"):
        mercer.GaussianProcessRegressor(method=method, n_restarts_optimizer=-1).fit(X, Y)


@pytest.mark.parametrize("method", MAPS)
def test_an_embedding_refuses_what_is_not_its_own(method):
    own = next(entry["options"] for entry in family("embeddings")["entries"] if entry["name"] == method)
    for option in ("alpha", "time"):
        if option in own:
            with pytest.raises(ValueError, match=f"{option} cannot be `-1.0`: it must be a number of at least 0"):
                MAPS[method](n_components=2, **{option: -1.0}).fit(X)
        else:
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'"):
                MAPS[method](n_components=2, **{option: 1.0})


def test_kernels_are_searched_for():
    searched = mercer.KernelRidge(alpha="auto", search="rbf,linear").fit(X, Y)
    assert searched.kernel_.startswith("rbf")
    with pytest.raises(ValueError, match="search names the kernels to choose among; leave it or kernel out"):
        mercer.KernelRidge(search="rbf", kernel="rbf(2)").fit(X, Y)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_fits_with_its_own_defaults(method):
    """Without an intercept by the method ridge, as in scikit-learn, and with one by the others: shifted targets shift predictions."""
    ridge = mercer.KernelRidge(alpha=1e-2, kernel="linear" if method == "linear" else "rbf", method=method)
    shift = ridge.fit(X, Y + 100).predict(50 + NEW) - ridge.fit(X, Y).predict(50 + NEW)
    if method == "ridge":
        assert np.abs(shift).max() < 1
    else:
        np.testing.assert_allclose(shift, 100, rtol=2e-2)


def test_no_intercept_is_kept_to_at_any_number_of_rows():
    x = np.random.default_rng(0).normal(size=(4100, 2))
    ridge = mercer.KernelRidge(kernel="rbf", method="auto", fit_intercept=False, alpha=1.0).fit(x, x[:, 0] + 100)
    assert ridge.header_["kind"] == "ridge" and abs(ridge.predict([[90.0, 90.0]])[0]) < 1
    assert mercer.KernelRidge(kernel="rbf", method="auto", alpha=1.0).fit(x, x[:, 0] + 100).predict([[90.0, 90.0]])[0] > 50


SENTENCES = [
    (mercer.Spectrum(n_components=-1), "n_components must be a whole number of at least 1, not -1"),
    (mercer.RBFSampler(n_components=-1), "n_components must be a whole number"),
    (mercer.KernelPCA(n_components=2.5), "n_components must be a whole number"),
    (mercer.Spectrum(random_state=-1), "random_state must be a whole number of at least 0, not -1"),
    (mercer.KernelRidge(alpha="auto", cv=KFold(3)), "cv=KFold"),
    (mercer.KernelRidge(alpha=1.0, cv=3), "cv chooses alpha; leave one of them out, or give alpha='auto'"),
    (mercer.KernelRidge(alpha=None, rank=float("nan")), "rank=nan cannot be used"),
    (mercer.KernelRidge(alpha=-1), "alpha cannot be `-1`: it must be a number of at least 0, or auto"),
    (mercer.KernelRidge(alpha="auto", cv=1), "cv cannot be `1`: it must be a whole number from 2"),
    (mercer.KernelRidge(method="nadaraya-watson"), "the method nadaraya-watson does not take alpha, which is for auto, ridge, nystrom"),
    (mercer.KernelRidge(kernel="linear", method="linear", precision="f32"), "precision f32 is for methods on kernel values"),
    (mercer.RecursiveFeatureMachine(rounds=-1), "rounds cannot be `-1`: it must be a whole number from 0 to 100"),
    (mercer.NadarayaWatson(bandwidth=0.0), "bandwidth cannot be `0.0`: it must be a number above 0, or auto"),
    (mercer.QuantileRegressor(1.0), "quantile cannot be `1.0`: it must be a number above 0 and below 1"),
    (mercer.QuantileRegressor(0.3, kernel="precomputed"), "the method quantile needs a kernel expression"),
    (mercer.NtkEnsemble(time=-1.0), "time cannot be `-1.0`: it must be a number of at least 0, or inf or infinity"),
    (mercer.KernelRidge(fit_intercept="yes"), "fit_intercept must be True, False or 'auto'"),
    (mercer.KernelRidge(kernel="rbf", method="nystrom", fit_intercept=False), "the method nystrom always has an intercept"),
    (mercer.KernelRidge(kernel="rbf(1)", gamma=0.5), "gamma is for the kernels"),
    (mercer.KernelRidge(kernel="rbf", method="nystroem"), "unknown method 'nystroem'; did you mean 'nystrom'"),
    (mercer.KernelRidge(kernel="linear", method="auto", rank=5), "a linear kernel takes the columns themselves and no rank"),
    (mercer.GaussianProcessRegressor(rank=5), "the method exact does not take rank, which is for auto, cg, nystrom, random-features and spectrum"),
    (mercer.GaussianProcessRegressor(precision="f32"), "the method exact does not take precision, which is for cg"),
    (mercer.GaussianProcessRegressor(method="cg", rank=0), "rank cannot be `0`: it must be a whole number from 1"),
    (mercer.GaussianProcessRegressor(method="chol"), "unknown method 'chol'"),
    (mercer.DiffusionMaps(alpha=-0.5), "alpha cannot be `-0.5`: it must be a number of at least 0"),
    (mercer.KernelPCA(n_components=2, tol=-1.0), "tolerance cannot be `-1.0`: it must be a number above 0"),
    (mercer.LaplacianEigenmaps(affinity="rbf(1)", n_neighbors=3), "n_neighbors is for the affinity nearest_neighbors"),
    (mercer.LaplacianEigenmaps(gamma=3.0), "gamma is for the affinity a kernel"),
    (mercer.Spectrum(method_params={"landmarks": object()}, method="nystrom"), "landmarks=<object object"),
]


@pytest.mark.parametrize(("estimator", "sentence"), SENTENCES, ids=[sentence for _, sentence in SENTENCES])
def test_mistakes_are_answered_in_one_sentence(estimator, sentence):
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")) as raised:
        estimator.fit(X, Y)
    assert "\n" not in str(raised.value)


def test_weights_are_for_classes_that_are_there():
    with pytest.raises(ValueError, match="class_weight has a weight for 2, which is none of the classes 0, 1"):
        mercer.KernelClassifier(class_weight={0: 1.0, 2: 1.0}).fit(X, LABELS)
    weighted = mercer.KernelClassifier(class_weight={0.0: 1.0, 1.0: 5.0}).fit(X, LABELS)
    assert np.array_equal(weighted.decision_function(X), mercer.KernelClassifier(class_weight={0: 1.0, 1: 5.0}).fit(X, LABELS).decision_function(X))


def test_a_memory_in_bytes_is_a_number():
    x = np.random.default_rng(0).normal(size=(4000, 3))
    with pytest.raises(ValueError, match="the memory budget is 8.0 MiB"):
        mercer.KernelPCA(n_components=2, kernel="rbf", eigen_solver="dense", memory=8 * 2**20).fit(x)


@pytest.mark.parametrize("fit", ["fit", "fit_transform"])
@pytest.mark.parametrize(
    "estimator", [mercer.KernelPCA(n_components=5), mercer.Eigenmap(n_components=9, net="dense(1) relu", epochs=1), mercer.Nystroem(n_components=500)], ids=repr
)
def test_warnings_point_at_the_line_of_the_user(estimator, fit):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        getattr(estimator, fit)(X)
    own = [warning for warning in shown if warning.category is mercer.MercerWarning]
    assert own and all("getattr(estimator, fit)(X)" in linecache.getline(warning.filename, warning.lineno) for warning in own)


def test_large_values_warn_of_nothing_in_numpy():
    spectrum = mercer.Spectrum(n_components=1, kernel="rbf(1)").fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert spectrum.transform(np.full((1, 3), 1e308)).shape == (1, 1)

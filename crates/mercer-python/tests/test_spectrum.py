"""Spectra by every method, from every source, with their certificates."""

import json
import pickle

import numpy as np
import pytest

import mercer

LINE = np.linspace(-2, 2, 400)[:, None]
EXACT = np.linalg.eigvalsh(np.exp(-0.5 * (LINE - LINE.T) ** 2))[::-1][:3] / 400
TRAINED = {"neuralef", "spin", "nested", "omm", "ritz"}


@pytest.mark.parametrize("method", mercer.methods())
def test_every_method_finds_the_pairs(method):
    kernel = "expdot(1)" if method == "positive" else "rbf(1)"
    options = {"steps": 100} if method in TRAINED else {}
    spectrum = mercer.Spectrum(n_components=3, kernel=kernel, method=method, method_params=options, holdout=0).fit(LINE)
    if method != "positive":
        np.testing.assert_allclose(spectrum.eigenvalues_, EXACT, rtol=0.1)
    assert spectrum.transform(LINE[:5]).shape == (5, 3)
    assert (spectrum.training_ is not None) == (method in TRAINED)
    assert len(spectrum.certificate_.residual) == 3


def test_all_methods_are_offered():
    assert set(mercer.methods()) == TRAINED | {"exact", "krylov", "nystrom", "rff", "positive"}


def test_eigenfunctions_are_orthonormal_and_rebuild_the_kernel():
    spectrum = mercer.Spectrum(n_components=20, kernel="rbf(1)", method="exact", holdout=0).fit(LINE)
    psi = spectrum.transform(LINE)
    np.testing.assert_allclose((psi * spectrum.eigenvalues_) @ psi.T, np.exp(-0.5 * (LINE - LINE.T) ** 2), atol=1e-7)


def test_a_certificate_is_plain_data_with_a_table():
    x = np.random.default_rng(0).normal(size=(300, 2))
    certificate = mercer.Spectrum(n_components=4, kernel="rbf(1)").fit(x).certificate_
    assert certificate.held_out == 30 and certificate.worst_residual() < 1e-4
    for (low, high), value in zip(certificate.interval, certificate.eigenvalues, strict=True):
        assert low < high and abs(value / (low + high) * 2 - 1) < 1
    html, text = certificate._repr_html_(), str(certificate)
    assert html.count("<tr>") == 5 and "30 points held out" in html and "simple" in text


def test_figures_are_drawn(tmp_path):
    spectrum = mercer.Spectrum(n_components=4, kernel="linear").fit(np.random.default_rng(0).normal(size=(300, 2)))
    figure = spectrum.certificate_.figure()
    assert figure._repr_svg_().startswith("<svg") and "eigenvalue" in figure.svg
    figure.save(tmp_path / "f.svg")
    assert (tmp_path / "f.svg").read_text() == figure.svg
    assert "seven" in mercer.scatter(LINE[:, [0, 0]], ["seven"] * 200 + ["eight"] * 200).svg
    with pytest.raises(ValueError, match="two coordinates"):
        mercer.scatter(LINE)


def test_files_are_those_of_the_library(tmp_path):
    spectrum = mercer.Spectrum(n_components=3, kernel="rbf(1)").fit(LINE)
    spectrum.save(tmp_path / "m.mercer")
    for again in (mercer.Spectrum.load(tmp_path / "m.mercer"), mercer.load(tmp_path / "m.mercer"), pickle.loads(pickle.dumps(spectrum))):
        assert np.array_equal(again.transform(LINE), spectrum.transform(LINE))
        assert again.certificate_ == spectrum.certificate_
    ridge = mercer.KernelRidge(kernel="rbf").fit(LINE, LINE[:, 0])
    ridge.save(tmp_path / "r.mercer")
    assert np.array_equal(mercer.load(tmp_path / "r.mercer").scores(LINE)[:, 0], ridge.predict(LINE))
    with pytest.raises(ValueError, match="not a spectrum"):
        mercer.Spectrum.load(tmp_path / "r.mercer")
    with pytest.raises(OSError, match="nothing"):
        mercer.load(tmp_path / "nothing.mercer")
    content = bytearray((tmp_path / "r.mercer").read_bytes())
    content[-3] ^= 1
    (tmp_path / "r.mercer").write_bytes(content)
    with pytest.raises(ValueError, match="changed after it was written"):
        mercer.load(tmp_path / "r.mercer")


def test_callables_and_matrices_give_what_the_formula_gives():
    x, new = LINE[::4], LINE[1::40]
    kernel = mercer.kernel("rbf(1)")
    by_formula = mercer.Spectrum(n_components=3, kernel="rbf(1)", method="exact", holdout=0).fit(x)
    by_function = mercer.Spectrum(n_components=3, kernel=lambda a, b: kernel(a, b), method="exact").fit(x)
    by_matrix = mercer.Spectrum(n_components=3, kernel="precomputed", method="exact").fit(kernel(x))
    want = np.abs(by_formula.transform(new))
    np.testing.assert_allclose(np.abs(by_function.transform(new)), want, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(np.abs(by_matrix.transform(kernel(new, x))), want, rtol=1e-8, atol=1e-10)
    trained = mercer.NeuralEigenfunctions(n_components=2, objective="ritz", kernel=lambda a, b: kernel(a, b), steps=20).fit(x)
    assert trained.transform(new).shape == (10, 2)


def test_function_samples():
    rng = np.random.default_rng(0)
    f = rng.normal(size=(30, 50, 2))
    spectrum = mercer.Spectrum(n_components=3, method="exact").fit_samples(f)
    flat = f.reshape(30, 100)
    np.testing.assert_allclose(spectrum.eigenvalues_, np.linalg.eigvalsh(flat.T @ flat / 30)[::-1][:3] / 100, rtol=1e-10)
    assert spectrum.transform_samples(f[:, :7]).shape == (14, 3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "krilov"}, "did you mean 'krylov'"),
        ({"method_params": {"steps": 3}}, "the method krylov does not take steps, which is for neuralef"),
        ({"n_components": 1000}, "k must lie between 1 and"),
        ({"kernel": "rbf(-1)"}, "lengthscale"),
        ({"memory": "a lot"}, "memory budget"),
        ({"device": "gpu"}, "unknown device"),
        ({"precision": "f16"}, "unknown precision"),
        ({"method": "exact", "memory": "1MiB", "holdout": 0}, "memory budget is 1.0 MiB"),
        ({"method": "nystrom", "method_params": {"landmarks": "many"}}, "landmarks"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence) as raised:
        mercer.Spectrum(**options).fit(np.random.default_rng(0).normal(size=(600, 2)))
    assert "\n" not in str(raised.value)


def test_progress_is_shown(capfd):
    mercer.NeuralEigenfunctions(n_components=2, steps=300, kernel="rbf(1)", verbose=1).fit(LINE)
    assert " of " in capfd.readouterr().err


def test_the_same_seed_gives_the_same_bits():
    def eigenvalues(seed):
        return mercer.NeuralEigenfunctions(n_components=2, steps=30, kernel="rbf(1)", random_state=seed).fit(LINE).eigenvalues_

    assert np.array_equal(eigenvalues(1), eigenvalues(1)) and not np.array_equal(eigenvalues(1), eigenvalues(2))
    assert json.loads(mercer.Spectrum(n_components=2, random_state=5).fit(LINE).model_.header())["origin"]["seed"] == 5

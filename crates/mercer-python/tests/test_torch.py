"""PyTorch: kernels against explicit derivatives, posteriors against closed forms. Ignored where PyTorch is missing."""

import re

import numpy as np
import pytest

import mercer

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import mercer.torch as mt  # noqa: E402
from mercer import _mercer  # noqa: E402
from mercer._base import as_points  # noqa: E402


def network(outputs=2):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, outputs)).double()


X = torch.linspace(-1, 1, 36, dtype=torch.float64).reshape(12, 3)


def explicit_jacobian(net, x):
    rows = []
    for row in x:
        g = net(row[None])[0]
        rows.append(torch.stack([torch.cat([d.flatten() for d in torch.autograd.grad(value, list(net.parameters()), retain_graph=True)]) for value in g]))
    return torch.stack(rows)


def test_the_tangent_kernel_is_the_product_of_derivatives():
    net = network()
    j = explicit_jacobian(net, X)
    np.testing.assert_allclose(mt.jacobian(net, X, batch_size=5), j, rtol=1e-12)
    np.testing.assert_allclose(mt.ntk(net, X), torch.einsum("ncp,mdp->nmcd", j, j), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(mt.ntk(net, X, X[:3], trace=True), torch.einsum("ncp,mcp->nm", j, j[:3]) / 2, rtol=1e-10, atol=1e-12)


def test_function_samples_are_derivatives_along_directions():
    net = network()
    f = mt.function_samples(net, X, 4000, batch_size=7)
    kernel = np.einsum("snc,smd->nmcd", f, f) / 4000
    want = mt.ntk(net, X).numpy()
    assert np.abs(kernel - want).max() < 0.15 * np.abs(want).max()
    spectrum = mercer.Spectrum(n_components=3, method="exact").fit_samples(f)
    exact = np.linalg.eigvalsh(want.transpose(0, 2, 1, 3).reshape(24, 24))[::-1][:3] / 24
    np.testing.assert_allclose(spectrum.eigenvalues_, exact, rtol=0.15)


def test_a_linear_model_has_its_bayesian_posterior():
    torch.manual_seed(1)
    net = torch.nn.Linear(2, 1).double()
    x = torch.randn(80, 2, dtype=torch.float64)
    y = net(x)[:, 0].detach() + 0.3 * torch.randn(80, dtype=torch.float64)
    posterior = mt.laplace(net, [(x[:30], y[:30]), (x[30:60], y[30:60])], [(x[60:], y[60:])])
    new = torch.randn(5, 2, dtype=torch.float64) * 5
    mean, deviation = posterior.predict(new)
    np.testing.assert_allclose(mean, net(new)[:, 0].detach(), rtol=1e-12)
    noise, tau = posterior.header_["noise"], posterior.prior_precision_
    design = np.c_[x[:60], np.ones(60)]
    covariance = np.linalg.inv(design.T @ design / noise + tau * np.eye(3))
    at = np.c_[new, np.ones(5)]
    np.testing.assert_allclose(deviation, np.sqrt(np.einsum("ij,jk,ik->i", at, covariance, at) + noise), rtol=1e-6)


@pytest.mark.parametrize("directions", [None, 200])
@pytest.mark.parametrize("method", ["functions", "eigenfunctions", "map", "temperature"])
def test_classes_get_probabilities(directions, method):
    torch.manual_seed(0)
    net = network(3)
    x = torch.randn(90, 3, dtype=torch.float64)
    y = torch.randint(0, 3, (90,))
    options = {"functions": 5, "tempered": True} if method == "eigenfunctions" else {}
    posterior = mt.laplace(net, [(x[:60], y[:60])], [(x[60:], y[60:])], method=method, directions=directions, **options)
    p = posterior.predict_proba(x)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    if method == "map":
        np.testing.assert_allclose(p, torch.softmax(net(x), 1).detach(), rtol=1e-10)
    with pytest.raises(ValueError, match="predict_proba"):
        posterior.predict(x)


def test_auto_keeps_the_method_with_the_lowest_loss():
    torch.manual_seed(0)
    net = network(3)
    x = torch.randn(400, 3, dtype=torch.float64)
    # The classes are those of a network with logits a third as large.
    y = torch.distributions.Categorical(logits=net(x).detach() / 3).sample()
    fit, validation = [(x[:200], y[:200])], [(x[200:], y[200:])]
    kept = mt.laplace(net, fit, validation, method="auto").header_["method"]
    assert kept != "map"
    name = kept if isinstance(kept, str) else next(iter(kept))
    asked = mt.laplace(net, fit, validation, method=name)
    np.testing.assert_array_equal(asked.predict_proba(x), mt.laplace(net, fit, validation, method="auto").predict_proba(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "map", "tempered": True}, "the method map does not take tempered, which is for"),
        ({"method": "functions", "functions": 5}, "the method functions does not take functions"),
        ({"count": 5}, "there is no option count; it is functions now"),
        ({"draws": 0}, "draws cannot be `0`"),
        ({"method": "kfac"}, "needs the network itself"),
        ({"method": "eigenfunction"}, "did you mean 'eigenfunctions'"),
    ],
)
def test_options_of_another_method_are_refused_by_name(options, message):
    x, y = torch.randn(40, 3, dtype=torch.float64), torch.randint(0, 3, (40,))
    with pytest.raises(ValueError, match=re.escape(message)):
        mt.laplace(network(3), [(x[:20], y[:20])], [(x[20:], y[20:])], **options)


@pytest.mark.parametrize("net", [None, "dense(16) tanh dense(8) gelu dense(1)", "dense(8) sincos | dense(6) relu dense(1)"])
@pytest.mark.parametrize("objective", ["neuralef", "ritz", "nested"])
def test_eigenfunctions_are_a_module(objective, net):
    if objective == "ritz" and net is not None and "|" in net:
        pytest.skip("Ritz trains one network")
    x = np.random.default_rng(0).normal(size=(300, 2))
    neural = mercer.NeuralEigenfunctions(n_components=3, objective=objective, net=net, steps=20, kernel="rbf(1)").fit(x)
    module = mt.eigenfunctions(neural)
    psi = module(torch.from_numpy(x))
    scale = np.abs(neural.transform(x)).max()
    np.testing.assert_allclose(psi.detach(), neural.transform(x), atol=2e-4 * scale)
    (psi**2).mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())


def test_what_has_no_networks_is_no_module():
    x = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(ValueError, match="krylov has no networks"):
        mt.eigenfunctions(mercer.Spectrum(n_components=2).fit(x))


def test_tensors_are_read_where_they_lie():
    x = torch.arange(6, dtype=torch.float64).reshape(3, 2)
    assert _mercer.address(as_points(x)) == x.data_ptr()
    assert np.array_equal(mercer.kernel("linear")(x), (x @ x.T).numpy())
    z = mercer.KernelPCA(n_components=1).fit(torch.randn(20, 2, dtype=torch.float64)).transform(x)
    assert z.shape == (3, 1)


def test_the_mode_of_a_module_stays():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1)).double()
    net.train()
    assert torch.equal(mt.ntk(net, X), mt.ntk(net, X)) and net.training

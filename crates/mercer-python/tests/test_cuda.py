"""Arrays in the memory of a GPU go in and come out without a copy. Skipped where PyTorch or a GPU is missing."""

import gc

import numpy as np
import pytest

import mercer
from mercer import _mercer

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

#: One of each way in which points are seen: as they are, shifted, by columns, over their norms, periodic, of a network, mixed.
KERNELS = [
    "rbf(2)",
    "linear",
    "poly(2)",
    "laplacian(3)",
    "matern12(2)",
    "cosine",
    "arccos(0)",
    "arccos(1)",
    "periodic(3, 1.5)",
    "rbf([1, 2, 3, 4, 5])",
    "poly(2, lengthscale=[1, 2, 3, 4, 5])",
    "cosine([1, 2, 3, 4, 5])",
    "periodic(3, [1, 2, 3, 4, 5])",
    "ntk(depth=2, lengthscale=[1, 2, 3, 4, 5])",
    "matern52([2, 2, 3, 3, 1])",
    "ntk(depth=2)",
    "nngp(depth=3, act=erf)",
    "0.5*rbf(2) + ntk(depth=3)",
    "rbf(2)*linear + 2*laplacian(3) + periodic(2, 1)",
    "rbf(lengthscale=median)",
]
#: Largest error over the largest value. That of float32 is what tensor cores are allowed where entries are not computed anew, 2⁻¹⁸
#: (`roundoff` in operator/cuda/recomputation.rs); products with a float64 operator are rounded once.
BOUND = {torch.float64: 1e-12, torch.float32: 2.0**-18}
PRODUCT = {torch.float64: 1e-12, torch.float32: 1e-6}


def points(n, d=5, dtype=torch.float64, seed=0, far=0.0):
    x = np.random.default_rng(seed).normal(size=(n, d)) + far
    return torch.from_numpy(x).to(dtype).cuda()


def close(got, want, bound):
    got, want = np.asarray(got.cpu(), float), np.asarray(want, float)
    assert got.shape == want.shape
    off = np.abs(got - want).max() / np.abs(want).max()
    assert off <= bound, f"off by {off}"


@pytest.mark.parametrize(
    ("expression", "dtype"), [(k, torch.float64) for k in KERNELS] + [(k, torch.float32) for k in KERNELS[::3]]
)
def test_matrices_are_those_of_the_host(expression, dtype):
    k, x, y = mercer.kernel(expression), points(300, dtype=dtype), points(170, dtype=dtype, seed=1)
    y[:20] = x[100:120]  # equal points
    for z in (None, y):
        got = k(x, z)
        assert isinstance(got, torch.Tensor) and got.device == x.device and got.dtype == dtype
        # The host computes in double: what is compared is the error of the device alone.
        want = k(x.double().cpu().numpy(), None if z is None else z.double().cpu().numpy())
        close(got, want, BOUND[dtype])
    close(k.diagonal(x), k.diagonal(x.double().cpu().numpy()), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("expression", ["rbf(1)", "matern12(1)", "laplacian(1)", "rbf([1, 1, 2, 2, 1])", "periodic(1, 1)"])
def test_points_far_from_the_origin_and_clusters_far_apart_lose_no_digits(expression, dtype):
    x = points(200, dtype=torch.float64, far=1000.0)
    x[:100] += 50.0
    x = x.to(dtype)
    got = mercer.kernel(expression)(x)
    close(got, mercer.kernel(expression)(x.double().cpu().numpy()), 4e-11 if dtype == torch.float64 else 4e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("expression", ["rbf(2)", "cosine", "laplacian(3)", "rbf(2)*linear + periodic(2, 1)"])
def test_products_are_those_of_the_host(expression, dtype):
    x, v = points(900), points(900, 3, dtype, seed=2)
    op = mercer.operator(expression, x)
    host = mercer.operator(expression, x.cpu().numpy())
    got = op @ v
    assert isinstance(got, torch.Tensor) and got.device == x.device and got.dtype == dtype
    want = host @ v.double().cpu().numpy()
    close(got, want, PRODUCT[dtype])
    close(op @ v[:, 1], want[:, 1], PRODUCT[dtype])
    close(op.dot(v[:, :1]), want[:, :1], PRODUCT[dtype])
    np.testing.assert_allclose(op @ v.double().cpu().numpy(), want, rtol=0, atol=1e-12 * np.abs(want).max())
    np.testing.assert_allclose(op.diagonal(), host.diagonal(), rtol=1e-13)
    np.testing.assert_allclose(op.to_dense(), host.to_dense(), rtol=0, atol=1e-12 * np.abs(host.to_dense()).max())
    rows, columns = [5, 800, 5], [800, 7, 5, 6]
    np.testing.assert_allclose(op.block(rows, columns), host.block(rows, columns), rtol=0, atol=1e-12 * np.abs(host.diagonal()).max())


def test_the_memory_of_a_tensor_is_what_is_read():
    x = points(50)
    assert _mercer.address(x) == x.data_ptr()
    assert _mercer.address(x[7:]) == x.data_ptr() + 7 * 5 * 8
    y = mercer.kernel("linear")(x)
    assert _mercer.address(y) == y.data_ptr()


def test_no_copy_of_the_points_is_made_by_pytorch():
    x, y = points(20_000, 40), points(300, 40, seed=1)
    mercer.kernel("rbf(2)")(y)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    op = mercer.operator("rbf(2)", x)
    k = mercer.kernel("rbf(2)")(x, y)
    assert torch.cuda.memory_allocated() == before and torch.cuda.max_memory_allocated() == before
    assert k.shape == (20_000, 300) and op.shape == (20_000, 20_000)


@pytest.mark.parametrize("change", [lambda x: x[::2], lambda x: x[:, ::2], lambda x: x.T.contiguous().T, lambda x: x[:, 1:4]])
def test_arrays_with_gaps_are_read_where_they_lie(change):
    x = change(points(240, 6))
    assert _mercer.address(x) == x.data_ptr()
    want = mercer.kernel("rbf(2)")(np.ascontiguousarray(x.cpu().numpy()))
    close(mercer.kernel("rbf(2)")(x), want, 1e-12)
    v = change(points(2 * len(x), 6, seed=3))[: len(x)]
    op = mercer.operator("rbf(2)", x)
    close(op @ v, want @ np.ascontiguousarray(v.cpu().numpy()), 1e-12)


def test_other_types_are_converted_once():
    x = torch.arange(12).reshape(4, 3).cuda()
    close(mercer.kernel("linear")(x), (x.double() @ x.T.double()).cpu(), 1e-12)
    half = points(30, dtype=torch.bfloat16)
    assert mercer.kernel("rbf(2)")(half).dtype == torch.float64


def test_gradients_are_left_out():
    x = points(30).requires_grad_()
    k = mercer.kernel("rbf(2)")(x)
    assert not k.requires_grad


def test_work_on_other_streams_is_waited_for():
    """Points and vectors are written by a slow queue on a side stream; results are used on another."""
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    op = mercer.operator("rbf(2)", points(2000))
    want = op @ torch.ones(2000, 1, dtype=torch.float64, device="cuda")
    for _ in range(5):
        with torch.cuda.stream(one):
            v = torch.zeros(2000, 1, dtype=torch.float64, device="cuda")
            slow = torch.randn(3000, 3000, device="cuda")
            for _ in range(20):
                slow = slow @ slow / slow.abs().max()
            v += 1 + 0 * slow[0, 0].double().nan_to_num()
            got = op @ v
        with torch.cuda.stream(two):
            two.wait_stream(one)
            assert torch.allclose(got, want, rtol=1e-12)
        del v, got


def test_results_that_are_freed_on_a_stream_are_not_overwritten_too_early():
    x = points(1500)
    k = mercer.kernel("rbf(2)")
    want = k(x).sum(dim=1)
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            sums = []
            for _ in range(20):
                sums.append(k(x).sum(dim=1))  # the matrix is freed while its sum is queued
                k(2 * x)
            for one in sums:
                assert torch.allclose(one, want, rtol=1e-12)


def test_an_operator_outlives_its_points():
    x = points(3000, 8)
    host = x.cpu().numpy()
    op = mercer.operator("rbf(2)", x)
    del x
    gc.collect()
    torch.cuda.empty_cache()
    noise = [torch.full((3000, 8), float("nan"), device="cuda", dtype=torch.float64) for _ in range(20)]
    v = torch.ones(3000, 2, device="cuda", dtype=torch.float64)
    close(op @ v, mercer.operator("rbf(2)", host) @ np.ones((3000, 2)), 1e-12)
    del noise


def test_memory_returns_when_results_are_freed():
    x = points(4000)
    k = mercer.kernel("rbf(2)")
    k(x)
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(200):
        k(x)  # 128 MB each
    torch.cuda.synchronize()
    assert before - torch.cuda.mem_get_info()[0] < 300e6


def test_bad_arrays_are_refused_with_a_sentence():
    k, x = mercer.kernel("rbf(2)"), points(10)
    bad = x.clone()
    bad[3, 1] = float("nan")
    bad[7, 0] = float("inf")
    with pytest.raises(ValueError, match="row 4, column 2 .counted from 1. is NaN"):
        k(bad)
    with pytest.raises(ValueError, match="row 4, column 2"):
        mercer.operator("rbf(2)", bad)
    with pytest.raises(ValueError, match="both be on the host or both on a GPU"):
        k(x, x.cpu())
    with pytest.raises(ValueError, match="both be on the host or both on a GPU"):
        k(x.cpu().numpy(), x)
    with pytest.raises(ValueError, match="X has 5 columns and Y has 4"):
        k(x, x[:, :4])
    with pytest.raises(ValueError, match="empty"):
        k(x[:0])
    with pytest.raises(ValueError, match="shape"):
        k(x[0])
    with pytest.raises(ValueError, match="operator is on 10 values"):
        mercer.operator("rbf(2)", x) @ torch.ones(9, 1, device="cuda")
    with pytest.raises(ValueError, match="points of the operator are on the host"):
        mercer.operator("rbf(2)", x.cpu().numpy()) @ x
    with pytest.raises(ValueError, match="move the points"):
        mercer.operator("rbf(2)", x, device="cuda:1")
    with pytest.raises(ValueError, match="there are 3 lengthscales, and the points have 5 columns"):
        mercer.kernel("rbf([1, 2, 3])")(x)


def test_kernels_of_images_take_one_copy_to_the_host():
    x = points(12, 48).abs()
    k = mercer.kernel('ntk("conv(3) relu flatten dense", shape=4x4x3)')
    close(k(x), k(x.cpu().numpy()), 1e-9)


def test_eigenpairs_of_an_operator_on_the_gpu():
    from scipy.sparse.linalg import eigsh

    x = points(500)
    op, host = mercer.operator("rbf(2)", x), mercer.operator("rbf(2)", x.cpu().numpy())
    np.testing.assert_allclose(eigsh(op, 3)[0], eigsh(host, 3)[0], rtol=1e-9)


def test_estimators_copy_points_and_targets_to_the_host():
    x = points(120)
    y = (x[:, 0] + 0.1 * x[:, 1] ** 2).to(torch.float64)
    host, target = x.cpu().numpy(), y.cpu().numpy()
    same = lambda a, b: np.testing.assert_array_equal(a, b)
    same(mercer.KernelPCA(n_components=2).fit(x).transform(x), mercer.KernelPCA(n_components=2).fit(host).transform(host))
    same(mercer.KernelRidge(kernel="rbf").fit(x, y).predict(x), mercer.KernelRidge(kernel="rbf").fit(host, target).predict(host))
    labels = (y > 0).long()
    got = mercer.KernelClassifier().fit(x, labels).predict(x)
    same(got, mercer.KernelClassifier().fit(host, labels.cpu().numpy()).predict(host))
    same(mercer.Nystroem(n_components=20, random_state=0).fit_transform(x), mercer.Nystroem(n_components=20, random_state=0).fit_transform(host))
    same(mercer.RBFSampler(random_state=0).fit_transform(x), mercer.RBFSampler(random_state=0).fit_transform(host))
    spectrum = mercer.Spectrum(n_components=2, kernel="rbf(2)").fit(x)
    same(spectrum.transform(x), mercer.Spectrum(n_components=2, kernel="rbf(2)").fit(host).transform(host))


def test_cupy_arrays():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    x = cupy.asarray(points(80).cpu().numpy())
    got = mercer.kernel("rbf(2)")(x)
    assert isinstance(got, cupy.ndarray) and _mercer.address(x) == x.data.ptr
    np.testing.assert_allclose(got.get(), mercer.kernel("rbf(2)")(x.get()), rtol=0, atol=1e-12)
    v = mercer.operator("rbf(2)", x) @ x
    np.testing.assert_allclose(v.get(), mercer.kernel("rbf(2)")(x.get()) @ x.get(), rtol=0, atol=1e-11)


def test_jax_arrays():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU")
    x = jax.numpy.asarray(points(80, dtype=torch.float32).cpu().numpy())
    got = mercer.kernel("rbf(2)")(x)
    assert isinstance(got, jax.Array)
    np.testing.assert_allclose(np.asarray(got), mercer.kernel("rbf(2)")(np.asarray(x, np.float64)), rtol=0, atol=1e-6)


def test_modules_on_the_gpu_stay_there():
    import mercer.torch as mt

    net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
    x = points(40)
    want = mt.ntk(net, x.cpu())
    net.cuda()
    got = mt.ntk(net, x)
    assert got.device == x.device
    close(got, want, 1e-12)
    y = x[:, 0].clone()
    mean, deviation = mt.laplace(net, [(x[:30], y[:30])], [(x[30:], y[30:])]).predict(x)
    close(torch.as_tensor(mean), net(x)[:, 0].detach().cpu(), 1e-12)
    assert (np.asarray(deviation) > 0).all()

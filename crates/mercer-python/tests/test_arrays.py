"""Arrays go in without a copy, and bad ones are refused with a sentence."""

import numpy as np
import pytest

import mercer
from mercer import _mercer
from mercer._base import as_points


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_c_contiguous_arrays_are_read_where_they_lie(dtype):
    x = np.arange(12, dtype=dtype).reshape(4, 3)
    assert as_points(x) is x
    assert _mercer.address(x) == x.ctypes.data
    x.setflags(write=False)
    assert _mercer.address(x) == x.ctypes.data
    assert _mercer.address(x[1:]) == x.ctypes.data + 3 * x.itemsize


def test_estimators_hand_arrays_on_as_they_are(monkeypatch):
    seen = []
    original = _mercer.Model

    class Spy:
        @staticmethod
        def fit(kind, options, x, *rest):
            seen.append(_mercer.address(x))
            return original.fit(kind, options, x, *rest)

    monkeypatch.setattr("mercer._maps._mercer.Model", Spy)
    x = np.random.default_rng(0).normal(size=(30, 2))
    mercer.KernelPCA(n_components=2).fit(x)
    assert seen == [x.ctypes.data]


class Tensor:
    """A tensor of some library on the CPU: nothing but DLPack."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **options):
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tensors_on_the_host_are_read_where_they_lie(dtype):
    x = np.random.default_rng(0).normal(size=(6, 2)).astype(dtype)
    assert _mercer.address(as_points(Tensor(x))) == x.ctypes.data
    k = mercer.kernel("rbf(1)")
    assert np.array_equal(k(Tensor(x), Tensor(x[:2])), k(x, x[:2]))
    op = mercer.operator("rbf(1)", Tensor(x))
    x_before, product = x.copy(), op @ np.ones(6)
    assert np.array_equal(product, mercer.operator("rbf(1)", x_before) @ np.ones(6))


def test_a_tensor_that_is_on_no_gpu_is_not_taken_for_one():
    with pytest.raises(ValueError, match="not in the memory of a CUDA device"):
        _mercer.to_host(Tensor(np.eye(2)))


@pytest.mark.parametrize(
    "x", [np.arange(6).reshape(3, 2), np.arange(12.0).reshape(6, 2)[::2], np.asfortranarray(np.arange(6.0).reshape(3, 2)), [[0, 1], [2, 3], [4, 5]]]
)
def test_anything_else_is_converted_once(x):
    assert np.array_equal(mercer.kernel("linear")(x), np.asarray(x, float) @ np.asarray(x, float).T)


def test_what_is_no_matrix_of_points_is_refused():
    with pytest.raises(ValueError, match="shape"):
        mercer.kernel("linear")([1.0, 2.0])
    with pytest.raises(ValueError, match="row by row"):
        _mercer.address(np.arange(12.0).reshape(6, 2)[::2])
    with pytest.raises(ValueError, match="row 1, column 2 .* is NaN"):
        mercer.kernel("linear")([[1.0, np.nan]])
    with pytest.raises(ValueError, match="empty"):
        mercer.kernel("linear")(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="X has 2 columns and Y has 3"):
        mercer.kernel("linear")(np.zeros((1, 2)), np.zeros((1, 3)))


def test_results_share_no_memory_with_what_was_given():
    x = np.eye(3)
    k = mercer.kernel("linear")(x)
    x[:] = 0
    assert np.array_equal(k, np.eye(3))


def test_frames_keep_their_column_names():
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    x = np.random.default_rng(0).normal(size=(60, 2))
    frame = pandas.DataFrame(x, columns=["a", "b"])
    pca = mercer.KernelPCA(n_components=2).set_output(transform="pandas").fit(frame)
    assert list(pca.feature_names_in_) == ["a", "b"]
    assert list(pca.transform(frame).columns) == ["kernelpca0", "kernelpca1"]
    z = mercer.Spectrum(n_components=2).set_output(transform="polars").fit_transform(polars.DataFrame(x, schema=["a", "b"]))
    assert z.columns == ["spectrum0", "spectrum1"]
    with pytest.raises(ValueError, match="feature names"):
        pca.transform(frame.rename(columns={"a": "c"}))

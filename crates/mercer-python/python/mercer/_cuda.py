"""Arrays in the memory of a GPU, by the DLPack protocol: PyTorch's, CuPy's, JAX's."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from . import _mercer

#: DLPack's numbers for CUDA devices: memory of the device, and memory that host and device share.
_CUDA = (2, 13)

#: The module that has `from_dlpack`, where it is not the one that an array's type names first.
_MODULES = {"jax": "jax.numpy", "jaxlib": "jax.numpy"}


def is_on_gpu(x: Any) -> bool:
    """Whether `x` is an array in the memory of a CUDA device."""
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack_device__"):
        return False
    return int(x.__dlpack_device__()[0]) in _CUDA


def device_of(x: Any) -> int:
    """The number of the CUDA device that holds `x`."""
    return int(x.__dlpack_device__()[1])


def readable(x: Any) -> Any:
    """`x` itself where it is of float32 or float64 and needs no gradient; else it is converted once, on its device."""
    if hasattr(x, "detach"):
        x = x.detach()
    name = str(x.dtype).rpartition(".")[2]
    if name in ("float32", "float64"):
        return x
    return x.double() if hasattr(x, "double") else x.astype("float64")


def is_single(x: Any) -> bool:
    """Whether an array is of float32."""
    return str(x.dtype).endswith("float32")


def handed_to(like: Any, result: _mercer.CudaArray) -> Any:
    """A result as an array of the library that `like` is from, not copied."""
    name = type(like).__module__.partition(".")[0]
    module = import_module(_MODULES.get(name, name))
    return module.from_dlpack(result) if hasattr(module, "from_dlpack") else result


def moved_to(like: Any, result: np.ndarray) -> Any:
    """A NumPy array as one of the library that `like` is from, copied to its device."""
    rows = np.ascontiguousarray(result.reshape(len(result), -1))
    moved = handed_to(like, _mercer.CudaArray.of_host(rows, device_of(like)))
    return moved.reshape(tuple(result.shape))


def on_host(x: Any) -> np.ndarray:
    """A copy on the host of an array of one or two dimensions in the memory of a GPU."""
    x = x.detach() if hasattr(x, "detach") else x
    name = str(x.dtype).rpartition(".")[2]
    if name not in ("float32", "float64"):
        # Labels, say: whole numbers of any type are copied by their own library.
        return np.asarray(x.cpu() if hasattr(x, "cpu") else x.get() if hasattr(x, "get") else x)
    copy = _mercer.to_host(x)
    return copy[:, 0] if x.ndim == 1 else copy

"""The examples in docstrings and in the guide."""

import doctest
import importlib
import pathlib

import pytest

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
MODULES = ["mercer", "mercer._features", "mercer._figure", "mercer._kernel", "mercer._maps", "mercer._model", "mercer._predict", "mercer._spectrum", "mercer.torch"]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    if name == "mercer.torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    result = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert result.failed == 0 and result.attempted > 0


def test_every_public_class_has_an_example():
    import mercer

    for name in mercer.__all__:
        thing = getattr(mercer, name)
        if isinstance(thing, type) and name not in ("Certificate", "Figure", "MercerWarning", "Operator"):
            assert ">>>" in (thing.__doc__ or ""), name


def test_the_guide():
    guide = pathlib.Path(__file__).parents[3] / "docs/src/python.md"
    result = doctest.testfile(str(guide), module_relative=False, optionflags=OPTIONS)
    assert result.failed == 0 and result.attempted > 10

"""Parameters of estimators from the library's registry: names, defaults, checks and documentation are those of its entries."""

from __future__ import annotations

import functools
import inspect
import json
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

from . import _mercer

Class = TypeVar("Class", bound=type)

#: Parameters that are no options of the registry: every estimator under a kernel has them, with these defaults.
_KERNEL: dict[str, Any] = {"kernel": "rbf(lengthscale=median)", "gamma": None, "degree": 3, "coef0": 1}
_SETTINGS: dict[str, Any] = {"precision": "f64", "random_state": 0, "device": "cpu", "memory": None, "verbose": 0}
_ABOUT = {
    "n_components": "how many coordinates.",
    "affinity": "\"nearest_neighbors\", or a kernel expression.",
    "n_neighbors": "of the affinity nearest_neighbors; 10 by default, half of the points where they are few.",
    "eigen_solver": "\"auto\", \"dense\" or \"krylov\"; scikit-learn's other words are taken too.",
    "tol": "relative residual at which the krylov solver accepts a pair; 0 for the usual one.",
    "n_restarts_optimizer": "random starts of the search for hyper-parameters, beside the one at the median distances.",
    "kernel": "a name that scikit-learn has, an expression such as `\"matern52(lengthscale=auto)\"`, a callable, or \"precomputed\".",
    "gamma, degree, coef0": "of a kernel by scikit-learn's name.",
    "method": "how it is fitted: {methods}.",
    "fit_intercept": "whether a constant is added. \"auto\": none by the method ridge, as in scikit-learn, and one by every other method.",
    "precision": "of kernel values: \"f64\", \"f32\" or \"tf32\".",
    "random_state, device, memory, verbose": "the seed, where to compute, the memory that may be used, and whether progress is shown.",
}


@functools.cache
def family(name: str) -> dict[str, Any]:
    """A family of the registry: its entries, and their options."""
    described: dict[str, Any] = json.loads(_mercer.family(name))
    return described


def entries_with(name: str, *options: str) -> list[str]:
    """The entries of a family that take all of some options."""
    return [entry["name"] for entry in family(name)["entries"] if set(options) <= set(entry["options"])]


def _options(name: str, methods: list[str]) -> dict[str, dict[str, Any]]:
    """The options of some entries by their names, in the order of the family."""
    taken = {option for entry in family(name)["entries"] if entry["name"] in methods for option in entry["options"]}
    return {option["name"]: option for option in family(name)["options"] if option["name"] in taken}


def _documented(parameter: str, about: str) -> str:
    return textwrap.fill(f"{parameter} : {about}", 140, subsequent_indent="    ", break_long_words=False)


def _documentation(names: list[str], options: dict[str, dict[str, Any]], methods: list[str]) -> str:
    """The section of a docstring on the parameters."""
    lines = [_documented(name, f"{options[name]['help'].rstrip('.')}; {options[name]['values']}.") for name in names if name in options]
    words = ", ".join(json.dumps(method) for method in methods)
    lines += [_documented(name, about.format(methods=words)) for name, about in _ABOUT.items() if name.split(",")[0] in names]
    return "\n".join(["Parameters", "----------", *lines])


def parameters(name: str, methods: list[str], *, first: str = "kernel", without: tuple[str, ...] = (), **defaults: Any) -> Callable[[Class], Class]:
    """Gives a class the parameters of some entries of a family: `first`, by position too, then others by name.

    An option is None (a flag False) by default, which leaves it to the library; `defaults` has others, and parameters beside the options. The
    class finds `method` among its parameters where there are several entries.
    """
    options = {option: about for option, about in _options(name, methods).items() if option not in without}
    unset = {option: False if about["flag"] else None for option, about in options.items()}
    values = {name: value for name, value in _KERNEL.items() if name not in without} | defaults | {option: defaults.get(option, value) for option, value in unset.items()} | _SETTINGS
    names = [first, *(other for other in values if other != first)]

    def kind(parameter: str) -> Any:
        return inspect.Parameter.POSITIONAL_OR_KEYWORD if parameter == first else inspect.Parameter.KEYWORD_ONLY

    signature = inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *(inspect.Parameter(parameter, kind(parameter), default=values[parameter]) for parameter in names),
        ]
    )

    def decorate(cls: Class) -> Class:
        def __init__(self: Any, *positional: Any, **named: Any) -> None:
            given = signature.bind(self, *positional, **named)
            given.apply_defaults()
            vars(self).update(list(given.arguments.items())[1:])

        setattr(__init__, "__signature__", signature)
        __init__.__qualname__ = f"{cls.__qualname__}.__init__"
        about, example, code = (inspect.getdoc(cls) or "").partition(">>> ")
        sections = [about.strip(), _documentation(names, options, methods), example + code]
        setattr(cls, "__init__", __init__)
        setattr(cls, "__doc__", "\n\n".join(sections).strip() + "\n")
        setattr(cls, "_registered", Registered(name, methods, unset, values))
        return cls

    return decorate


class Registered:
    """What an estimator's class has from the registry."""

    def __init__(self, family_name: str, methods: list[str], unset: dict[str, Any], defaults: dict[str, Any]) -> None:
        self.family_name = family_name
        self.methods = methods
        self._unset = unset
        self._defaults = defaults

    def given(self, estimator: Any) -> dict[str, Any]:
        """The entry that an estimator asks for, and the options that it sets."""
        values = {name: getattr(estimator, name) for name in self._unset}
        given = {name: value for name, value in values.items() if value is not None and value is not self._unset[name]}
        return given | {"method": getattr(estimator, "method", self.methods[0])}

    def is_default(self, estimator: Any, name: str) -> bool:
        """Whether a parameter is that of the signature."""
        value = getattr(estimator, name)
        return value is self._defaults[name] or isinstance(value, str) and value == self._defaults[name]

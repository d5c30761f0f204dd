"""Figures that notebooks show inline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from . import _mercer


class Figure:
    """A figure as SVG: shown by notebooks, written by `save`."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Writes the figure to an .svg file."""
        Path(path).write_text(self.svg, encoding="utf-8")


def scatter(Z: Any, y: Any = None, title: str = "embedding") -> Figure:
    """The first two coordinates of points Z `[n, k]`, coloured by the classes y where there are some.

    >>> scatter([[0.0, 1.0], [2.0, 3.0]], ["a", "b"]).svg[:4]
    '<svg'
    """
    Z = np.asarray(Z, dtype=np.float64)
    if Z.ndim != 2 or Z.shape[1] < 2:
        raise ValueError(f"a figure of the plane needs two coordinates, and these have the shape {Z.shape}")
    labels, names = None, []
    if y is not None:
        classes, inverse = np.unique(np.asarray(y), return_inverse=True)
        labels, names = inverse.tolist(), [str(name) for name in classes]
    return Figure(_mercer.scatter_figure(title, Z[:, 0].copy(), Z[:, 1].copy(), labels, names))

"""How good each eigenpair is, as plain data with a table."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from . import _mercer
from ._figure import Figure


@dataclass(frozen=True)
class Certificate:
    """How good each pair is, measured on points that were held out from the fit.

    `residual[j]` is `‖Kψ_j − μ_jψ_j‖/(μ_j‖ψ_j‖)`; `interval[j]` has `⟨ψ_j,Kψ_j⟩/⟨ψ_j,ψ_j⟩` under the distribution of the points with
    95 % confidence; `population_bound[j]` bounds the residual beyond the sample. An entry is None where it is not known, as without held-out
    points. `negative` is the share of `Σ|λ|` that negative eigenvalues of a matrix hold.
    """

    eigenvalues: list[float]
    held_out: int
    residual: list[float | None]
    rounding: list[float | None]
    population_residual: list[float | None]
    population_bound: list[float | None]
    orthonormality: float
    trace: float
    trace_kind: str
    trace_captured: float
    interval: list[list[float] | None]
    standing: list[str]
    cuts_group: bool
    negative: float = 0.0

    @classmethod
    def of_header(cls, header: dict[str, Any]) -> Certificate:
        """The certificate of a model's values."""
        return cls(eigenvalues=header["eigenvalues"], **header["certificate"])

    def worst_residual(self) -> float:
        """The largest residual of all pairs."""
        return max((r for r in self.residual if r is not None), default=0.0)

    def figure(self) -> Figure:
        """The eigenvalues within their intervals."""
        known = [[np.nan, np.nan] if interval is None else interval for interval in self.interval]
        low, high = np.array(known, dtype=np.float64).T.copy()
        return Figure(_mercer.spectrum_figure(np.array(self.eigenvalues), low, high))

    def _rows(self) -> list[list[str]]:
        def cells(j: int) -> list[str]:
            interval, residual = self.interval[j], self.residual[j]
            return [
                str(j + 1),
                f"{self.eigenvalues[j]:.6g}",
                "–" if interval is None else f"{interval[0]:.4g} … {interval[1]:.4g}",
                "–" if residual is None else f"{residual:.1e}",
                self.standing[j],
            ]

        return [["j", "eigenvalue", "95 % interval", "residual", "standing"], *map(cells, range(len(self.eigenvalues)))]

    def _sentence(self) -> str:
        where = f"{self.held_out} points held out from the fit" if self.held_out else "the fitted points themselves"
        total = f"the sum of absolute eigenvalues, of which negative ones hold {self.negative:.1%}" if self.negative else f"the trace {self.trace:.4g}"
        return f"{self.trace_captured:.1%} of {total}; measured on {where}; inner products are off by at most {self.orthonormality:.1e}."

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([*lines, self._sentence()])

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table><p>{escape(self._sentence())}</p>"

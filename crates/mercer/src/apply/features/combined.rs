//! Features that are combinations of values which cost less, and when their sums may be taken of the values.

use crate::apply::features::ridge_head::FeatureRows;
use crate::linalg::matmul;
use ndarray::ArrayView2;

/// Features `φ = cN`: combinations of values c, those of a kernel with landmarks.
///
/// `ΦᵀΦ = Nᵀ(CᵀC)N`, so that the rows need not be multiplied by N, which takes longer than everything else. But the sums in `CᵀC` are rounded, and N
/// makes more of their roundings where it is large. These are independent, and each is about `σ = (4 + √b/3)u max_i (CᵀC)_ii` for sums over b blocks.
/// They move `S + αI`, `S = ΦᵀΦ`, relative to itself by `σ tr(N(S + αI)⁻¹Nᵀ)` in the Frobenius norm, and a solution of r unknowns by `1/√r` of that. Where
/// that is more than [`MOST_MOVED`], the features themselves are summed.
pub(crate) struct Combined<'a> {
    /// c `[rows, m]` at some rows.
    pub values: FeatureRows<'a>,
    /// N `[m, r]`
    pub normalisation: ArrayView2<'a, f64>,
}

/// See [`Combined`].
pub(crate) const MOST_MOVED: f64 = 3e-3;

impl Combined<'_> {
    /// Whether the roundings may be small enough: `S ≈ (n/m)κ(Z,Z)` would make them `4um‖NᵀN‖²` for values of order one. Rows beside the
    /// landmarks make S larger, as a rule by far, and not all directions are the worst.
    pub fn may_do(&self) -> bool {
        /// By how much.
        const FAR: f64 = 1e8;
        let n = self.normalisation;
        let square: f64 = matmul(n.t(), n).iter().map(|v| v * v).sum();
        4.0 * ROUNDOFF * n.nrows() as f64 * square < FAR * MOST_MOVED
    }
}

/// u
pub(crate) const ROUNDOFF: f64 = f64::EPSILON / 2.0;

//! Negative eigenvalues of a stored matrix that was taken for a kernel's.

use crate::linalg::eigenvalues;
use crate::operator::Operator;
use crate::rng::Rng;
use crate::{FitContext, Result};

/// The negative eigenvalues `λ_i < 0` of K, or of its block on some rows of many.
pub(crate) struct Negative {
    /// How many there are, among how many eigenvalues.
    count: usize,
    rows: usize,
    /// Whether these are all rows of K.
    whole: bool,
    /// The smallest one.
    least: f64,
    /// `Σ_{λ<0} |λ| / Σ|λ|`
    pub share: f64,
    /// `Σ_{λ<0} |λ| / rows`, of `K/n`.
    pub sum: f64,
}

impl Negative {
    /// Those of an operator that is a matrix in memory and no formula; none where there are no more than rounding explains, also that of
    /// values in single precision or in a text.
    pub fn of(operator: &dyn Operator, context: &FitContext) -> Result<Option<Negative>> {
        match operator.is_stored() && operator.kernel().is_none() {
            true => Negative::found(operator, context),
            false => Ok(None),
        }
    }

    /// Those of any operator, whose blocks are computed for it.
    pub fn found(operator: &dyn Operator, context: &FitContext) -> Result<Option<Negative>> {
        /// Rows that are decomposed at most.
        const ROWS: usize = 1500;
        /// Smaller shares are rounding.
        const ROUNDING: f64 = 1e-5;
        let (n, rows) = (operator.n(), operator.n().min(ROWS));
        let mut drawn = Rng::new(context.seed).fork(0x6e65_6761).sample(n, rows);
        drawn.sort_unstable();
        let λ = eigenvalues(operator.block(&drawn, &drawn)?.view())?;
        let [below, all] = [|λ: &f64| (-λ).max(0.0), |λ: &f64| λ.abs()].map(|of| λ.iter().map(of).sum::<f64>());
        let share = if all > 0.0 { below / all } else { 0.0 };
        let noise = operator.roundoff() * all;
        let found = Negative {
            count: λ.iter().filter(|λ| **λ < -noise).count(),
            rows,
            whole: rows == n,
            least: λ.iter().copied().fold(0.0, f64::min),
            share,
            sum: below / rows as f64,
        };
        Ok((share > ROUNDING).then_some(found))
    }

    /// What the user should know.
    pub fn note(&self) -> String {
        let Negative { count, rows, least, share, .. } = self;
        format!(
            "the matrix is not positive semi-definite: {count} of the {rows} eigenvalues{} are negative, down to {least:.3e}, and they hold {:.1} % of \
             the sum of absolute eigenvalues; no function belongs to them, and what was computed is that of the positive part",
            if self.whole { "" } else { " of some of its rows" },
            100.0 * share
        )
    }
}

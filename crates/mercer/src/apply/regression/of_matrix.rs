//! Ridge regression of a kernel matrix in place of points and a kernel.

use super::outcome::Outcome;
use super::{Estimator, Examples, Objective};
use crate::apply::{Fit, SpectralRidge};
use crate::kernel::Expression;
use crate::operator::{DenseOperator, OnPoints};
use crate::spectrum::{Exact, Problem, Spectrum};
use crate::{FitContext, Result, fail_if};

/// Ridge regression on all eigenfunctions of a matrix.
pub(crate) struct OfMatrix {
    pub objective: Objective,
    pub intercept: bool,
}

impl Estimator for OfMatrix {
    fn learn(&self, _: &[Expression], examples: &Examples, context: &FitContext) -> Result<Outcome> {
        let k = examples.x.to_f64();
        let (n, m) = k.dim();
        fail_if!(n != m, "a kernel matrix must be square, but this one has {n} rows and {m} columns");
        let dense = DenseOperator::new(k.to_owned());
        let operator = OnPoints::new(&dense, k.view())?;
        let spectrum = Spectrum::fit(&Exact, &Problem { operator: &operator, k: n, context: *context }, None)?.into();
        let Objective { alpha, class_weights, .. } = self.objective.clone();
        let fitted = SpectralRidge { spectrum, alpha, intercept: self.intercept, class_weights }.fit(
            k.view(),
            examples.y,
            context,
        )?;
        let (alpha, tried) = (fitted.alpha, fitted.tried.clone());
        Ok(Outcome::new(fitted, alpha, tried))
    }
}

//! The ridge α: given as a number, or chosen by the error on left-out points.

use crate::rng::Rng;
use crate::{Error, FitContext, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use serde::{Deserialize, Serialize};

/// The ridge α of `(K + αI)⁻¹`: added to the diagonal of K as it is, not multiplied by n (scikit-learn's convention).
/// Example: [`Ridge`](super::Ridge).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Alpha {
    /// This number, not below zero.
    Fixed(f64),
    /// The smallest leave-one-out error, in closed form from one eigendecomposition. For kernel matrices of more than 2000 points it
    /// is that of a low-rank approximation of the matrix.
    LeaveOneOut,
    /// The smallest error on left-out parts of the data.
    CrossValidation {
        /// How many parts, at least two.
        folds: usize,
    },
}

impl std::fmt::Display for Alpha {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Alpha::Fixed(alpha) => write!(f, "{alpha}"),
            Alpha::LeaveOneOut => f.write_str("by leave-one-out"),
            Alpha::CrossValidation { folds } => write!(f, "by {folds}-fold cross-validation"),
        }
    }
}

/// A value that was tried, and its error on left-out points: the mean squared error, or the log loss in logistic regression. Example: [the module](crate::apply).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The value.
    pub value: f64,
    /// Its error.
    pub error: f64,
}

impl Alpha {
    /// The folds of cross-validation; 0 without.
    pub(super) fn folds(self) -> usize {
        if let Alpha::CrossValidation { folds } = self { folds } else { 0 }
    }

    /// Refuses a negative or infinite number, and folds that n points do not have.
    pub(super) fn check(self, n: usize) -> Result<()> {
        match self {
            Alpha::Fixed(alpha) if !(alpha >= 0.0 && alpha.is_finite()) => {
                Err(Error::input(format!("the ridge α must be a number of at least 0, got {alpha}")))
            }
            Alpha::LeaveOneOut if n < 2 => {
                Err(Error::input("leave-one-out needs at least two points; give α as a number"))
            }
            Alpha::CrossValidation { folds } if folds < 2 || folds > n => Err(Error::input(format!(
                "cross-validation needs between 2 and {n} folds (as many as there are points), got {folds}"
            ))),
            _ => Ok(()),
        }
    }
}

/// Half decades from 1e-8 to 1e3, times `scale`: the mean of K's diagonal, so that units do not matter.
pub(super) fn grid(scale: f64) -> Vec<f64> {
    (-16..=6).map(|half| scale * 10f64.powf(f64::from(half) / 2.0)).collect()
}

/// The best of what was tried, and all of it that has a finite error.
pub(super) fn best(mut tried: Vec<Tried>) -> Result<(f64, Vec<Tried>)> {
    tried.retain(|t| t.error.is_finite());
    match tried.iter().min_by(|a, b| a.error.total_cmp(&b.error)) {
        Some(best) => Ok((best.value, tried)),
        None => Err(Error::Numerical("no ridge α gives a finite error; give α as a number".into())),
    }
}

/// `0..n` split at random `folds` times: the rows to fit, ascending, and the rows left out, which differ from fold to fold
/// and together are all rows.
pub(super) fn splits(n: usize, folds: usize, seed: u64) -> impl Iterator<Item = (Vec<usize>, Vec<usize>)> {
    let order = Rng::new(seed).fork(0x666f_6c64).sample(n, n);
    (0..folds).map(move |f| {
        let out: Vec<usize> = order.iter().copied().skip(f).step_by(folds).collect();
        let mut kept = vec![true; n];
        out.iter().for_each(|&i| kept[i] = false);
        ((0..n).filter(|&i| kept[i]).collect(), out)
    })
}

/// Cross-validation: `errors(training rows, left-out rows)` is the summed squared error for each α of the grid. An interrupt leaves the
/// folds so far, and a note that says so.
pub(super) fn cross_validate(
    n: usize,
    folds: usize,
    context: &FitContext,
    grid: &[f64],
    mut errors: impl FnMut(&[usize], &[usize]) -> Result<Vec<f64>>,
) -> Result<(Vec<Tried>, Option<String>)> {
    let (mut sums, mut seen, mut keeps, mut note) = (vec![0.0; grid.len()], 0, None, None);
    for (fold, (rest, out)) in (1..).zip(splits(n, folds, context.seed)) {
        sums.iter_mut().zip(errors(&rest, &out)?).for_each(|(sum, e)| *sum += e);
        seen += out.len();
        let keeps = keeps.get_or_insert_with(|| context.keeps_best());
        context.progress.step("cross-validation", fold, folds, "");
        if keeps.cut_short() && fold < folds {
            note = Some(cut_short(fold, folds));
            break;
        }
    }
    Ok((grid.iter().zip(sums).map(|(&value, sum)| Tried { value, error: sum / seen as f64 }).collect(), note))
}

/// The note on cross-validation that was interrupted.
fn cut_short(fold: usize, folds: usize) -> String {
    format!("cross-validation was interrupted after {fold} of {folds} folds; α is the best on these")
}

/// Cross-validation of an iterative solver: `path(context, training rows, left-out rows)` is the mean error from large α to small, and
/// whether it was interrupted. The result is the mean over the first `looked_at` folds, for the α that every one of them has tried, and a note
/// on an interrupt.
pub(super) fn cross_validate_paths(
    n: usize,
    (folds, looked_at): (usize, usize),
    context: &FitContext,
    mut path: impl FnMut(&FitContext, &[usize], &[usize]) -> Result<(Vec<Tried>, bool)>,
) -> Result<(Vec<Tried>, Option<String>)> {
    let (mut paths, mut note) = (Vec::new(), None);
    for (fold, (rest, out)) in splits(n, folds, context.seed).take(looked_at).enumerate() {
        let stage = context.stage("fold", fold + 1, looked_at);
        let (tried, interrupted) = path(&FitContext { progress: &stage, ..*context }, &rest, &out)?;
        // A path that was cut short knows the large α only.
        if !interrupted || paths.is_empty() {
            paths.push(tried);
        }
        if interrupted {
            note = Some(match fold {
                0 => format!("the choice of α was interrupted; it is the best of the {} tried", paths[0].len()),
                _ => cut_short(fold, looked_at),
            });
            break;
        }
    }
    let shortest = paths.iter().map(Vec::len).min().unwrap_or(0);
    let mean = |i: usize| paths.iter().map(|p| p[i].error).sum::<f64>() / paths.len() as f64;
    let tried = (0..shortest).rev().map(|i| Tried { value: paths[0][i].value, error: mean(i) });
    Ok((tried.collect(), note))
}

/// Whether the error has risen twice in a row.
pub(super) fn risen_twice(tried: &[Tried]) -> bool {
    tried.windows(2).rev().take(2).filter(|w| w[1].error > w[0].error).count() == 2
}

/// `Σ (a − b)²`
pub(super) fn squared_error(a: ArrayView2<f64>, b: ArrayView2<f64>) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// The error of predicting each point from the others, `y_i − ŷ_{−i} = c_i/G_ii` `[n, m]`, for `ŷ = K(K + α)⁻¹y`, `G = (K + α)⁻¹`,
/// `c = Gy` and `K = UΛUᵀ`, from `uy = Uᵀy`.
pub(super) struct LeaveOneOut<'a> {
    /// `[n, n]`
    pub u: ArrayView2<'a, f64>,
    /// Λ `[n]`
    pub λ: &'a [f64],
    /// `[n, m]`
    pub y: ArrayView2<'a, f64>,
}

impl LeaveOneOut<'_> {
    /// The mean squared error of each α.
    pub fn errors(&self, grid: &[f64]) -> Vec<Tried> {
        let squares = self.u.mapv(|u| u * u);
        let uy = crate::linalg::matmul(self.u.t(), self.y);
        let error = |r: Array2<f64>| r.iter().map(|r| r * r).sum::<f64>() / r.nrows() as f64;
        let tried = |&value: &f64| Tried { value, error: error(self.residuals(&squares, &uy, value)) };
        grid.iter().map(tried).collect()
    }

    /// The prediction of each point from the others `[n, m]`.
    pub fn scores(&self, alpha: f64) -> Array2<f64> {
        let uy = crate::linalg::matmul(self.u.t(), self.y);
        &self.y - &self.residuals(&self.u.mapv(|u| u * u), &uy, alpha)
    }

    /// `c = U(Λ+α)⁻¹Uᵀy` over `G_ii = Σ_j u_ij²/(λ_j+α)`.
    fn residuals(&self, squares: &Array2<f64>, uy: &Array2<f64>, alpha: f64) -> Array2<f64> {
        let inverse = inverse(self.λ, alpha);
        let c = crate::linalg::matmul(self.u, (uy * &inverse.view().insert_axis(Axis(1))).view());
        c / squares.dot(&inverse).insert_axis(Axis(1))
    }
}

/// `1/(λ_j + α)`; eigenvalues that rounding made negative count as zero.
fn inverse(λ: &[f64], alpha: f64) -> Array1<f64> {
    λ.iter().map(|λ| 1.0 / (λ.max(0.0) + alpha)).collect()
}

/// `U (Λ + α)⁻¹ Uᵀy` `[n, m]` from `uy = Uᵀy`.
pub(super) fn filtered_inverse(u: ArrayView2<f64>, λ: &[f64], uy: ArrayView2<f64>, alpha: f64) -> Array2<f64> {
    crate::linalg::matmul(u, (&uy * &inverse(λ, alpha).insert_axis(Axis(1))).view())
}

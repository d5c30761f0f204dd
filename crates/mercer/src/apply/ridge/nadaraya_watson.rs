//! Nadaraya–Watson regression: averages weighted by the kernel.

use crate::apply::reference::Reference;
use crate::apply::regression::outcome::Outcome;
use crate::apply::regression::{Estimator, Examples, KERNEL, Regression, RegressionTask};
use crate::apply::targets::{Encoding, class_columns};
use crate::apply::traits::{fields, not_kept, saved};
use crate::apply::{Fit, Predict, Tried, check_points};
use crate::compute::Device;
use crate::data::Target;
use crate::finite::finite_rows;
use crate::kernel::{Expression, Kernel};
use crate::linalg::matmul;
use crate::operator::{KernelOperator, Operator, gram, gram_cross};
use crate::options::{Caps, Entry, Kind, Opt};
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::{Error, FitContext, KeepsBest, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, concatenate, s};
use std::time::Instant;

/// Regression by weighted averages, `f(x) = Σ_i κ_h(x,x_i) y_i / Σ_i κ_h(x,x_i)`, for a kernel that is never negative.
///
/// The bandwidth h stretches the kernel, `κ_h(x,x') = κ(x/h, x'/h)`: a lengthscale ℓ becomes hℓ. With classes, y is one
/// in the column of the class and zero elsewhere, so that the average is a probability for each. Where every weight is
/// zero the answer is the mean of y.
///
/// ```
/// use mercer::apply::{Bandwidth, Fit, NadarayaWatson, Predict};
/// use mercer::{FitContext, data::Target, kernel::Kernel};
/// let (x, y) = (ndarray::array![[0.0], [1.0]], Target::Values(vec![0.0, 10.0]));
/// let average = NadarayaWatson { kernel: Kernel::parse("rbf(1)")?, bandwidth: Bandwidth::Fixed(1.0) };
/// let fitted = average.fit(x.view(), &y, &FitContext::default())?;
/// let new = ndarray::array![[0.5], [100.0]];
/// assert_eq!(fitted.predict(new.view())?, Target::Values(vec![5.0, 5.0]));
/// // The second point is 100 lengthscales away: its answer is the mean.
/// assert_eq!(fitted.averages(new.view())?.unreached, [1]);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NadarayaWatson {
    /// κ
    pub kernel: Kernel,
    /// h
    pub bandwidth: Bandwidth,
}

/// How the bandwidth is found. Example: [`NadarayaWatson`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Bandwidth {
    /// This number.
    Fixed(f64),
    /// The smallest leave-one-out error over a grid from 1/32 to 32, then a golden section around the best.
    #[default]
    LeaveOneOut,
}

/// A weighted average over the fitted points. Example: [`NadarayaWatson`].
pub struct FittedNadarayaWatson {
    /// h
    pub bandwidth: f64,
    /// The bandwidths that were tried, with their mean squared leave-one-out errors.
    pub tried: Vec<Tried>,
    /// What it was fitted on.
    pub reference: Reference,
    kernel: Kernel,
    encoding: Encoding,
    /// `[n, m]`
    y: Array2<f64>,
    /// Warnings of the fit; a file does not keep them.
    notes: Vec<String>,
}

/// Averages at new points. Example: [`NadarayaWatson`].
pub struct Averages {
    /// One column of numbers, or one probability for each class, `[m, ·]`.
    pub scores: Array2<f64>,
    /// The rows (counted from 0) whose weights are all zero: they have the mean over all fitted points.
    pub unreached: Vec<usize>,
}

impl Bandwidth {
    /// For the kernel of an expression: its own width, 1, where the lengthscales are given, and the best by leave-one-out where data decide on all
    /// of them.
    ///
    /// ```
    /// use mercer::{apply::Bandwidth, kernel::Expression};
    /// assert_eq!(Bandwidth::of(&Expression::parse("rbf(0.3)")?)?, Bandwidth::Fixed(1.0));
    /// assert_eq!(Bandwidth::of(&Expression::parse("rbf(median)")?)?, Bandwidth::LeaveOneOut);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn of(expression: &Expression) -> Result<Bandwidth> {
        fail_if!(
            expression.has_ard() || expression.is_automatic() && !expression.is_open(),
            "averages find one width for the whole kernel, and {expression} leaves a part of it open; give every lengthscale as a number or \
             median, or all of them as auto"
        );
        Ok(if expression.is_open() { Bandwidth::LeaveOneOut } else { Bandwidth::Fixed(1.0) })
    }
}

impl NadarayaWatson {
    /// Averages weighted by `kernel`, the bandwidth by leave-one-out.
    pub fn new(kernel: Kernel) -> Self {
        NadarayaWatson { kernel, bandwidth: Bandwidth::LeaveOneOut }
    }
}

static BANDWIDTH: Opt = Opt::new(
    "bandwidth",
    "NUMBER",
    Kind::Or(&Kind::Positive, &["auto"]),
    "factor on the kernel's width, or auto for the least left-out error [default: auto where every lengthscale is median or auto, else 1]",
);

impl NadarayaWatson {
    pub(crate) fn entry() -> Entry<RegressionTask> {
        Entry {
            can: Caps { numbers: true, classes: true, precision: true, ..Caps::default() },
            ..Entry::<RegressionTask>::new(
                "nadaraya-watson",
                "Averages of the targets, weighted by the kernel",
                vec![&BANDWIDTH],
                |o, known| Regression::of_one(known, KERNEL, Averaging { bandwidth: o.take_number(&BANDWIDTH)? }),
            )
        }
    }
}

/// Averages under a kernel whose width may be open.
struct Averaging {
    /// A number, or the best; without it, as the kernel says.
    bandwidth: Option<Option<f64>>,
}

impl Estimator for Averaging {
    fn learn(&self, kernels: &[Expression], examples: &Examples, context: &FitContext) -> Result<Outcome> {
        let (expression, x) = (&kernels[0], examples.x.to_f64());
        let by_kernel = Bandwidth::of(expression)?;
        let asked = |number: Option<f64>| number.map_or(Bandwidth::LeaveOneOut, Bandwidth::Fixed);
        let bandwidth = self.bandwidth.map_or(by_kernel, asked);
        // The bandwidth is the factor on the median that `auto` stands for.
        let kernel = expression.resolve_scaled(x.view(), context.seed, 1.0)?;
        let fitted = NadarayaWatson { kernel, bandwidth }.fit(x.view(), examples.y, context)?;
        let (h, tried) = (fitted.bandwidth, fitted.tried.clone());
        Ok(Outcome { parameter: ("bandwidth", h), ..Outcome::new(fitted, 0.0, tried) })
    }
}

impl Fit for NadarayaWatson {
    type Target = Target;
    type Fitted = FittedNadarayaWatson;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedNadarayaWatson> {
        let (start, kernel) = (Instant::now(), &self.kernel);
        check_points(x)?;
        let context = &context.beside_classes(y)?;
        if let Target::Classes { labels, names } = y {
            // Products with the columns of classes have sums for each thread.
            let (n, m) = (labels.len(), names.len());
            let what = format!("averages of {n} points in {m} classes");
            context.budget.require(what, class_columns(n, m), "use fewer rows, or join rare classes")?;
        }
        let (encoding, y) = Encoding::encode(y, x.nrows(), 0.0, 1.0)?;
        check_weights(kernel, x, context.seed)?;
        let (mut tried, mut notes) = (Vec::new(), Vec::new());
        let bandwidth = match self.bandwidth {
            Bandwidth::Fixed(h) => above_zero(h)?,
            Bandwidth::LeaveOneOut if x.nrows() < 2 => {
                return Err(Error::input("leave-one-out needs at least two points; give the bandwidth as a number"));
            }
            Bandwidth::LeaveOneOut => {
                smallest_error(&mut tried, &mut notes, context, |h| leave_one_out(kernel, x, &y, h, context))?
            }
        };
        let reference = Reference::new(Origin::new("nadaraya-watson", kernel, x.dim(), context, start), x, context);
        Ok(FittedNadarayaWatson { bandwidth, tried, reference, kernel: kernel.clone(), encoding, y, notes })
    }
}

fn above_zero(h: f64) -> Result<f64> {
    match h > 0.0 && h.is_finite() {
        true => Ok(h),
        false => Err(Error::input(format!("the bandwidth must be a number above 0, got {h}"))),
    }
}

/// Refuses a kernel with negative values on a sample of the points: negative numbers are no weights.
fn check_weights(kernel: &Kernel, x: ArrayView2<f64>, seed: u64) -> Result<()> {
    let rows = Rng::new(seed).fork(0x6e77).sample(x.nrows(), 300);
    let sample = gram::<f64>(kernel, x.select(Axis(0), &rows).view(), Device::Cpu)?;
    match sample.iter().find(|k| **k < 0.0) {
        None => Ok(()),
        Some(value) => Err(Error::input(format!(
            "averages need weights, but the kernel {kernel} has negative values on these points ({value:.3}); \
             use one that is never negative, such as rbf, laplacian or matern52"
        ))),
    }
}

/// `(1/n) Σ_i ‖f_{−i}(x_i) − y_i‖²` where `f_{−i}(x_i) = (Σ_j κ_ij y_j − κ_ii y_i) / (Σ_j κ_ij − κ_ii)`.
///
/// What the others weigh is a difference. Where it has lost digits, the rows are computed anew without their diagonal.
fn leave_one_out(kernel: &Kernel, x: ArrayView2<f64>, y: &Array2<f64>, h: f64, context: &FitContext) -> Result<f64> {
    const FEW: f64 = 1e-4;
    let (n, m) = y.dim();
    let x = &x / h;
    let columns = concatenate![Axis(1), *y, Array2::ones((n, 1))];
    let operator = KernelOperator::new(kernel, x.view(), context.precision, context.device)?;
    let diagonal = operator.diagonal()?;
    let mut sums = operator.apply(columns.view())? - &columns * &diagonal.view().insert_axis(Axis(1));
    let lonely: Vec<usize> = (0..n).filter(|&i| sums[[i, m]] <= FEW * diagonal[i]).collect();
    for rows in lonely.chunks(256) {
        let mut k = gram_cross::<f64>(kernel, x.select(Axis(0), rows).view(), x.view(), context.device)?;
        rows.iter().enumerate().for_each(|(r, &i)| k[[r, i]] = 0.0);
        let exact = matmul(k.view(), columns.view());
        rows.iter().zip(exact.rows()).for_each(|(&i, exact)| sums.row_mut(i).assign(&exact));
    }
    let total = y.sum_axis(Axis(0));
    let error = |i: usize| {
        let predicted = if reached(sums[[i, m]]) {
            &sums.slice(s![i, ..m]) / sums[[i, m]]
        } else {
            (&total - &y.row(i)) / (n as f64 - 1.0)
        };
        (predicted - y.row(i)).mapv(|e| e * e).sum()
    };
    Ok((0..n).map(error).sum::<f64>() / n as f64)
}

/// Whether weights that sum up to `total` are not all zero. Those that overflowed count as such, so that the average shows it.
fn reached(total: f64) -> bool {
    total > f64::MIN_POSITIVE || total.is_nan()
}

/// The h with the smallest error: a grid in steps of √2, then a golden section on log h between the best one's neighbours. An interrupt
/// leaves the best of those that were tried.
fn smallest_error(
    tried: &mut Vec<Tried>,
    notes: &mut Vec<String>,
    context: &FitContext,
    error: impl Fn(f64) -> Result<f64>,
) -> Result<f64> {
    const STEPS: i32 = 10;
    const SECTIONS: usize = 12;
    let total = (2 * STEPS + 1) as usize + SECTIONS;
    let (mut done, mut keeps, mut interrupted) = (0, None, false);
    // A bandwidth whose kernel values or errors overflow is none to choose.
    let mut at = |log: f64| {
        if interrupted {
            return Ok(f64::INFINITY);
        }
        let (value, error) = (log.exp2(), error(log.exp2())?);
        done += 1;
        if error.is_finite() {
            tried.push(Tried { value, error });
            keeps.get_or_insert_with(|| context.keeps_best());
        }
        context.progress.step("bandwidth", done, total, &format!("error {error:.4e}"));
        interrupted = keeps.as_ref().is_some_and(KeepsBest::cut_short) && done < total;
        Ok(if error.is_finite() { error } else { f64::INFINITY })
    };
    let errors: Vec<f64> = (-STEPS..=STEPS).map(|i| at(f64::from(i) / 2.0)).collect::<Result<_>>()?;
    let best = (0..errors.len()).min_by(|&a, &b| errors[a].total_cmp(&errors[b])).unwrap_or(0);
    let centre = f64::from(best as i32 - STEPS) / 2.0;
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (centre - 0.5, centre + 0.5);
    let (mut a, mut b) = (high - golden * (high - low), low + golden * (high - low));
    let (mut at_a, mut at_b) = (at(a)?, at(b)?);
    for _ in 2..SECTIONS {
        if at_a < at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - golden * (high - low);
            at_a = at(a)?;
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + golden * (high - low);
            at_b = at(b)?;
        }
    }
    if interrupted {
        let count = tried.len();
        notes.push(format!(
            "the choice of the bandwidth was interrupted; it is the best of the {count} that were tried"
        ));
    }
    tried.sort_by(|a, b| a.value.total_cmp(&b.value));
    let best = tried.iter().min_by(|a, b| a.error.total_cmp(&b.error)).map(|best| best.value);
    best.ok_or_else(|| {
        Error::Numerical(
            "no bandwidth from 1/32 to 32 has a finite error: the data, the targets or the kernel's parameters are too large or \
             too small; scale them, or give the bandwidth as a number"
                .into(),
        )
    })
}

impl FittedNadarayaWatson {
    /// The averages at new points `[m, d]`, and the rows that no fitted point reaches.
    pub fn averages(&self, x: ArrayView2<f64>) -> Result<Averages> {
        let columns = concatenate![Axis(1), self.y, Array2::ones((self.y.nrows(), 1))];
        let sums = self.reference.expand(&self.kernel, self.bandwidth, x, columns.view())?;
        let m = self.y.ncols();
        let mean: Array1<f64> = self.y.mean_axis(Axis(0)).expect("a fitted model has points");
        let mut scores = sums.slice(s![.., ..m]).to_owned();
        let mut unreached = Vec::new();
        for (i, mut row) in scores.rows_mut().into_iter().enumerate() {
            let total = sums[[i, m]];
            if reached(total) {
                row /= total;
            } else {
                row.assign(&mean);
                unreached.push(i);
            }
        }
        Ok(Averages { scores: finite_rows("the average", scores, 1)?, unreached })
    }
}

impl Predict for FittedNadarayaWatson {
    fields! { origin: Origin = reference.origin; }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(self.averages(x)?.scores)
    }

    fn decode(&self, scores: ArrayView2<f64>) -> Target {
        self.encoding.decode(scores)
    }

    /// Stretched by the bandwidth.
    fn used_kernel(&self) -> Option<Kernel> {
        self.kernel.stretched(self.bandwidth).ok().filter(|_| self.bandwidth != 1.0)
    }

    fn scores_and_reach(&self, x: ArrayView2<f64>) -> Result<Averages> {
        self.averages(x)
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    /// For classes, the averages are probabilities.
    fn probabilities(&self, scores: ArrayView2<f64>) -> Option<Array2<f64>> {
        matches!(self.encoding, Encoding::Classes(_)).then(|| scores.to_owned())
    }
}

saved! {
    FittedNadarayaWatson, "nadaraya-watson":
    reference: Reference = whole(Reference::unpack);
    encoding: Encoding = value("target", Encoding::checked);
    y: Array2<f64> = matrix("y", (reference.origin.n, encoding.width()));
    bandwidth: f64 = value("bandwidth", above_zero);
    kernel: Kernel = known(Kernel::of_model, &reference.origin.kernel, reference.origin.d);
    tried: Vec<Tried> = value("tried");
    notes: Vec<String> = known(not_kept, ());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bottom of a parabola in log h, wherever it lies between two points of the grid.
    #[test]
    fn the_smallest_error_is_found_between_the_points_of_the_grid() {
        for bottom in [-3.37f64, -0.2, 0.0, 1.21, 4.8] {
            let mut tried = vec![];
            let error = |h: f64| Ok((h.log2() - bottom).powi(2) + 1.0);
            let h = smallest_error(&mut tried, &mut vec![], &FitContext::default(), error).unwrap();
            assert!((h.log2() - bottom).abs() < 0.01, "{} for {bottom}", h.log2());
            assert!(tried.len() == 33 && tried.windows(2).all(|two| two[0].value <= two[1].value));
        }
    }
}

//! Spectra: eigenvalues and eigenfunctions of an operator, as functions, each with its certificate.
//!
//! A [`Method`] sees a [`Problem`]: an [`Operator`] on a sample, whose [`Operator::extend`] takes functions to new points.
//! Every method ends in the same shape: features `φ` and coefficients `A` with `ψ(x) = φ(x) A`, so that a
//! [`Spectrum`] evaluates, certifies, saves and loads alike however it was found.
//!
//! | file | method |
//! |---|---|
//! | [`Exact`] | dense eigendecomposition of `K/n` |
//! | [`Krylov`] | the top k by block Krylov on the operator, K never stored |
//! | [`Nystrom`] | from landmarks |
//! | [`Fourier`] | random Fourier features |
//! | [`Positive`] | positive random features of `exp(x·x')` |
//! | [`neural`] | trained networks: NeuralEF, SpIN, nested low-rank, Ritz |
//!
//! To add a method: one file that implements [`Method`] and declares its entry, its `mod` line here, and its line in
//! `learn/spectra.rs`.

mod blocks;
mod certificate;
mod covariance;
mod device_landmarks;
mod exact;
mod fourier;
mod krylov;
mod krylov_iteration;
mod landmarks;
mod negative;
pub mod neural;
mod nystrom;
mod positive;
mod random_features;
mod ritz;
mod sampling;
mod saved;

pub use blocks::BlockProblem;
pub use certificate::{Certificate, Standing, TraceKind};
pub(crate) use covariance::add_gram;
pub use exact::Exact;
pub use fourier::Fourier;
pub use krylov::{Krylov, TopPairs, top_pairs};
pub use landmarks::Landmarks;
pub(crate) use landmarks::{draw, running_sums};
pub(crate) use negative::Negative;
pub use nystrom::{Nystrom, NystromFeatures, NystromRitz};
pub use positive::Positive;
pub use random_features::RandomFeatures;
pub(crate) use ritz::over_roots;
pub use ritz::rayleigh_ritz;
pub use sampling::Sampling;
pub(crate) use saved::features;

pub use crate::operator::{Extension, Features, Points};

use crate::bundle::Bundle;
use crate::compute::Math;
use crate::data::Rows;
use crate::finite::finite_rows;
use crate::operator::{KernelOperator, Operator, Precision, profile_bytes};
use crate::options::Builds;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::Array2;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::time::Instant;

/// What is to be decomposed, and the settings and limits for it.
///
/// ```
/// use mercer::{FitContext, kernel::Kernel, spectrum::Problem};
/// let x = ndarray::array![[0.0], [1.0], [2.0]];
/// let context = FitContext { seed: 7, ..FitContext::default() };
/// let operator = context.kernel_operator(&Kernel::parse("rbf(1)")?, x.view())?;
/// let problem = Problem { context, ..Problem::new(&operator, 2) };
/// assert_eq!(problem.k, 2);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Problem<'a> {
    /// The operator on a sample from q.
    pub operator: &'a dyn Operator,
    /// How many pairs.
    pub k: usize,
    /// Device, precision, memory, seed, progress.
    pub context: FitContext<'a>,
}

impl<'a> Problem<'a> {
    /// The problem of finding `k` pairs of `operator`, with the default context.
    pub fn new(operator: &'a dyn Operator, k: usize) -> Self {
        Problem { operator, k, context: FitContext::default() }
    }

    /// The coordinates `[points, d]` of the sample, for `what` needs them.
    pub fn points(&self, what: &str) -> Result<Rows<'a>> {
        self.operator.points().ok_or_else(|| {
            Error::input(format!("{what} needs coordinates of the points, and {} has none", self.operator.describe()))
        })
    }

    /// The formula on coordinates, for `what` needs it.
    pub fn kernel(&self, what: &str) -> Result<&'a KernelOperator<'a>> {
        self.operator.kernel().ok_or_else(|| {
            Error::input(format!(
                "{what} need a kernel with a formula, and {} has none; use {krylov}, {nystrom} or networks",
                self.operator.describe(),
                krylov = crate::advice!(Krylov),
                nystrom = crate::advice!(Nystrom)
            ))
        })
    }

    fn check(&self) -> Result<()> {
        let n = self.operator.n();
        let d = self.operator.points().map_or(1, |x| x.d());
        fail_if!(n == 0 || d == 0, "the data is empty: {n} rows of {d} columns");
        fail_if!(self.k == 0 || self.k > n, "k must lie between 1 and the number of points, {n}; got {}", self.k);
        if let Some((i, j, value)) = self.operator.points().and_then(|x| x.non_finite()) {
            return Err(Error::input(format!("the data must be finite: row {}, column {} is {value}", i + 1, j + 1)));
        }
        self.operator.points().map_or(Ok(()), |x| x.check_magnitude())?;
        if let Some(kernel) = self.operator.kernel() {
            self.context.budget.require(
                format!("what the kernel {} needs of {n} images", kernel.formula()),
                profile_bytes(kernel.formula(), n, d, kernel.precision()),
                concat!("use fewer images or layers, or ", crate::advice!(SinglePrecision)),
            )?;
        }
        self.check_magnitude()
    }

    /// Refuses kernel values whose squares, summed over n points, overflow or vanish. No entry of K is larger than the
    /// largest of its diagonal.
    fn check_magnitude(&self) -> Result<()> {
        let diagonal = self.operator.diagonal()?;
        let (least, most) = match self.operator.kernel().map_or(Precision::F64, |kernel| kernel.precision()) {
            Precision::F64 => (1e-150, 1e150 / diagonal.len() as f64),
            Precision::F32 | Precision::Tf32 => (1e-30, 1e37),
        };
        let allowed = |v: f64| v == 0.0 || (v.is_finite() && v.abs() <= most);
        let i = match diagonal.iter().position(|v| !allowed(*v)) {
            Some(i) => i,
            None => match (0..diagonal.len()).max_by(|&i, &j| diagonal[i].total_cmp(&diagonal[j])) {
                Some(i) if diagonal[i] > 0.0 && diagonal[i] < least => i,
                _ => return Ok(()),
            },
        };
        Err(Error::Numerical(format!(
            "{} of point {} (counted from 1) with itself is {:.1e}, too large or too small to compute with; scale the data, or \
             use another parameter of the kernel",
            self.operator.describe(),
            i / self.operator.outputs() + 1,
            diagonal[i]
        )))
    }
}

/// A way of finding eigenpairs. `examples/own_method.rs` implements one.
pub trait Method {
    /// Its name in the program and in saved models.
    fn name(&self) -> String;

    /// Finds the pairs.
    fn solve(&self, problem: &Problem) -> Result<Solution>;

    /// Certifies the pairs that [`Self::solve`] found, on `held_out` points where there are some. A method that found more than one
    /// solution returns the better one.
    fn certify(&self, problem: &Problem, found: Solution, held_out: Option<Points<'_>>) -> Result<Certified> {
        Certified::measure(problem, found, held_out)
    }

    /// Finds the pairs where the points are not in memory; few methods can.
    fn solve_blocks(&self, _problem: &BlockProblem) -> Result<Solution> {
        Err(Error::input(format!(
            "the method {} needs all points in memory; use random Fourier features or {nystrom}",
            self.name(),
            nystrom = crate::advice!(Nystrom)
        )))
    }

    /// What it takes to find the pairs where the points are not in memory; none where it needs all of them.
    fn blocks(&self) -> Option<BlockSize> {
        None
    }

    /// Eigenvalues and eigenvectors of K itself: for uses that need no function outside the sample.
    fn eigenvectors(&self, problem: &Problem) -> Result<Eigenvectors> {
        let solution = self.solve(problem)?;
        let ψ = match solution.at_points {
            Some(known) => known,
            None => solution.features.project(problem.points(&self.name())?.into(), solution.coefficients.view())?,
        };
        let n = problem.operator.n() as f64;
        let values = solution.eigenvalues.iter().map(|μ| μ * n).collect();
        Ok(Eigenvectors { values, vectors: ψ / n.sqrt(), notes: solution.notes })
    }
}

/// What a method computes with where points are read in blocks. Example: [`Entry`](crate::options::Entry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Features of a point.
    pub features: usize,
    /// Landmarks among the points, which stay in memory.
    pub landmarks: usize,
}

/// What a method is built for. Example: [`Entry`](crate::options::Entry).
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Points.
    pub n: usize,
    /// Pairs.
    pub k: usize,
    /// How a GPU rounds the factors of the products of networks; the usual way where it is not said.
    pub math: Option<Math>,
}

impl Size {
    /// For `k` pairs of `n` points.
    pub fn new(n: usize, k: usize) -> Size {
        Size { n, k, math: None }
    }
}

impl Builds for Size {
    type Built = Box<dyn Method + Send>;
}

/// What [`Method::eigenvectors`] returns.
///
/// ```
/// use mercer::{operator::DenseOperator, spectrum::{Exact, Method, Problem}};
/// let k = DenseOperator::new(ndarray::array![[2.0, 1.0], [1.0, 2.0]]);
/// let found = Exact.eigenvectors(&Problem::new(&k, 1))?;
/// assert!((found.values[0] - 3.0).abs() < 1e-12 && found.vectors.dim() == (2, 1));
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct Eigenvectors {
    /// Eigenvalues of K itself, descending `[k]`.
    pub values: Vec<f64>,
    /// Its orthonormal eigenvectors `[n, k]`.
    pub vectors: Array2<f64>,
    /// Warnings, such as a tolerance that was not reached.
    pub notes: Vec<String>,
}

/// Eigenvalues, descending, and the vectors of each in the columns of a matrix.
pub(crate) type EigenPairs = (Vec<f64>, Array2<f64>);

/// What a [`Method`] returns: `ψ(x) = φ(x) A`. `examples/own_method.rs` makes one.
pub struct Solution {
    /// `μ_j`, descending; exactly zero where the kernel has no further direction.
    pub eigenvalues: Vec<f64>,
    /// φ
    pub features: Box<dyn Features>,
    /// `A` `[p, k]`; the columns of zero eigenvalues are zero. Of features that ranks share, the rows of this rank.
    pub coefficients: Array2<f64>,
    /// `ψ(X) = φ(X) A` `[n, k]` at the problem's points, where the method has it at no further cost. It must be the
    /// values of the function itself, or the certificate certifies something else. Without it, φ is evaluated at the
    /// points' coordinates. Of an operator that shards vectors over ranks, the rows of this rank.
    pub at_points: Option<Array2<f64>>,
    /// The eigenvalue after the last, where the method knows it.
    pub next: Option<f64>,
    /// Of pairs of trained networks, what is known of their training.
    pub networks: Option<neural::TrainedPairs>,
    /// Warnings for the user, such as a tolerance that was not reached.
    pub notes: Vec<String>,
}

impl Solution {
    /// Eigenvalues and their functions.
    pub fn new(eigenvalues: Vec<f64>, functions: Extension) -> Self {
        let Extension { features, coefficients } = functions;
        let (at_points, next, networks) = (None, None, None);
        Solution { eigenvalues, features, coefficients, at_points, next, networks, notes: vec![] }
    }
}

/// A solution and how good its pairs are. Example: [`Method::certify`] of `tests/neural_spectra.rs`.
pub struct Certified {
    /// The pairs.
    pub solution: Solution,
    /// Their certificate.
    pub certificate: Certificate,
}

impl Certified {
    /// Measures the pairs of `solution` on `held_out` points, or on the fitted ones when there are none.
    pub fn measure(problem: &Problem, mut solution: Solution, held_out: Option<Points<'_>>) -> Result<Certified> {
        let mut certificate = Certificate::measure(problem, &solution, held_out)?;
        if let Some(negative) = Negative::of(problem.operator, &problem.context)? {
            certificate.has_negative(&negative, &solution.eigenvalues);
            solution.notes.push(negative.note());
        }
        Ok(Certified { solution, certificate })
    }
}

/// Where a spectrum comes from. Example: [`Spectrum`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Name of the method.
    pub method: String,
    /// The kernel, every parameter a number, or what else the operator is.
    pub kernel: String,
    /// Points it was fitted on.
    pub n: usize,
    /// Columns of the points' coordinates; 0 where they have none.
    pub d: usize,
    /// Values of a function at each point.
    #[serde(default = "one")]
    pub outputs: usize,
    /// Precision of kernel values.
    pub precision: Precision,
    /// Seed.
    pub seed: u64,
    /// Seconds that finding the pairs took, without the certificate.
    pub seconds: f64,
    /// Name of the data, as the user gave it.
    #[serde(default)]
    pub data: String,
    /// The command that fitted it, where one did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
}

impl Origin {
    /// A fit to n points of d columns that began at `start` and ends now.
    pub(crate) fn new(
        method: impl Into<String>,
        kernel: impl Display,
        (n, d): (usize, usize),
        context: &FitContext,
        start: Instant,
    ) -> Origin {
        let (method, kernel, data) = (method.into(), kernel.to_string(), context.data.to_owned());
        let (precision, seed, seconds) = (context.precision, context.seed, start.elapsed().as_secs_f64());
        Origin { method, kernel, n, d, outputs: 1, precision, seed, seconds, data, command: String::new() }
    }
}

fn one() -> usize {
    1
}

/// Eigenvalues and eigenfunctions of a kernel, with their certificate.
///
/// ```
/// use mercer::{FitContext, kernel::Kernel, spectrum::{Exact, Problem, Spectrum, Standing}};
/// let x = ndarray::Array2::from_shape_fn((200, 1), |(i, _)| i as f64 / 50.0 - 2.0);
/// let operator = FitContext::default().kernel_operator(&Kernel::parse("rbf(1)")?, x.view())?;
/// let spectrum = Spectrum::fit(&Exact, &Problem::new(&operator, 3), None)?;
/// assert!((spectrum.eigenvalues[0] - 0.52).abs() < 0.01);
/// assert_eq!((spectrum.certificate.standing[0], spectrum.origin.n), (Standing::Simple, 200));
/// let psi = spectrum.transform(ndarray::array![[0.3], [1.7]].view())?;
/// assert_eq!(psi.dim(), (2, 3));
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct Spectrum {
    /// `μ_j`, descending.
    pub eigenvalues: Vec<f64>,
    /// How good each pair is.
    pub certificate: Certificate,
    /// How it was found.
    pub origin: Origin,
    /// Warnings of the fit; a file does not keep them.
    pub notes: Vec<String>,
    training: Option<neural::Training>,
    features: Box<dyn Features>,
    /// `[p, k]`
    coefficients: Array2<f64>,
    /// The functions where the fitted functions are sampled again, for networks that were fitted to samples.
    by_samples: Option<Extension>,
}

impl Spectrum {
    /// Finds the pairs of `problem` by `method` and certifies them on `held_out` points, which must not be
    /// among the problem's own; without any, the certificate is measured on the fitted points and says so.
    pub fn fit(method: &dyn Method, problem: &Problem, held_out: Option<Points<'_>>) -> Result<Spectrum> {
        problem.check()?;
        let start = Instant::now();
        let solution = method.solve(problem)?;
        let (operator, outputs) = (problem.operator, problem.operator.outputs());
        let dim = (operator.n() / outputs, operator.coordinates());
        let origin = Origin::new(method.name(), operator.describe(), dim, &problem.context, start);
        let origin = Origin { outputs, ..origin };
        // The pairs are found: an interrupt during the certificate does not lose them.
        let _keeps = problem.context.keeps_best();
        let Certified { solution, certificate } = method.certify(problem, solution, held_out)?;
        let by_samples = match (operator.low_rank(), operator.points(), solution.features.inputs()) {
            (Some(functions), Some(x), Some(_)) => {
                let psi = solution.features.project(x.into(), solution.coefficients.view())?;
                Some(functions.extend(None, averaged(psi, &solution.eigenvalues))?)
            }
            _ => None,
        };
        let Solution { eigenvalues, features, coefficients, networks, notes, .. } = solution;
        let training = networks.map(|networks| networks.training);
        let spectrum =
            Spectrum { eigenvalues, certificate, origin, notes, training, features, coefficients, by_samples };
        spectrum.require_finite()?;
        Ok(spectrum)
    }

    /// Refuses a spectrum with a number that is NaN or infinite.
    fn require_finite(&self) -> Result<()> {
        let mut bundle = Bundle::default();
        self.pack(&mut bundle)?;
        bundle.require_finite("the spectrum")
    }

    /// Number of pairs, zero ones included.
    pub fn k(&self) -> usize {
        self.eigenvalues.len()
    }

    /// Multiply-adds of the matrix products that `ψ` takes at one new point, `φ(x)` and then `φ(x) A`.
    pub fn multiply_adds(&self) -> usize {
        self.features.multiply_adds() + self.coefficients.len()
    }

    /// How the networks were trained, for a spectrum found by them.
    pub fn training(&self) -> Option<&neural::Training> {
        self.training.as_ref()
    }

    /// Whether [`Self::transform`] takes samples of the fitted functions.
    pub fn takes_samples(&self) -> bool {
        self.by_samples.is_some() || !self.takes_coordinates()
    }

    /// Whether [`Self::transform`] takes coordinates.
    pub fn takes_coordinates(&self) -> bool {
        self.features.inputs().is_some()
    }

    /// `ψ(x)` `[n·C, k]` at n new points, the C outputs of a point side by side: coordinates `[n, d]`, or the fitted
    /// functions sampled at the new points. Columns whose eigenvalue is zero are zero, and every number is finite.
    pub fn transform<'p>(&self, points: impl Into<Points<'p>>) -> Result<Array2<f64>> {
        finite_rows("a function's value", self.evaluate(points.into())?, self.origin.outputs)
    }

    /// What [`Self::transform`] returns, before the numbers are checked.
    fn evaluate(&self, points: Points<'_>) -> Result<Array2<f64>> {
        let Some(x) = points.coordinates().ok().filter(|_| self.takes_coordinates()) else {
            let own = (&self.features, &self.coefficients);
            let (features, a) = self.by_samples.as_ref().map_or(own, |by| (&by.features, &by.coefficients));
            return features.project(points, a.view());
        };
        self.features.inputs().map_or(Ok(()), |d| check_columns(x, d))?;
        self.features.project(x.into(), self.coefficients.view())
    }
}

/// `ψ_j/(n μ_j)` for `ψ` `[n, k]`, zero where `μ_j` is: `ψ_j(x) = (1/(n μ_j)) Σ_i κ(x, x_i) ψ_j(x_i)` at new points.
fn averaged(mut psi: Array2<f64>, eigenvalues: &[f64]) -> Array2<f64> {
    let n = psi.nrows() as f64;
    for (mut column, μ) in psi.columns_mut().into_iter().zip(eigenvalues) {
        column *= if *μ > 0.0 { 1.0 / (n * μ) } else { 0.0 };
    }
    psi
}

/// Refuses new points `[m, ·]` that do not have the `d` columns of the fit.
pub(crate) fn check_columns<'x>(x: impl Into<Rows<'x>>, d: usize) -> Result<()> {
    match x.into().d() {
        columns if columns == d => Ok(()),
        columns => Err(Error::input(format!("the model was fitted on {d} columns, the new points have {columns}"))),
    }
}

/// The entry of `table` with the name `text`; the error on another name suggests one that is known.
fn by_name<T: Copy>(what: &str, text: &str, table: &[(&'static str, T)]) -> Result<T> {
    let found = table.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| Error::unknown(what, text, table.iter().map(|(name, _)| *name)))
}

/// Eigenvalues below this are numerically zero: rounding, times the largest eigenvalue.
pub(crate) fn zero_threshold(roundoff: f64, largest: f64) -> f64 {
    10.0 * roundoff * largest.max(0.0)
}

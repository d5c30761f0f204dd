//! Spectra: eigenvalues and eigenfunctions of a kernel, as functions, each with its certificate.
//!
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
//! To add a method: one file that implements [`Method`], and its line here.

mod certificate;
mod covariance;
mod exact;
mod features;
mod fourier;
mod krylov;
mod landmarks;
pub mod neural;
mod nystrom;
mod positive;
mod projection;
mod ritz;
mod sampling;
mod saved;

pub use certificate::{Certificate, Standing, TraceKind};
pub use exact::Exact;
pub use features::{Features, KernelFeatures};
pub use fourier::{Fourier, FourierFeatures};
pub use krylov::{Krylov, TopPairs, top_pairs};
pub use landmarks::Landmarks;
pub use nystrom::{Nystrom, NystromFeatures, NystromRitz};
pub use positive::{Positive, PositiveFeatures};
pub use ritz::rayleigh_ritz;
pub use sampling::Sampling;

use crate::data::Scaler;
use crate::kernel::Kernel;
use crate::operator::{Precision, profile_bytes};
use crate::{Error, FitContext, Result};
use ndarray::{Array2, ArrayView2};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// What is to be decomposed, and within which means.
pub struct Problem<'a> {
    /// The kernel κ.
    pub kernel: &'a Kernel,
    /// The points `[n, d]` whose distribution is q.
    pub x: ArrayView2<'a, f64>,
    /// How many pairs.
    pub k: usize,
    /// Device, precision, memory, seed, progress.
    pub context: FitContext<'a>,
}

impl<'a> Problem<'a> {
    /// The problem of finding `k` pairs of `kernel` on the points `x` `[n, d]`, with the default context.
    pub fn new(kernel: &'a Kernel, x: ArrayView2<'a, f64>, k: usize) -> Self {
        Problem { kernel, x, k, context: FitContext::default() }
    }

    fn check(&self) -> Result<()> {
        let (n, d) = self.x.dim();
        if n == 0 || d == 0 {
            return Err(Error::input(format!("the data is empty: {n} rows of {d} columns")));
        }
        if self.k == 0 || self.k > n {
            return Err(Error::input(format!("k must lie between 1 and the number of points, {n}; got {}", self.k)));
        }
        if let Some(((i, j), value)) = self.x.indexed_iter().find(|(_, v)| !v.is_finite()) {
            return Err(Error::input(format!("the data must be finite: row {}, column {} is {value}", i + 1, j + 1)));
        }
        self.context.budget.require(
            format!("what the kernel {} needs of {n} pictures", self.kernel),
            profile_bytes(self.kernel, n, d, self.context.precision),
            "use fewer images or layers, or use single precision",
        )
    }
}

/// A way of finding eigenpairs.
pub trait Method {
    /// Its name in the program and in saved models.
    fn name(&self) -> String;

    /// Finds the pairs.
    fn solve(&self, problem: &Problem) -> Result<Solution>;
}

/// What a [`Method`] returns: `ψ(x) = φ(x) A`.
pub struct Solution {
    /// `μ_j`, descending; exactly zero where the kernel has no further direction.
    pub eigenvalues: Vec<f64>,
    /// φ
    pub features: Box<dyn Features>,
    /// `A` `[p, k]`; the columns of zero eigenvalues are zero.
    pub coefficients: Array2<f64>,
    /// `ψ(X) = φ(X) A` `[n, k]` at the problem's points, where the method has it at no further cost. It must be the
    /// values of the function itself, or the certificate certifies something else.
    pub at_points: Option<Array2<f64>>,
}

/// Where a spectrum comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Name of the method.
    pub method: String,
    /// The kernel, every parameter a number.
    pub kernel: String,
    /// Points it was fitted on.
    pub n: usize,
    /// Columns of the data.
    pub d: usize,
    /// Precision of kernel values.
    pub precision: Precision,
    /// Seed.
    pub seed: u64,
    /// Seconds that finding the pairs took, without the certificate.
    pub seconds: f64,
    /// Name of the data, as the user gave it.
    #[serde(default)]
    pub data: String,
}

/// Eigenvalues and eigenfunctions of a kernel, with their certificate.
///
/// ```
/// use mercer::{kernel::Kernel, spectrum::{Exact, Problem, Spectrum}};
/// let x = ndarray::Array2::from_shape_fn((200, 1), |(i, _)| i as f64 / 50.0 - 2.0);
/// let kernel = Kernel::parse("rbf(1)")?;
/// let spectrum = Spectrum::fit(&Exact, &Problem::new(&kernel, x.view(), 3), None)?;
/// assert!((spectrum.eigenvalues[0] - 0.52).abs() < 0.01);
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
    /// Applied to new points first, when the data was scaled before the fit.
    pub scaler: Option<Scaler>,
    features: Box<dyn Features>,
    /// `[p, k]`
    coefficients: Array2<f64>,
}

impl Spectrum {
    /// Finds the pairs of `problem` by `method` and certifies them on `held_out` points `[h, d]`, which must not be
    /// among the problem's own; without any, the certificate is measured on the fitted points and says so.
    pub fn fit(method: &dyn Method, problem: &Problem, held_out: Option<ArrayView2<f64>>) -> Result<Spectrum> {
        problem.check()?;
        let start = Instant::now();
        let solution = method.solve(problem)?;
        let seconds = start.elapsed().as_secs_f64();
        let certificate = Certificate::measure(problem, &solution, held_out)?;
        let origin = Origin {
            method: method.name(),
            kernel: problem.kernel.to_string(),
            n: problem.x.nrows(),
            d: problem.x.ncols(),
            precision: problem.context.precision,
            seed: problem.context.seed,
            seconds,
            data: String::new(),
        };
        let Solution { eigenvalues, features, coefficients, .. } = solution;
        Ok(Spectrum { eigenvalues, certificate, origin, scaler: None, features, coefficients })
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
        self.features.training()
    }

    /// `ψ(x)` `[n, k]` at new points `[n, d]`. Columns whose eigenvalue is zero are zero.
    pub fn transform(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        if x.ncols() != self.origin.d {
            return Err(Error::input(format!(
                "the model was fitted on {} columns, the new points have {}",
                self.origin.d,
                x.ncols()
            )));
        }
        let scaled = self.scaler.as_ref().map(|s| s.apply(x)).transpose()?;
        let x = scaled.as_ref().map_or(x, |s| s.view());
        self.features.project(x, self.coefficients.view())
    }
}

/// Below this the eigenvalue `μ_j` is not told from zero: rounding, times the largest eigenvalue.
pub(crate) fn zero_threshold(roundoff: f64, largest: f64) -> f64 {
    10.0 * roundoff * largest.max(0.0)
}

//! Spectra of points that are not in memory: a pass over them for the pairs, and one for the certificate.

use super::covariance::Covariance;
use super::{Certificate, Landmarks, Method, Origin, Points, Problem, Solution, Spectrum};
use crate::data::{BLOCK, BlockDataset, Rows, TableBlocks};
use crate::kernel::{Expression, Kernel};
use crate::operator::{Budget, Precision, Real};
use crate::{FitContext, Result, fail_if};
use ndarray::Array2;
use std::time::Instant;

/// What is to be decomposed where the points are not in memory.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use mercer::data::{BlockDataset, BlockOptions, ReadOptions, TableBlocks, write_npy};
/// use mercer::spectrum::{BlockProblem, Fourier, Spectrum};
/// use mercer::{FitContext, Group, Silent, kernel::Kernel};
/// let file = folder.path().join("x.npy");
/// write_npy(&file, ndarray::Array2::from_shape_fn((5000, 1), |(i, _)| (i as f32 * 0.7).sin()).view())?;
/// let blocks = TableBlocks::open(file.to_str().unwrap(), &ReadOptions::default())?;
/// let keep = |n| BlockProblem::rows_in_memory(n, 0, 0);
/// let data = BlockDataset::fit(blocks, &BlockOptions { held_out: 300, ..Default::default() }, &keep, Group::SINGLE, &Silent)?;
/// let kernel = Kernel::parse("rbf(1)")?;
/// let problem = BlockProblem { data: &data, kernel: &kernel, k: 3, context: FitContext::default() };
/// let held_out = data.held_out().map(|held_out| held_out.x.rows().into());
/// let spectrum = Spectrum::fit_blocks(&Fourier::usual(3), &problem, held_out)?;
/// assert!(spectrum.certificate.worst_residual() < 0.1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct BlockProblem<'a> {
    /// The points.
    pub data: &'a BlockDataset,
    /// κ
    pub kernel: &'a Kernel,
    /// How many pairs.
    pub k: usize,
    /// Device, precision, memory, seed, progress.
    pub context: FitContext<'a>,
}

impl BlockProblem<'_> {
    /// The rows of n that a fit needs in memory: a sample for the certificate, among which `landmarks` (0 where there are none) are
    /// chosen too, and those that lengthscales are found from.
    pub fn rows_in_memory(n: usize, landmarks: usize, seed: u64) -> Vec<usize> {
        [Landmarks::candidates(n, landmarks, seed), Expression::rows(n, seed)].concat()
    }

    /// Bytes that a fit of `k` pairs on `p` features takes, of the rows of a file with `d` features each.
    ///
    /// First a pass takes a block, its features and two sums `[p, p]`. Then the decomposition takes five matrices `[p, p]`, and the
    /// certificate features of 2000 points, beside what the allocator keeps of the pass. Some rows stay in memory.
    pub fn memory(blocks: &TableBlocks, (d, p): (usize, usize), k: usize, precision: Precision) -> u64 {
        let n = blocks.n() as u64;
        let (kept, h) = (n.min(8192.max(4 * p as u64) + 1000), n.min(2000));
        let (b, d, p, k) = (n.min(BLOCK as u64), d as u64, p as u64, k as u64);
        let pass = (8 * b * d).saturating_add(precision.bytes() * (b * p + p * p)).saturating_add(8 * p * p);
        let after = (5 * 8 * p * p).max(8 * h * (p + 4 * k));
        let most = pass.max(Budget::kept_by_allocator(precision.bytes() * b * p).saturating_add(after));
        blocks.block_memory().saturating_add(8 * (2 * kept * d + d * p)).saturating_add(most)
    }

    /// Refuses more features than fit into memory.
    pub(super) fn require(&self, p: usize) -> Result<()> {
        let bytes = BlockProblem::memory(self.data.blocks(), (self.data.d(), p), self.k, self.context.precision);
        self.context.budget.require(format!("{p} features of points in blocks"), bytes, "use fewer features")
    }

    /// The lower half of `ΦᵀΦ/n` `[p, p]` for features `φ` `[b, p]` of a block of points `[b, d]`. An interrupt leaves the sum over the
    /// points so far, and a note says so.
    pub(super) fn covariance<T: Real>(
        &self,
        p: usize,
        φ: impl Fn(Rows<'_>) -> Result<Array2<T>>,
    ) -> Result<(Array2<f64>, Option<String>)> {
        /// Of the rows, one in so many must have been seen for the pairs to be worth keeping.
        const LEAST: usize = 50;
        let (mut sum, mut keeps, mut cut, mut rows) = (Covariance::<T>::new(p), None, false, 0);
        let (n, FitContext { group, progress, .. }) = (self.data.n(), self.context);
        let seen = self.data.pass("features of the points", group, progress, &mut |block| {
            block.x.rows().check_magnitude()?;
            sum.add(φ(block.x.rows())?.view());
            rows += block.n();
            if rows >= n / LEAST {
                cut = keeps.get_or_insert_with(|| self.context.keeps_best()).cut_short();
            }
            Ok(!cut)
        })?;
        let note =
            (cut && seen < n).then(|| format!("interrupted after {seen} of {n} rows; the pairs are those of these"));
        Ok((sum.over(group)?.finish(), note))
    }

    /// Refuses kernel values that are too large, and more pairs than points.
    fn check(&self) -> Result<()> {
        let n = self.data.n();
        fail_if!(self.k == 0 || self.k > n, "k must lie between 1 and the number of points, {n}; got {}", self.k);
        let operator = self.context.kernel_operator(self.kernel, &self.data.sample().1.x)?;
        Problem { operator: &operator, k: 1, context: self.context }.check()
    }
}

impl Spectrum {
    /// As [`Self::fit`], for points that are not in memory. Example: [`BlockProblem`].
    pub fn fit_blocks(method: &dyn Method, problem: &BlockProblem, held_out: Option<Points<'_>>) -> Result<Spectrum> {
        problem.check()?;
        let start = Instant::now();
        let solution = method.solve_blocks(problem)?;
        let dim = (problem.data.n(), problem.data.d());
        let origin = Origin::new(method.name(), problem.kernel, dim, &problem.context, start);
        // The pairs are found: an interrupt during the certificate does not lose them.
        let _keeps = problem.context.keeps_best();
        let certificate = Certificate::measure_blocks(problem, &solution, held_out)?;
        let Solution { eigenvalues, features, coefficients, notes, .. } = solution;
        let (by_samples, training) = (None, None);
        let spectrum =
            Spectrum { eigenvalues, certificate, origin, notes, training, features, coefficients, by_samples };
        spectrum.require_finite()?;
        Ok(spectrum)
    }
}

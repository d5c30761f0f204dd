//! The leading eigenpairs by block Krylov iteration.

use super::exact::{extended, zero_below};
use super::krylov_iteration::iterate;
use super::{Eigenvectors, Method, Problem, Size, Solution};
use crate::compute::Device;
use crate::operator::{Operator, Precision};
use crate::options::{Caps, Entry, Kind, Opt};
use crate::training::{Checkpoint, Saving};
use crate::{Error, FitContext, Result};
use ndarray::Array2;

static TOLERANCE: Opt =
    Opt::new("tolerance", "RESIDUAL", Kind::Positive, "residual at which a pair is done [default: 1e-6]");

/// The top k pairs by block Krylov iteration on the operator. K is kept in memory only where it fits easily;
/// otherwise, and always on a GPU, every product computes it anew, tile by tile, and only time bounds n.
/// Example: [the crate](crate).
pub struct Krylov {
    /// Residual `‖Kψ − μψ‖/μ` at which a pair is done.
    pub tolerance: f64,
    /// Where the state of the iteration is kept, the basis and its images; on any number of ranks one file, which any number continues.
    /// Example: [`Monitoring`](crate::apply::Monitoring).
    pub checkpoint: Option<Checkpoint>,
}

impl Default for Krylov {
    fn default() -> Self {
        Krylov::to(1e-6)
    }
}

impl Krylov {
    /// To a residual of `tolerance`, without a checkpoint.
    ///
    /// ```
    /// use mercer::spectrum::Krylov;
    /// assert_eq!(Krylov::to(1e-9).tolerance, 1e-9);
    /// ```
    pub fn to(tolerance: f64) -> Krylov {
        Krylov { tolerance, checkpoint: None }
    }

    pub(crate) fn entry() -> Entry<Size> {
        Entry {
            can: Caps { shards: true, ..Caps::default() },
            ..Entry::<Size>::new(
                "krylov",
                "the leading pairs to the tolerance, without storing the kernel matrix",
                [&[&TOLERANCE][..], &Checkpoint::OPTIONS].concat(),
                |o, _| {
                    let usual = o.take(&TOLERANCE)?.map_or_else(Krylov::default, Krylov::to);
                    Ok(Box::new(Krylov { checkpoint: Checkpoint::of(o)?, ..usual }))
                },
            )
        }
    }
}

impl Method for Krylov {
    fn name(&self) -> String {
        "krylov".into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let (n, (top, mut notes)) = (problem.operator.n() as u64, self.top(problem)?);
        let values: Vec<f64> = top.values.iter().map(|θ| θ / n as f64).collect();
        notes.extend(self.note(&top, &problem.context));
        let threshold = zero_below(problem, values[0]);
        let [ψ, image] = [top.vectors, top.images].map(|columns| columns * (n as f64).sqrt());
        let solution = extended(problem, values, ψ, Some(image), threshold)?;
        Ok(Solution { next: top.next.map(|θ| θ / n as f64), notes, ..solution })
    }

    fn eigenvectors(&self, problem: &Problem) -> Result<Eigenvectors> {
        let (top, mut notes) = self.top(problem)?;
        // At the rounding of K, pairs are as good as they can be.
        notes.extend(self.note(&top, &problem.context).filter(|_| !top.converged));
        Ok(Eigenvectors { values: top.values, vectors: top.vectors, notes })
    }
}

impl Krylov {
    /// The pairs, and what the user should know of their checkpoint.
    fn top(&self, problem: &Problem) -> Result<(TopPairs, Vec<String>)> {
        let (operator, context) = (problem.operator, &problem.context);
        let held = operator.sharding().rows(operator.n()).len();
        let mut basis = Krylov::require(held, problem.k, context)?;
        if self.checkpoint.is_some() {
            // The basis and its images once more, on the host.
            basis += basis / 3 * 2;
            context.budget.require(
                format!("the Krylov basis for k = {} at {held} points, and its checkpoint", problem.k),
                basis,
                "ask for fewer pairs, or leave the checkpoint out",
            )?;
        }
        let stored = operator.stored(context, basis)?;
        let saving = self.checkpoint.as_ref().map_or(Saving::NONE, Checkpoint::saving);
        iterate(stored.as_deref().unwrap_or(operator), problem.k, self.tolerance, saving, context)
    }

    /// A warning where the residual that was reached is above the one asked for.
    fn note(&self, top: &TopPairs, context: &FitContext) -> Option<String> {
        let TopPairs { relative, products, .. } = top;
        let missed = relative.iter().filter(|r| **r > self.tolerance).count();
        let (pair, worst) = relative.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let why = if context.interrupted() { "was interrupted" } else { "ended" };
        let precision = if context.precision == Precision::F64 { "" } else { "use double precision, " };
        (missed > 0).then(|| {
            format!(
                "the Krylov iteration {why} after {products} products with {missed} of {} pairs above the residual {:.0e} asked for: \
                 {worst:.1e} at most (pair {}); {precision}ask for fewer pairs, or allow {larger_tolerance}",
                relative.len(),
                self.tolerance,
                pair + 1, larger_tolerance = crate::advice!(LargerTolerance))
        })
    }

    /// Refuses a basis that the memory has no room for; returns its bytes.
    pub(crate) fn require(n: usize, k: usize, context: &FitContext) -> Result<u64> {
        let basis = basis_bytes(n as u64, k);
        match context.device.free_memory()? {
            None => context.budget.require(
                format!("the Krylov basis for k = {k} at {n} points"),
                basis,
                concat!("ask for fewer pairs, or use ", crate::advice!(Nystrom)),
            )?,
            Some(free) => require_device_memory(n as u64, k, context.device, free)?,
        }
        Ok(basis)
    }
}

/// The largest eigenvalues of an operator and their vectors. Example: [`crate::operator::NtkOperator`].
pub struct TopPairs {
    /// Eigenvalues of K, descending `[k]`.
    pub values: Vec<f64>,
    /// Orthonormal eigenvectors u `[n, k]`; of an operator that shards vectors over ranks, the rows of this rank.
    pub vectors: Array2<f64>,
    /// `Ku` `[n, k]`, alike.
    pub images: Array2<f64>,
    /// `‖Ku − θu‖ / θ_1` of each pair.
    pub residuals: Vec<f64>,
    /// An estimate, from below, of the eigenvalue after the last.
    pub next: Option<f64>,
    /// `‖Ku − θu‖/θ` of each pair whose θ is not zero up to rounding.
    pub relative: Vec<f64>,
    /// Products that it took.
    pub products: usize,
    /// Whether every pair is done: below the tolerance, or below the rounding of K.
    pub converged: bool,
}

/// Vectors per product: a few more than wanted, so that the last pairs converge as fast as the first.
pub(super) fn block_size(k: usize) -> usize {
    k + 8
}

/// Vectors kept before a restart.
pub(super) fn largest_basis(block: usize) -> usize {
    (6 * block).clamp(48, 600.max(3 * block))
}

/// Bytes of the basis, of its images, and of what a restart needs beside them.
fn basis_bytes(n: u64, k: usize) -> u64 {
    3 * n * (largest_basis(block_size(k)) as u64) * 8
}

/// Refuses a basis that does not fit into the `free` bytes of a device, and says how many pairs would.
fn require_device_memory(n: u64, k: usize, device: Device, free: u64) -> Result<()> {
    let needed = basis_bytes(n, k);
    if needed <= free {
        return Ok(());
    }
    let instead = match (1..k).rev().find(|&k| basis_bytes(n, k) <= free) {
        Some(most) => format!("ask for at most {most} pairs, or {use_cpu}", use_cpu = crate::advice!(UseCpu)),
        None => concat!("use ", crate::advice!(Nystrom), " or fewer points, or ", crate::advice!(UseCpu)).into(),
    };
    let what = format!("the Krylov basis for k = {k} at {n} points");
    Err(Error::DeviceMemory { device: device.to_string(), what, needed, free, instead })
}

/// The `k` largest eigenpairs of a symmetric positive semi-definite operator, by block Krylov iteration with
/// Rayleigh–Ritz over the whole basis and thick restarts. Both the basis `Q` and `KQ` are kept, so every residual
/// `‖Ku − θu‖` is measured, not estimated. A pair is done when it is below `tolerance · θ`, or below the rounding of K. After 300
/// products, or where the context is interrupted, the best pairs so far are returned, and [`TopPairs::converged`] says so.
///
/// Q and KQ stay on the context's device; only matrices as small as the basis is wide come to the host.
/// Example: [`crate::operator::NtkOperator`].
pub fn top_pairs(operator: &dyn Operator, k: usize, tolerance: f64, context: &FitContext<'_>) -> Result<TopPairs> {
    iterate(operator, k, tolerance, Saving::NONE, context).map(|(top, _)| top)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_small_device_names_what_fits() {
        let n = 1_000_000;
        let free = basis_bytes(n, 10);
        assert!(require_device_memory(n, 10, Device::Cuda(0), free).is_ok());
        let refused = require_device_memory(n, 40, Device::Cuda(0), free).unwrap_err();
        match &refused {
            Error::DeviceMemory { needed, free: left, .. } => assert_eq!((*needed, *left), (basis_bytes(n, 40), free)),
            other => panic!("{other}"),
        }
        let message = refused.to_string();
        assert!(message.starts_with("cuda:0: the Krylov basis for k = 40") && message.contains("at most 10 pairs"));
        let hopeless = require_device_memory(n, 40, Device::Cuda(0), 1 << 20).unwrap_err();
        assert!(hopeless.to_string().contains("Nyström"));
    }
}

//! The memory that regression takes, by estimate.

use crate::FitContext;
use crate::apply::features::landmark_design::{ROWS, STRIP};
use crate::apply::ridge::direct::direct_memory;
use crate::apply::solvers::{plan_askotch, plan_delayed, plan_eigenpro};
use crate::apply::targets::class_columns;
use crate::apply::{EpochSolver, Falkon, LandmarkSolver, Ridge, solvers::low_rank_preconditioner as preconditioner};
use crate::compute::Device;
use crate::compute::cuda::TRIANGLE_BLOCK;
use crate::data::Target;
use crate::error::human_bytes;
use crate::free_memory::{peak_memory, resident_memory};
use crate::operator::KernelOperator;
use crate::operator::cuda::Planned;
use serde::Serialize;

/// The memory that a fit takes beside its points and targets, by estimate.
///
/// ```
/// use mercer::apply::{EpochSolver, Ridge, RidgeSolver};
/// use mercer::{Device, FitContext, data::Target, kernel::Kernel};
/// let ridge = Ridge { solver: RidgeSolver::epochs(EpochSolver::Askotch), ..Ridge::new(Kernel::parse("rbf(6)")?) };
/// let context = FitContext { device: Device::Cuda(0), ..FitContext::default() };
/// let memory = ridge.memory([10_000_000, 20], &Target::Values(vec![]), &context);
/// assert!(memory.device.is_some_and(|bytes| bytes > 2_000_000_000));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Bytes of the host's memory.
    pub host: u64,
    /// Bytes of a GPU's memory; none on the CPU, and where it is not known.
    pub device: Option<u64>,
}

impl Memory {
    /// Beside what the process holds already, and no less than it held at any time.
    pub(crate) fn beside_the_process(self) -> Memory {
        let host = (resident_memory() + self.host).max(peak_memory().unwrap_or(0));
        Memory { host, ..self }
    }

    /// Tells the progress of a fit, before it begins.
    pub(crate) fn tell(self, context: &FitContext) {
        let of_device = self.device.map(|bytes| format!(", {} of {}", human_bytes(bytes), context.device));
        let note = format!("{}{} by estimate", human_bytes(self.host), of_device.unwrap_or_default());
        context.progress.step("memory", 0, 1, &note);
    }
}

/// Vectors `[n, m]` of conjugate gradients at once: the right-hand side, the iterate, residual, direction, its product, the preconditioned
/// residual, and the best two iterates.
const VECTORS: usize = 8;

/// Columns of targets, and whether they are classes.
fn columns(y: &Target) -> (usize, bool) {
    match y {
        Target::Values(_) => (1, false),
        Target::Classes { names, .. } => (names.len(), true),
    }
}

impl Ridge {
    /// For `n` points of `d` columns with targets like `y`.
    pub fn memory(&self, [n, d]: [usize; 2], y: &Target, context: &FitContext) -> Memory {
        let ((m, classes), kept) = (columns(y), self.monitoring.checkpoint.is_some());
        let Some(iteration) = self.iteration(n, context) else {
            let columns = class_columns(n, m) * u64::from(classes);
            return Memory { host: direct_memory(&self.kernel, self.alpha, n) + columns, device: None };
        };
        let leaves_out = classes || self.alpha == crate::apply::Alpha::LeaveOneOut;
        let rank = iteration.rank_needed(leaves_out);
        let on_gpu = context.device != Device::Cpu;
        let of_method = iteration.memory_of_method([n, d]) + class_columns(n, m) * u64::from(classes);
        let vectors = iteration.memory([n, m].map(|size| size as u64), leaves_out, kept);
        let stores = KernelOperator::stores(n, context.precision, context.device, context, vectors);
        let host = of_method
            + match (on_gpu, stores && context.group.is_single()) {
                (true, _) => 8 * (VECTORS * n * m) as u64,
                (_, true) => vectors + (n as u64).pow(2) * context.precision.bytes(),
                _ => vectors + (n * d) as u64 * context.precision.bytes(),
            };
        let device = Planned::new(&self.kernel, [d, m], context.precision).filter(|_| on_gpu).map(|mut planned| {
            planned.points(n);
            rank.into_iter().for_each(|rank| preconditioner::plan(&mut planned, n, rank));
            if let Some(rows) = &self.monitoring.held_out {
                // A pair of sets of its own.
                planned.points(n);
                planned.points(rows.x.nrows());
                planned.product([rows.x.nrows(), n]);
            }
            match iteration.method {
                Some(EpochSolver::Askotch) => plan_askotch(&mut planned, n),
                Some(EpochSolver::EigenPro) => plan_eigenpro(&mut planned, n),
                _ => {
                    planned.vectors(VECTORS, n);
                    planned.product([n, n]);
                }
            }
            planned.bytes()
        });
        Memory { host, device }
    }
}

impl Falkon {
    /// For `n` points of `d` columns with targets like `y`.
    pub fn memory(&self, [n, d]: [usize; 2], y: &Target, context: &FitContext) -> Memory {
        let ((c, classes), m) = (columns(y), self.landmarks);
        let (matrices, values) = (self.host_matrices(context), 8 * (n as u64) * m as u64);
        let on_gpu = context.device != Device::Cpu;
        let stored = if !on_gpu && context.budget.allows(3 * values + matrices) { values } else { 0 };
        let columns = if classes { class_columns(n, c) } else { 0 };
        let host = matrices + stored + 8 * (m * d + 4 * n * c) as u64 + columns;
        let planned = Planned::new(&self.kernel, [d, c], context.precision).filter(|_| on_gpu);
        let known = planned.filter(|_| self.solver != LandmarkSolver::Krill);
        let device = known.map(|planned| self.planned(planned, [n, m], self.by_factor(context)).bytes());
        Memory { host, device }
    }

    /// The requests to a GPU's memory for `n` points and `m` landmarks.
    fn planned(&self, mut planned: Planned, [n, m]: [usize; 2], by_factor: bool) -> Planned {
        planned.vectors(1, n);
        // κ(Z,Z) and its factor; or that matrix alone, made a few rows at a time, and the inverses of the factor's blocks.
        if by_factor {
            let landmarks = planned.points(m);
            planned.matrix([m, m]);
            for_a_while(&mut planned, |planned| {
                let points = planned.gathered(ROWS.min(m));
                let block = planned.block([ROWS.min(m), m]);
                vec![points, block]
            });
            planned.release(landmarks);
            planned.matrix([TRIANGLE_BLOCK, m]);
        } else {
            planned.gram(m);
            for_a_while(&mut planned, |planned| vec![planned.matrix([m, m])]);
        }
        planned.points(m);
        planned.points(n);
        planned.matrix([n, 1]);
        if !by_factor {
            planned.matrix([m, m]);
        }
        match self.solver {
            LandmarkSolver::EigenPro => plan_delayed(&mut planned, [n, m]),
            _ => {
                planned.matrix([m, m]);
                for_a_while(&mut planned, |planned| {
                    let rows = (4 * ROWS).min(n);
                    let points = planned.gathered(rows);
                    let (block, phi) = (planned.block([rows, m]), planned.matrix([rows, m]));
                    vec![points, block, phi, planned.matrix([m, m])]
                });
                planned.vectors(VECTORS, m);
            }
        }
        // A product with κ(Z,X)κ(X,Z), with inner products of some rows where they are kept.
        let rows = if planned.keeps() { STRIP.min(n) } else { n };
        for_a_while(&mut planned, |planned| {
            let points =
                if planned.keeps() { vec![planned.gathered(rows), planned.inner_products([rows, m])] } else { vec![] };
            planned.product_of_kept([rows, m]);
            planned.product_of_kept([m, rows]);
            points
        });
        planned
    }
}

/// Memory that is released at the end.
fn for_a_while(planned: &mut Planned, work: impl FnOnce(&mut Planned) -> Vec<crate::operator::cuda::Held>) {
    let held = work(planned);
    held.into_iter().for_each(|held| planned.release(held));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::RidgeSolver;
    use crate::kernel::Kernel;
    use crate::operator::Precision;

    fn on_gpu() -> FitContext<'static> {
        FitContext { device: Device::Cuda(0), precision: Precision::Tf32, ..FitContext::default() }
    }

    const NUMBERS: Target = Target::Values(vec![]);

    fn device(memory: Memory) -> f64 {
        memory.device.unwrap() as f64
    }

    /// Points of 20 columns are stored in 32, in f16, with a norm and κ(x,x), in f32; seven vectors of f64; eight columns of f32 values, 68 for
    /// 64; a block of 8192² numbers in f32 and in f64, in whose memory the partial sums of the last residual fit. The rest are partial
    /// sums of a step and two pieces that are uploaded.
    #[test]
    fn the_memory_of_askotch_is_that_of_its_parts() {
        let (kernel, n) = (Kernel::parse("rbf(6)").unwrap(), 10_000_000);
        let ridge = Ridge {
            alpha: crate::apply::Alpha::Fixed(1.0),
            solver: RidgeSolver::epochs(EpochSolver::Askotch),
            ..Ridge::new(kernel)
        };
        let planned = ridge.memory([n, 20], &NUMBERS, &on_gpu()).device.unwrap();
        let of_points = 2 * 32 + 4 * 2 + 7 * 8 + 8 * 4 * 68 / 64;
        let parts = n as u64 * of_points + (4 + 8) * (8192 * 8192);
        assert!(planned >= parts && planned < parts + (300 << 20), "{planned} for {parts}");
        let images = Kernel::parse("ntk('conv(3) relu gap dense', shape=32x32x3)").unwrap();
        assert!(Ridge { kernel: images, ..ridge }.memory([n, 3072], &NUMBERS, &on_gpu()).device.is_none());
    }

    /// The peak of the pool that was measured on an H200 (`mercer-bench gpu-epoch_tf32`): 81.26 GB.
    #[test]
    fn the_memory_of_eigenpro_is_what_was_measured() {
        let falkon = Falkon::eigenpro(Kernel::parse("rbf(36)").unwrap(), 65_536);
        let planned = device(falkon.memory([5_000_000, 1280], &NUMBERS, &on_gpu()));
        assert!((planned / 81.26e9 - 1.0).abs() < 0.05, "{planned:.4e}");
    }

    /// F in pieces, F, and U, `[n, 2√n]` each, are what conjugate gradients take beside the points.
    #[test]
    fn the_memory_of_conjugate_gradients_is_that_of_the_preconditioner() {
        let (ridge, n) = (Ridge::new(Kernel::parse("rbf(3)").unwrap()), 500_000);
        let planned = device(ridge.memory([n, 54], &NUMBERS, &on_gpu()));
        let (rank, parts) = (2.0 * 500_000f64.sqrt().floor(), 2.0 * 64.0 + 4.0 * 2.0 + 8.0 * 8.0);
        let low_rank = 3.0 * 8.0 * rank * n as f64;
        assert!(planned > low_rank + parts * n as f64 && planned < 1.1 * (low_rank + parts * n as f64), "{planned:e}");
    }
}

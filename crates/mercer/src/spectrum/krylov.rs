use super::exact::{extended, zero_below};
use super::ritz::padded;
use super::{EigenPairs, Eigenvectors, Method, Problem, Solution};
use crate::compute::Device;
use crate::linalg::{Deal, Panel, eigh};
use crate::operator::{Operator, Precision};
use crate::rng::Rng;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array2, s};

/// The top k pairs by block Krylov iteration on the operator. K is kept in memory only where it fits easily;
/// otherwise, and always on a GPU, every product computes it anew, tile by tile, and only time bounds n.
/// Example: [the crate](crate).
pub struct Krylov {
    /// Residual `‖Kψ − μψ‖/μ` at which a pair is done.
    pub tolerance: f64,
}

impl Default for Krylov {
    fn default() -> Self {
        Krylov { tolerance: 1e-6 }
    }
}

impl Method for Krylov {
    fn name(&self) -> String {
        "krylov".into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let (n, top) = (problem.operator.n() as u64, self.top(problem)?);
        let values: Vec<f64> = top.values.iter().map(|θ| θ / n as f64).collect();
        let notes = self.note(&top, &problem.context).into_iter().collect();
        let threshold = zero_below(problem, values[0]);
        let [ψ, image] = [top.vectors, top.images].map(|columns| columns * (n as f64).sqrt());
        let solution = extended(problem, values, ψ, Some(image), threshold)?;
        Ok(Solution { next: top.next.map(|θ| θ / n as f64), notes, ..solution })
    }

    fn eigenvectors(&self, problem: &Problem) -> Result<Eigenvectors> {
        let top = self.top(problem)?;
        // At the rounding of K, pairs are as good as they can be.
        let notes = self.note(&top, &problem.context).filter(|_| !top.converged).into_iter().collect();
        Ok(Eigenvectors { values: top.values, vectors: top.vectors, notes })
    }
}

impl Krylov {
    fn top(&self, problem: &Problem) -> Result<TopPairs> {
        let (operator, context) = (problem.operator, &problem.context);
        let held = operator.deal().rows(operator.n()).len();
        let stored = operator.stored(context, Krylov::require(held, problem.k, context)?)?;
        top_pairs(stored.as_deref().unwrap_or(operator), problem.k, self.tolerance, context)
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
                 {worst:.1e} at most (pair {}); {precision}ask for fewer pairs, or allow a larger tolerance",
                relative.len(),
                self.tolerance,
                pair + 1
            )
        })
    }

    /// Refuses a basis that the memory has no room for; returns its bytes.
    pub(crate) fn require(n: usize, k: usize, context: &FitContext) -> Result<u64> {
        let basis = basis_bytes(n as u64, k);
        match context.device.free_memory()? {
            None => context.budget.require(
                format!("the Krylov basis for k = {k} at {n} points"),
                basis,
                "ask for fewer pairs, or use the Nyström method",
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
    /// Orthonormal eigenvectors u `[n, k]`; of an operator that deals vectors over ranks, the rows of this rank.
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
fn block_size(k: usize) -> usize {
    k + 8
}

/// Vectors kept before a restart.
fn largest_basis(block: usize) -> usize {
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
        Some(most) => format!("ask for at most {most} pairs, or use the CPU"),
        None => "use the Nyström method or fewer points, or use the CPU".into(),
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
    const MOST_PRODUCTS: usize = 300;
    let n = operator.n();
    let (block, room) = (block_size(k).min(n), largest_basis(block_size(k)).min(n));
    let deal = operator.deal();
    let mut fresh = random_vectors(context.seed, [n, block], &deal, context.device)?.orthonormal_basis()?;
    let mut q = fresh.columns(0..0)?;
    let mut kq = q.try_clone()?;
    let mut keeps = None;
    for products in 1.. {
        let image = operator.apply_panel(&fresh)?;
        (q, kq) = (q.joined(&fresh)?, kq.joined(&image)?);
        let (θ, rotation) = ritz_pairs(&q, &kq)?;
        let found = k.min(θ.len());
        let rotation = rotation.slice(s![.., ..found.max(block).min(θ.len())]);
        let (vectors, images) = (q.matmul(rotation)?, kq.matmul(rotation)?);
        let residuals = images.residual_norms(&vectors, &θ[..found])?;
        fail_if!(θ.iter().chain(&residuals).any(|v| !v.is_finite()); Error::Numerical(format!(
            "the products with {} are too large to be computed; scale the data, or use another parameter of the kernel",
            operator.describe()
        )));
        let floor = 3.0 * operator.roundoff() * θ[0];
        let done = residuals.iter().zip(&θ).filter(|(r, θ)| **r <= (tolerance * **θ).max(floor)).count();
        let worst = |size: &dyn Fn(f64) -> f64| residuals.iter().zip(&θ).map(|(r, θ)| r / size(*θ)).fold(0.0, f64::max);
        let (excess, residual) = (worst(&|θ| (tolerance * θ).max(floor)), worst(&|θ| θ.max(floor)));
        keeps.get_or_insert_with(|| context.keeps_best());
        let note = format!("product {products}, worst residual {residual:.1e}");
        context.progress.iteration("krylov", done, k, excess, &note);

        let next = image.outside(&q)?.outside(&q)?;
        // What is left of K Q outside of Q is rounding: the space is invariant and holds every non-zero pair.
        let exhausted = next.all_within(floor / (n as f64).sqrt())? || q.ncols() >= n;
        let converged = done == k || exhausted;
        if converged || products == MOST_PRODUCTS || context.interrupted() {
            let relative = residuals.iter().zip(&θ).filter(|(_, θ)| **θ > floor).map(|(r, θ)| r / θ).collect();
            // Where the operator had fewer than k pairs, the rest are zero.
            let on_host = |panel: Panel| panel.columns(0..found)?.into_own_rows();
            let scale = θ[0].max(f64::MIN_POSITIVE);
            let residuals: Vec<f64> = residuals.iter().map(|r| r / scale).collect();
            let (values, vectors) = padded(&θ[..found], on_host(vectors)?.view(), k);
            let (residuals, images) = padded(&residuals, on_host(images)?.view(), k);
            let next = θ.get(k).copied();
            return Ok(TopPairs { values, vectors, images, residuals, next, relative, products, converged });
        }
        if q.ncols() + block > room {
            (q, kq) = (vectors, images);
        }
        fresh = next.orthonormal_basis()?.outside(&q)?.orthonormal_basis()?;
    }
    unreachable!("the loop returns")
}

/// Random numbers `[n, b]`, whichever rows of them this process has.
fn random_vectors(seed: u64, [n, b]: [usize; 2], deal: &Deal, device: Device) -> Result<Panel> {
    let (mut rng, rows) = (Rng::new(seed).fork(0x6b72_796c), deal.rows(n));
    for _ in 0..rows.start * b {
        rng.normal();
    }
    let own = Array2::from_shape_simple_fn((rows.len(), b), || rng.normal());
    Panel::dealt(device, deal, own)
}

/// Rayleigh–Ritz on an orthonormal basis: eigenpairs of `QᵀKQ`.
fn ritz_pairs(q: &Panel, kq: &Panel) -> Result<EigenPairs> {
    let t = q.t_matmul(kq)?;
    eigh(q.device(), ((&t + &t.t()) * 0.5).view())
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

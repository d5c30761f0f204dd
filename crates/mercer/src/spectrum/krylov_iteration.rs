//! The iteration of the Krylov method, step by step: what a checkpoint keeps, and how it goes on.

use super::EigenPairs;
use super::krylov::{TopPairs, block_size, largest_basis};
use super::ritz::padded;
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::linalg::{Panel, Sharding, eigh};
use crate::operator::Operator;
use crate::rng::Rng;
use crate::training::{Identity, Run, Saving, Task};
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array2, s};

/// Products with K, at most.
const MOST_PRODUCTS: u64 = 300;

/// Points between which kernel values tell one set of points from another.
const PROBED: usize = 48;

/// The `k` largest pairs of `operator`, kept in the file of `saving`; also what the user should know of it.
pub(super) fn iterate(
    operator: &dyn Operator,
    k: usize,
    tolerance: f64,
    saving: Saving<'_>,
    context: &FitContext<'_>,
) -> Result<(TopPairs, Vec<String>)> {
    let start =
        random_vectors(context.seed, [operator.n(), block_size(k).min(operator.n())], operator, context.device)?;
    let empty = start.columns(0..0)?;
    let probe = saving.path.is_some().then(|| probe(operator)).transpose()?;
    let mut iteration = Iteration {
        operator,
        k,
        tolerance,
        context,
        probe,
        start: Some(start),
        q: empty.try_clone()?,
        kq: empty,
        width: 0,
        products: 0,
        found: None,
    };
    let mut run = Run::new(&mut iteration, saving, context)?;
    run.run(&mut iteration)?;
    let notes = std::mem::take(&mut run.notes);
    Ok((iteration.finish()?, notes))
}

/// The iteration after some products.
struct Iteration<'a> {
    operator: &'a dyn Operator,
    k: usize,
    tolerance: f64,
    context: &'a FitContext<'a>,
    /// Kernel values of a few points, for a checkpoint.
    probe: Option<Array2<f64>>,
    /// The first vectors, until they are used.
    start: Option<Panel>,
    /// The basis Q, and KQ.
    q: Panel,
    kq: Panel,
    /// Columns that the last product has added.
    width: usize,
    products: u64,
    /// What the basis has; none before the first product.
    found: Option<Found>,
}

/// Rayleigh–Ritz over the basis.
struct Found {
    /// Eigenvalues of `QᵀKQ`, descending.
    θ: Vec<f64>,
    /// The leading vectors and their images, a block or k of them.
    vectors: Panel,
    images: Panel,
    /// `‖Ku − θu‖` of the pairs that are wanted.
    residuals: Vec<f64>,
    /// Pairs that are done.
    done: usize,
    /// Below it, a residual is the rounding of K.
    floor: f64,
    /// What the last product has outside of the basis.
    next: Panel,
    /// Whether that is rounding: the basis has every pair that is not zero.
    exhausted: bool,
}

impl Iteration<'_> {
    /// The vectors of the next product; restarts with the leading vectors where the basis has no more room.
    fn next_vectors(&mut self) -> Result<Panel> {
        let Some(found) = self.found.take() else {
            return self.start.take().expect("the first product is made once").orthonormal_basis();
        };
        let n = self.operator.n();
        let (block, room) = (block_size(self.k).min(n), largest_basis(block_size(self.k)).min(n));
        if self.q.ncols() + block > room {
            (self.q, self.kq) = (found.vectors, found.images);
        }
        found.next.orthonormal_basis()?.outside(&self.q)?.orthonormal_basis()
    }

    /// Pairs of the basis, whose last columns are those of the last product.
    fn find(&self) -> Result<Found> {
        let (n, k, q, kq) = (self.operator.n(), self.k, &self.q, &self.kq);
        let (θ, rotation) = ritz_pairs(q, kq)?;
        let wanted = k.min(θ.len());
        let rotation = rotation.slice(s![.., ..wanted.max(block_size(k).min(n)).min(θ.len())]);
        let (vectors, images) = (q.matmul(rotation)?, kq.matmul(rotation)?);
        let residuals = images.residual_norms(&vectors, &θ[..wanted])?;
        fail_if!(θ.iter().chain(&residuals).any(|v| !v.is_finite()); Error::Numerical(format!(
            "the products with {} are too large to be computed; scale the data, or use another parameter of the kernel",
            self.operator.describe()
        )));
        let floor = 3.0 * self.operator.roundoff() * θ[0];
        let is_done = |(r, θ): &(&f64, &f64)| **r <= (self.tolerance * **θ).max(floor);
        let done = residuals.iter().zip(&θ).filter(is_done).count();
        let image = kq.columns(kq.ncols() - self.width..kq.ncols())?;
        let next = image.outside(q)?.outside(q)?;
        let exhausted = next.all_within(floor / (n as f64).sqrt())? || q.ncols() >= n;
        Ok(Found { θ, vectors, images, residuals, done, floor, next, exhausted })
    }

    /// The largest residual of the pairs found, each divided by `size` of its eigenvalue.
    fn worst(&self, size: impl Fn(f64, f64) -> f64) -> f64 {
        let Some(found) = &self.found else { return f64::INFINITY };
        found.residuals.iter().zip(&found.θ).map(|(r, θ)| r / size(*θ, found.floor)).fold(0.0, f64::max)
    }

    /// The pairs found.
    fn finish(self) -> Result<TopPairs> {
        let (k, converged, products) = (self.k, self.converged(), self.products as usize);
        let Found { θ, vectors, images, residuals, floor, .. } = self.found.expect("after the first product");
        let relative = residuals.iter().zip(&θ).filter(|(_, θ)| **θ > floor).map(|(r, θ)| r / θ).collect();
        // Where the operator had fewer than k pairs, the rest are zero.
        let wanted = k.min(θ.len());
        let on_host = |panel: Panel| panel.columns(0..wanted)?.into_own_rows();
        let scale = θ[0].max(f64::MIN_POSITIVE);
        let residuals: Vec<f64> = residuals.iter().map(|r| r / scale).collect();
        let (values, vectors) = padded(&θ[..wanted], on_host(vectors)?.view(), k);
        let (residuals, images) = padded(&residuals, on_host(images)?.view(), k);
        let next = θ.get(k).copied();
        Ok(TopPairs { values, vectors, images, residuals, next, relative, products, converged })
    }
}

impl Task for Iteration<'_> {
    fn name(&self) -> String {
        "krylov".into()
    }

    fn identity(&self) -> Identity {
        let FitContext { precision, seed, device, .. } = *self.context;
        let identity = [
            ("method", "krylov".to_owned()),
            ("operator", self.operator.describe()),
            ("rows", self.operator.n().to_string()),
            ("pairs", self.k.to_string()),
            ("tolerance", self.tolerance.to_string()),
            ("precision", format!("{precision:?}")),
            ("seed", seed.to_string()),
            ("device", device.to_string()),
        ];
        identity.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn steps(&self) -> (u64, u64) {
        (self.products, MOST_PRODUCTS)
    }

    fn advance(&mut self) -> Result<()> {
        let fresh = self.next_vectors()?;
        let image = self.operator.apply_panel(&fresh)?;
        (self.q, self.kq) = (self.q.joined(&fresh)?, self.kq.joined(&image)?);
        (self.width, self.products) = (fresh.ncols(), self.products + 1);
        drop((fresh, image));
        self.found = Some(self.find()?);
        Ok(())
    }

    fn due(&self) -> bool {
        false
    }

    fn validate(&mut self) -> Result<()> {
        Ok(())
    }

    fn converged(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.done == self.k || found.exhausted)
    }

    fn excess(&self) -> Option<f64> {
        Some(self.worst(|θ, floor| (self.tolerance * θ).max(floor)))
    }

    fn has_result(&self) -> bool {
        self.found.is_some()
    }

    fn report(&mut self, _rate: f64, _left: f64) -> Result<String> {
        let done = self.found.as_ref().map_or(0, |found| found.done);
        let residual = self.worst(f64::max);
        Ok(format!("{done} of {} pairs done, worst residual {residual:.1e}", self.k))
    }

    /// The basis and its images; all else follows from them.
    fn save(&mut self, bundle: &mut Bundle) -> Result<()> {
        bundle.set("products", self.products);
        bundle.set("width", self.width);
        if let Some(probe) = &self.probe {
            bundle.put("probe", probe.clone());
        }
        for (name, panel) in [("q", &self.q), ("kq", &self.kq)] {
            bundle.put_sharded(name, panel.own_rows()?, panel.sharding());
        }
        Ok(())
    }

    fn load(&mut self, bundle: &Bundle) -> Result<()> {
        /// Values of the same points on another number of ranks differ by a rounding.
        const SAME: f64 = 1e-5;
        let (probe, here) = (bundle.matrix("probe")?, self.probe.as_ref().expect("made for a checkpoint"));
        let largest = here.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let differs = probe.dim() != here.dim() || probe.iter().zip(here).any(|(a, b)| (a - b).abs() > SAME * largest);
        fail_if!(differs, "it is the checkpoint of a run on other data; give the same data, or another checkpoint");
        (self.products, self.width) = (bundle.value("products")?, bundle.value("width")?);
        let [q, kq] = [bundle.matrix("q")?, bundle.matrix("kq")?];
        let fits = q.dim() == kq.dim() && q.nrows() == self.operator.n() && self.width <= q.ncols();
        fail_if!(!fits || (self.products == 0) != (self.width == 0), "its parts do not fit together");
        let (sharding, device) = (self.operator.sharding(), self.context.device);
        if self.products > 0 {
            // In the order of memory in which a product leaves them, on which roundings depend.
            let joined = |to: &Panel, whole: Array2<f64>| to.joined(&sharding.panel(device, whole.view())?);
            (self.q, self.kq) = (joined(&self.q, q)?, joined(&self.kq, kq)?);
            self.found = Some(self.find()?);
        }
        Ok(())
    }
}

/// Random numbers `[n, b]`, whichever rows of them this process has.
fn random_vectors(seed: u64, [n, b]: [usize; 2], operator: &dyn Operator, device: Device) -> Result<Panel> {
    let sharding: Sharding = operator.sharding();
    let (mut rng, rows) = (Rng::new(seed).fork(0x6b72_796c), sharding.rows(n));
    for _ in 0..rows.start * b {
        rng.normal();
    }
    let own = rng.normals((rows.len(), b));
    Panel::sharded(device, &sharding, own)
}

/// K of a few rows at equal distances.
fn probe(operator: &dyn Operator) -> Result<Array2<f64>> {
    let n = operator.n();
    let rows: Vec<usize> = (0..n).step_by(n.div_ceil(PROBED)).collect();
    operator.block(&rows, &rows)
}

/// Rayleigh–Ritz on an orthonormal basis: eigenpairs of `QᵀKQ`.
fn ritz_pairs(q: &Panel, kq: &Panel) -> Result<EigenPairs> {
    let t = q.t_matmul(kq)?;
    eigh(q.device(), ((&t + &t.t()) * 0.5).view())
}

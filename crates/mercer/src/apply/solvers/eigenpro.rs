//! EigenPro 2: preconditioned stochastic gradient descent on the kernel ridge equations.

use super::{EpochSolver, Epochs, Equations, blocks};
use crate::bundle::Bundle;
use crate::linalg::{Panel, Part, eigh};
use crate::operator::cuda::Planned;
use crate::rng::Rng;
use crate::{FitContext, Result};
use ndarray::{Array1, s};
use std::ops::Range;

/// EigenPro 2 (Ma and Belkin, 2019): stochastic gradient descent, preconditioned by the leading eigenvectors of a sample.
///
/// With `K' = K + αI` as the kernel on the points, `K'C = Y` is interpolation, where descent on batches converges without a falling rate. A
/// batch B with residual `R = Y_B − K'_B C` changes the function by `(η/b) P Σ_B κ'(x_i,·) R_i`. P damps the leading q eigenfunctions of a
/// sample S, with `K'_SS = VΣVᵀ`, to the size of the next one:
///
/// ```text
/// C_B ← C_B + (η/b) R,    C_S ← C_S − (η/b) V D Vᵀ K'_SB R,    D_i = (1 − σ_{q+1}/σ_i)/σ_i
/// ```
///
/// The rate for batches of b rows is `η = b/(β + (b−1) σ_{q+1}/s)`, β the largest `κ'(x,x)`; beyond `b ≈ β s/σ_{q+1}` larger batches do not help.
/// The points must come in random order: S is the first of them.
pub(crate) struct EigenPro<'a> {
    equations: Equations<'a>,
    batches: Vec<Range<usize>>,
    /// `V √D` `[s, q]`
    damping: Panel,
    /// η/b
    step: f64,
    rng: Rng,
}

/// Rows of the sample, at most.
const SAMPLE: usize = 2000;

/// Eigenvectors that are damped, at most: a fifth of the sample, whose last ones are noise.
const DAMPED: usize = 200;

/// Rows of a batch, at least, which a product takes in one pass, and at most.
const BATCHES: (usize, usize) = (32, 4096);

/// Vectors `[n, m]` on the device at once: Y, the start, the iterate, the best one, and the one that takes its place.
const VECTORS: usize = 5;

/// Bytes of the host's memory for the sample of n points: its matrix, and what an eigendecomposition takes.
pub(crate) fn sample_memory(n: usize) -> u64 {
    5 * 8 * (n.min(SAMPLE) as u64).pow(2)
}

/// Plans the memory of a GPU for `n` points that are on it, in batches of the largest size.
pub(crate) fn plan(planned: &mut Planned, n: usize) {
    let [size, batch] = [SAMPLE, BATCHES.1].map(|rows| rows.min(n));
    planned.vectors(VECTORS, n);
    planned.factor(size);
    planned.matrix([size, DAMPED]);
    planned.product_of_some([batch, n]);
    planned.product_of_some([size, batch]);
}

impl<'a> EigenPro<'a> {
    /// Decomposes K on the sample.
    pub fn new(equations: &Equations<'a>, context: &FitContext<'_>) -> Result<Self> {
        let n = equations.y.nrows();
        let size = n.min(SAMPLE);
        let (sample, device) = (Part::Range(0..size), equations.y.device());
        let mut k = equations.operator.block_panel(&sample, &sample, device)?.into_host()?;
        k.diag_mut().mapv_inplace(|k| k + equations.alpha);
        let (σ, v) = eigh(context.device, k.view())?;
        let q = DAMPED.min(size / 5).max(1).min(size - 1);
        let next = σ[q].max(equations.alpha);
        let roots: Array1<f64> = σ[..q].iter().map(|σ| ((1.0 - next / σ) / σ).max(0.0).sqrt()).collect();
        let damping = Panel::from_host(device, &v.slice(s![.., ..q]) * &roots)?;
        // β: the largest of what P leaves of the diagonal, taken without P, which only makes the step smaller.
        let diagonal = equations.operator.diagonal()?;
        let β = diagonal.iter().copied().fold(0.0, f64::max) + equations.alpha;
        let level = next / size as f64;
        let b = ((β / level) as usize).clamp(BATCHES.0, BATCHES.1).min(n);
        // The eigenvalue of the sample is a little off that of all points.
        let step = 0.9 / (β + (b - 1) as f64 * level);
        let rng = Rng::new(context.seed).fork(0x6569_6765);
        Ok(EigenPro { equations: *equations, batches: blocks(n, b), damping, step, rng })
    }

    /// `K'_SB R` `[s, m]`
    fn at_sample(&self, batch: &Range<usize>, r: &Panel) -> Result<Panel> {
        let size = self.damping.nrows();
        let (sample, own) = (Part::Range(0..size), Part::Range(batch.clone()));
        let mut at = self.equations.operator.product_panel(&sample, &own, r)?;
        let both = batch.start.min(size)..batch.end.min(size);
        let rows = r.rows(&Part::Range(0..both.len()))?;
        at.add_to_rows(&Part::Range(both), self.equations.alpha, &rows)?;
        // Where the sample is all rows, ranks may share them.
        at.into_whole()
    }
}

impl Epochs for EigenPro<'_> {
    fn kind(&self) -> EpochSolver {
        EpochSolver::EigenPro
    }

    fn epoch(&mut self, c: &mut Panel) -> Result<Vec<f64>> {
        let mut batches = self.batches.clone();
        self.rng.shuffle(&mut batches);
        let mut seen = Array1::<f64>::zeros(c.ncols());
        for batch in batches {
            let own = Part::Range(batch.clone());
            let r = self.equations.residual(&own, c)?;
            seen += &r.dots(&r)?;
            let at_sample = self.at_sample(&batch, &r)?;
            let damped = self.damping.times(&self.damping.t_times(&at_sample)?)?;
            c.add_to_rows(&own, self.step, &r)?;
            c.add_to_rows(&Part::Range(0..damped.nrows()), -self.step, &damped)?;
        }
        Ok(seen.to_vec())
    }

    fn save(&self, bundle: &mut Bundle) -> Result<()> {
        bundle.set("rng", &self.rng);
        Ok(())
    }

    fn load(&mut self, bundle: &Bundle, _: &Panel) -> Result<()> {
        self.rng = bundle.value("rng")?;
        Ok(())
    }
}

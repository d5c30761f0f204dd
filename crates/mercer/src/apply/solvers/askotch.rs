//! ASkotch: accelerated sketch-and-project on blocks of the kernel ridge equations.

use super::{EpochSolver, Epochs, Equations, blocks, load_panel, rows_of_residual, save_panel};
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::linalg::{Cholesky, Panel, Part};
use crate::operator::cuda::Planned;
use crate::rng::Rng;
use crate::{FitContext, Result};
use ndarray::Array1;
use std::ops::Range;

/// ASkotch (Rathore, Frangella, Yang, Dereziński and Udell, 2024): accelerated sketch-and-project, which solves the equations of one block of
/// rows after the other, and needs no landmarks.
///
/// A step with the block B of b rows takes `n b` kernel values:
///
/// ```text
/// D = (K_BB + αI)⁻¹ (Y − (K + αI)Z)_B
/// W ← Z + I_B D,    V ← βV + (1−β)Z + γ I_B D,    Z ← aV + (1−a)W
/// ```
///
/// with `ν = n/b`, `μ = α/κ` for the mean κ of `κ(x,x)`, but no more than `1/ν`, `β = 1 − √(μ/ν)`, `γ = 1/√(μν)` and `a = 1/(1+γν)`. The paper
/// replaces `K_BB` by Nyström's approximation; blocks are small enough here to be factored. Blocks are drawn anew in every epoch: with the same
/// ones again and again it takes several times as long. Where the residual rises far above the least one, μ was too optimistic: it is quartered,
/// and the acceleration begins anew.
pub(crate) struct Askotch<'a> {
    equations: Equations<'a>,
    /// Of the rows in random order.
    blocks: Vec<Range<usize>>,
    /// μ
    bound: f64,
    /// V and Z `[n, m]`, from the first epoch on.
    state: Option<(Panel, Panel)>,
    /// The least sum of all squared residuals that an epoch saw.
    least: Option<f64>,
    rng: Rng,
}

/// Rows of a block, at least and at most.
const BLOCKS: (usize, usize) = (64, 2048);

/// The most on a GPU, whose products with few rows and small factorizations take as long as larger ones.
const ON_GPU: usize = 8192;

/// Times the least sum of squared residuals at which μ was too large.
const DIVERGED: f64 = 16.0;

/// Blocks that there should be.
const COUNT: usize = 50;

/// Steps of an epoch, at most: of millions of rows it is a part of them, so that an interrupt and a checkpoint need not wait for all.
const STEPS: usize = 256;

/// Vectors `[n, m]` on the device at once: Y, the start, the iterate, V and Z, the best one, and the one that takes its place.
const VECTORS: usize = 7;

/// Plans the memory of a GPU for `n` points that are on it.
pub(crate) fn plan(planned: &mut Planned, n: usize) {
    let (block, last) = (rows_of_a_block(n, ON_GPU), rows_of_residual(n).unwrap_or(n));
    planned.vectors(VECTORS, n);
    planned.product_of_some([block, n]);
    planned.factor(block);
    planned.product_of_some([last, n]);
}

/// Bytes of the host's memory for a block of n points: its matrix as it is made, the factor, and a copy.
pub(crate) fn block_memory(n: usize) -> u64 {
    3 * 8 * (rows_of_a_block(n, BLOCKS.1) as u64).pow(2)
}

/// Rows of a block of n, about.
fn rows_of_a_block(n: usize, most: usize) -> usize {
    n.div_ceil(COUNT).clamp(BLOCKS.0, most)
}

impl<'a> Askotch<'a> {
    pub fn new(equations: &Equations<'a>, context: &FitContext<'_>) -> Result<Self> {
        let n = equations.y.nrows();
        let most = if context.device == Device::Cpu { BLOCKS.1 } else { ON_GPU };
        let blocks = blocks(n, rows_of_a_block(n, most));
        let mean = equations.operator.diagonal()?.mean().unwrap_or(1.0).max(f64::MIN_POSITIVE);
        let bound = (equations.alpha / mean).min(1.0 / blocks.len() as f64);
        let rng = Rng::new(context.seed).fork(0x736b_6574);
        Ok(Askotch { equations: *equations, blocks, bound, state: None, least: None, rng })
    }

    /// `(K_BB + αI)⁻¹ R` `[b, m]`
    fn projected(&self, block: &Part<'_>, r: &Panel) -> Result<Panel> {
        let mut k = self.equations.operator.block_panel(block, block, r.device())?;
        k.shift_diagonal(self.equations.alpha);
        Cholesky::of_panel(k)?.solve_panel(r)
    }
}

impl Epochs for Askotch<'_> {
    fn kind(&self) -> EpochSolver {
        EpochSolver::Askotch
    }

    fn epoch(&mut self, c: &mut Panel) -> Result<Vec<f64>> {
        let (mut v, mut z) = match self.state.take() {
            Some(state) => state,
            None => (c.try_clone()?, c.try_clone()?),
        };
        let ν = self.blocks.len() as f64;
        let β = 1.0 - (self.bound / ν).sqrt();
        let γ = 1.0 / (self.bound * ν).sqrt();
        let a = 1.0 / (1.0 + γ * ν);
        let all = |factor: f64| vec![factor; c.ncols()];
        let [β_all, rest, a_all, not_a] = [β, 1.0 - β, a, 1.0 - a].map(all);
        let mut seen = Array1::<f64>::zeros(c.ncols());
        let order = self.rng.sample(c.nrows(), c.nrows());
        let steps = self.blocks.len().min(STEPS);
        let rows_seen = self.blocks[..steps].iter().map(Range::len).sum::<usize>();
        for (number, block) in self.blocks[..steps].iter().enumerate() {
            // In the order of the points, which neighbouring rows of a tile have in common with its columns.
            let mut rows = order[block.clone()].to_vec();
            rows.sort_unstable();
            let block = Part::Rows(&rows);
            let r = self.equations.residual(&block, &z)?;
            seen += &r.dots(&r)?;
            let d = self.projected(&block, &r)?;
            v.scale(&β_all)?;
            v.axpy(&rest, &z)?;
            v.add_to_rows(&block, γ, &d)?;
            // W takes the place of Z.
            z.add_to_rows(&block, 1.0, &d)?;
            if number + 1 == steps {
                *c = z.try_clone()?;
            }
            z.scale(&not_a)?;
            z.axpy(&a_all, &v)?;
        }
        seen *= c.nrows() as f64 / rows_seen as f64;
        let total = seen.sum();
        if self.least.is_some_and(|least| total > DIVERGED * least) {
            (self.bound, self.least) = (0.25 * self.bound, None);
        } else {
            (self.state, self.least) = (Some((v, z)), Some(self.least.map_or(total, |least| least.min(total))));
        }
        Ok(seen.to_vec())
    }

    fn save(&self, bundle: &mut Bundle) -> Result<()> {
        bundle.set("rng", &self.rng);
        bundle.set("acceleration", (self.bound, self.least, self.state.is_some()));
        if let Some((v, z)) = &self.state {
            save_panel(bundle, "v", v)?;
            save_panel(bundle, "z", z)?;
        }
        Ok(())
    }

    fn load(&mut self, bundle: &Bundle, like: &Panel) -> Result<()> {
        let begun;
        self.rng = bundle.value("rng")?;
        (self.bound, self.least, begun) = bundle.value("acceleration")?;
        let saved = |name: &str| load_panel(bundle, name, like);
        self.state = if begun { Some((saved("v")?, saved("z")?)) } else { None };
        Ok(())
    }
}

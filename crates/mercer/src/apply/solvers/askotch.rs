use super::{EpochSolver, Epochs, Equations, blocks};
use crate::apply::reference::matrix;
use crate::compute::Device;
use crate::linalg::Cholesky;
use crate::model::Bundle;
use crate::operator::{block_product, cross_apply};
use crate::rng::Rng;
use crate::{FitContext, Result};
use ndarray::{Array1, Array2, Axis};
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
pub(in crate::apply) struct Askotch<'a> {
    equations: Equations<'a>,
    /// Of the rows in random order.
    blocks: Vec<Range<usize>>,
    /// μ
    bound: f64,
    /// V and Z `[n, m]`, from the first epoch on.
    state: Option<(Array2<f64>, Array2<f64>)>,
    /// The least sum of all squared residuals that an epoch saw.
    least: Option<f64>,
    rng: Rng,
    device: Device,
}

/// Rows of a block, at least and at most.
const BLOCKS: (usize, usize) = (64, 2048);

/// Times the least sum of squared residuals at which μ was too large.
const DIVERGED: f64 = 16.0;

/// Blocks that there should be.
const COUNT: usize = 50;

impl<'a> Askotch<'a> {
    pub fn new(equations: &Equations<'a>, context: &FitContext<'_>) -> Result<Self> {
        let n = equations.y.nrows();
        let blocks = blocks(n, n.div_ceil(COUNT).clamp(BLOCKS.0, BLOCKS.1));
        let mean = equations.operator.diagonal()?.mean().unwrap_or(1.0).max(f64::MIN_POSITIVE);
        let bound = (equations.alpha / mean).min(1.0 / blocks.len() as f64);
        let rng = Rng::new(context.seed).fork(0x736b_6574);
        let (state, least, device) = (None, None, context.device);
        Ok(Askotch { equations: *equations, blocks, bound, state, least, rng, device })
    }

    /// `(Y − (K + αI)Z)_B` `[b, m]`
    fn residual(&self, block: &[usize], z: &Array2<f64>) -> Result<Array2<f64>> {
        let Equations { operator, alpha, y } = self.equations;
        let product = match operator.kernel() {
            Some(kernel) => {
                let x = kernel.x().select(block);
                cross_apply(kernel.formula(), &x, kernel.x(), z.view(), kernel.precision(), self.device)?
            }
            None => block_product(operator, block, &(0..z.nrows()).collect::<Vec<_>>(), z.view())?,
        };
        Ok(y.select(Axis(0), block) - product - z.select(Axis(0), block) * alpha)
    }

    /// `(K_BB + αI)⁻¹ R` `[b, m]`
    fn projected(&self, block: &[usize], r: &Array2<f64>) -> Result<Array2<f64>> {
        let mut k = self.equations.operator.block(block, block)?;
        k.diag_mut().mapv_inplace(|k| k + self.equations.alpha);
        Cholesky::new(self.device, k.view())?.solve(r.view())
    }
}

/// Adds `factor·d` `[b, m]` to the rows of a block.
fn add(to: &mut Array2<f64>, block: &[usize], factor: f64, d: &Array2<f64>) {
    block.iter().zip(d.rows()).for_each(|(&i, d)| to.row_mut(i).scaled_add(factor, &d));
}

impl Epochs for Askotch<'_> {
    fn kind(&self) -> EpochSolver {
        EpochSolver::Askotch
    }

    fn epoch(&mut self, c: &mut Array2<f64>) -> Result<Vec<f64>> {
        let (mut v, mut z) = self.state.take().unwrap_or_else(|| (c.clone(), c.clone()));
        let ν = self.blocks.len() as f64;
        let β = 1.0 - (self.bound / ν).sqrt();
        let γ = 1.0 / (self.bound * ν).sqrt();
        let a = 1.0 / (1.0 + γ * ν);
        let mut seen = Array1::<f64>::zeros(c.ncols());
        let order = self.rng.sample(c.nrows(), c.nrows());
        for block in self.blocks.iter().map(|block| &order[block.clone()]) {
            let r = self.residual(block, &z)?;
            seen += &r.map_axis(Axis(0), |r| r.dot(&r));
            let d = self.projected(block, &r)?;
            v *= β;
            v.scaled_add(1.0 - β, &z);
            add(&mut v, block, γ, &d);
            // W takes the place of Z.
            add(&mut z, block, 1.0, &d);
            c.assign(&z);
            z *= 1.0 - a;
            z.scaled_add(a, &v);
        }
        let total = seen.sum();
        if self.least.is_some_and(|least| total > DIVERGED * least) {
            (self.bound, self.least) = (0.25 * self.bound, None);
        } else {
            (self.state, self.least) = (Some((v, z)), Some(self.least.map_or(total, |least| least.min(total))));
        }
        Ok(seen.to_vec())
    }

    fn save(&self, bundle: &mut Bundle) {
        bundle.set("rng", &self.rng);
        bundle.set("acceleration", (self.bound, self.least, self.state.is_some()));
        if let Some((v, z)) = &self.state {
            bundle.put("v", v.clone());
            bundle.put("z", z.clone());
        }
    }

    fn load(&mut self, bundle: &Bundle, shape: (usize, usize)) -> Result<()> {
        let begun;
        self.rng = bundle.value("rng")?;
        (self.bound, self.least, begun) = bundle.value("acceleration")?;
        self.state = if begun { Some((matrix(bundle, "v", shape)?, matrix(bundle, "z", shape)?)) } else { None };
        Ok(())
    }
}

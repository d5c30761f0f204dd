//! Operators on functions, as training sees them: points to draw, and the operator's action on functions there.

use super::{Functions, Pairs, Standardizer};
use crate::Result;
use crate::compute::{Control, Device, Math, Small, Tensor};
use crate::operator::{KernelOperator, Precision};
use crate::rng::Rng;
use ndarray::{Array2, ArrayView2};
use std::collections::HashSet;

/// A self-adjoint operator `K` on functions with c outputs.
///
/// The inner product is the average over points *and* outputs, `⟨f,g⟩ = (1/Bc) Σ_b Σ_o f_o(x_b) g_o(x_b)`, so that
/// c outputs are c times as many points. Training finds the largest eigenvalues of `K`; [`FunctionOperator::eigenvalue`]
/// turns them into those that were asked for. For a differential operator `H` bounded from below, take
/// `K = (shift − H)/scale`: `∇⟨ψ,Kψ⟩ = 2⟨∂ψ,Kψ⟩` holds for any self-adjoint `K`.
///
/// Operators on data are [`super::OnData`]; only operators that need functions elsewhere, or their derivatives, implement
/// this themselves. Example: [the module](super).
pub trait FunctionOperator: Sync {
    /// Columns d of a point.
    fn inputs(&self) -> usize;

    /// Outputs c of a function.
    fn outputs(&self) -> usize {
        1
    }

    /// What the networks see of a data point.
    fn standardizer(&self) -> Standardizer {
        Standardizer::identity(self.inputs())
    }

    /// What the operator is, in words that differ where the operator or its data differ; a checkpoint keeps it.
    fn identity(&self) -> String;

    /// Batches of `batch` points (or of all, where there are fewer) for training `functions` on their device, whose matrix
    /// products round their factors as `math` says.
    fn batches<'a>(&'a self, functions: &Functions, batch: usize, math: Math) -> Result<Box<dyn Batches + 'a>>;

    /// Draws `points` different points onto `device`, or all of them where there are fewer.
    fn sample(&self, device: Device, rng: &mut Rng, points: usize) -> Result<Sample>;

    /// `K(ΦW)` `[B·c, r]` on the sample in double precision, given the values `q = ΦW` and `W` `[p, r]` of combinations
    /// of the p functions.
    fn image(
        &self,
        sample: &Sample,
        q: ArrayView2<f64>,
        w: ArrayView2<f64>,
        functions: &mut Functions,
    ) -> Result<Array2<f64>>;

    /// The eigenvalue asked for that belongs to the eigenvalue μ of `K`.
    fn eigenvalue(&self, mu: f64) -> f64 {
        mu
    }

    /// Whether its image has no constant part, so that functions are sought among those of mean zero.
    fn without_constants(&self) -> bool {
        false
    }

    /// How far the top `k` `pairs` on a sample are from what is sought, a number that falls as training goes on: their mean residual.
    fn shortfall(&self, pairs: &Pairs, k: usize) -> f64 {
        pairs.mean_residual(k, self.roundoff())
    }

    /// A share that is shown beside it, such as the accuracy of neighbours where classes are known.
    fn watch(&self, _functions: &mut Functions, _pairs: &Pairs) -> Result<Option<f64>> {
        Ok(None)
    }

    /// Relative error of [`FunctionOperator::image`]: eigenvalues below it, times the largest, are numerically zero.
    fn roundoff(&self) -> f64 {
        Precision::F32.roundoff(Device::Cpu)
    }
}

/// Points on which functions are measured. Example: [the module](super).
pub struct Sample {
    /// `[B, d]`, as the networks see them (see [`Standardizer`]).
    pub x: Tensor,
    /// Which of the data's points they are, where there is data.
    pub rows: Vec<usize>,
    /// A kernel's operator on these points.
    pub(super) kernel: Option<KernelOperator<'static>>,
}

/// The points of a batch.
#[derive(Debug)]
pub struct Points {
    /// `[B, d]`, as the networks see them.
    pub x: Tensor,
    /// The functions' envelope there, `[B, 1]`, where it is known ahead.
    pub envelope: Option<Tensor>,
}

impl Points {
    /// No points yet, on the device of `functions`.
    pub fn empty(functions: &Functions) -> Result<Points> {
        let device = functions.device();
        Ok(Points { x: Tensor::zeros(device, &[0, functions.network().inputs()])?, envelope: None })
    }
}

/// Batches that are drawn ahead, and the operator's action on functions there. Everything but drawing happens on the device
/// of the functions.
pub trait Batches {
    /// Points B of a batch.
    fn size(&self) -> usize;

    /// Most batches that may be drawn ahead.
    fn most(&self) -> usize;

    /// Draws one more batch.
    fn draw(&mut self, rng: &mut Rng);

    /// Brings the batches that were drawn since the last call to the device.
    fn bring(&mut self) -> Result<()>;

    /// Takes up the batch of the step that `control` is at.
    fn begin(&mut self, control: &Control, points: &mut Points) -> Result<()>;

    /// `out ← Kψ` on the batch; `psi`, `out` `[k, B, c]` are values of `functions`.
    fn apply(
        &mut self,
        control: &Control,
        points: &Points,
        functions: &Functions,
        psi: &Tensor,
        out: &mut Tensor,
    ) -> Result<()>;

    /// `R_ij = ⟨ψ_i,Kψ_j⟩` `[k, k]` of the last [`Batches::apply`] without the bias of the batch: the batch average of a
    /// kernel counts pairs of a point with itself too often. `covariance` is `⟨ψ_i,ψ_j⟩`; `out` is room for the result.
    fn unbiased<'m>(
        &mut self,
        _psi: &Tensor,
        _covariance: &Small,
        r: &'m Small,
        _out: &'m mut Small,
    ) -> Result<&'m Small> {
        Ok(r)
    }

    /// How the products of networks round their factors where `math` is asked for.
    fn math(&self, math: Math) -> Math {
        math
    }

    /// Whether nothing passes through the host between [`Batches::begin`] and [`Batches::unbiased`], so that a step can be
    /// recorded.
    fn recordable(&self) -> bool {
        false
    }
}

/// `batch` different rows out of `0..n` in O(batch) (Floyd), in random order; all of them, shuffled, when there are no
/// more.
pub fn sample_rows(rng: &mut Rng, n: usize, batch: usize) -> Vec<usize> {
    if batch >= n {
        let mut rows: Vec<usize> = (0..n).collect();
        rng.shuffle(&mut rows);
        return rows;
    }
    let mut seen = HashSet::with_capacity(batch);
    let mut rows: Vec<usize> = (n - batch..n)
        .map(|last| {
            let row = rng.below(last + 1);
            let row = if seen.insert(row) { row } else { last };
            seen.insert(row);
            row
        })
        .collect();
    rng.shuffle(&mut rows);
    rows
}

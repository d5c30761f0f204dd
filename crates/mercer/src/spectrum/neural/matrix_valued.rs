//! Kernels whose values are matrices: functions with C outputs, from samples of them.

use super::action::coordinates;
use super::finish::within_span;
use super::{Action, Batch, DeviceAction, Functions, Layout, Pairs, Standard, Values, sample_rows};
use crate::compute::{Device, Store, Tensor, gemm};
use crate::linalg::matmul;
use crate::operator::{LowRankOperator, Operator, Precision};
use crate::rng::Rng;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, s};

/// The kernel `κ_oo'(x,x') = (1/S) Σ_s F_so(x) F_so'(x')` of S sampled functions with C outputs, over n points.
///
/// Eigenfunctions have C outputs too: `(Kψ)_o(x) = (1/nC) Σ_{n,o'} κ_oo'(x,x_n) ψ_o'(x_n)`, whose eigenvalues are those
/// of the `[nC, nC]` matrix over `nC`. That matrix is never formed: a batch takes the samples at its points alone.
///
/// The cheaper assumption `κ_oo'(x,x') = κ(x,x') δ_oo'` is the scalar operator `κ = (1/CS) Σ_c F_cᵀF_c`
/// ([`LowRankOperator::of_samples`] by output). Each of its eigenfunctions stands for C of the matrix-valued kernel, one in
/// each output, and `κ/n` has C times the eigenvalues that `(κ·I_C)/(nC)` has.
pub struct MatrixValued<'a> {
    /// The samples as an operator on `n·C` values, the outputs of a point side by side.
    f: &'a LowRankOperator,
    x: ArrayView2<'a, f64>,
    outputs: usize,
    standard: Standard,
    trace: f64,
    /// Of the samples and the points.
    checksum: u64,
}

impl<'a> MatrixValued<'a> {
    /// Of an operator of low rank whose points have coordinates.
    pub fn new(operator: &'a dyn Operator) -> Result<Self> {
        let (x, outputs) = (coordinates(operator)?, operator.outputs());
        let f = operator.low_rank().ok_or_else(|| {
            Error::input(format!(
                "networks with {outputs} outputs need samples of functions, and {} has none",
                operator.describe()
            ))
        })?;
        let diagonal = f.diagonal()?;
        let mixed = |hash: u64, v: &f64| (hash ^ v.to_bits()).wrapping_mul(0x0000_0100_0000_01b3);
        let checksum = diagonal.iter().chain(&x).fold(0xcbf2_9ce4_8422_2325, mixed);
        let trace = diagonal.mean().unwrap_or(0.0);
        let trace = if trace > 0.0 { trace } else { 1.0 };
        Ok(MatrixValued { f, x, outputs, standard: Standard::of(x), trace, checksum })
    }

    /// `F/√S` at the points `rows`: `[S, B·C]`.
    fn at(&self, rows: &[usize]) -> Array2<f64> {
        let c = self.outputs;
        let columns: Vec<usize> = rows.iter().flat_map(|i| i * c..(i + 1) * c).collect();
        self.f.columns(&columns)
    }

    /// `Fᵀ(FQ)/(BCτ)` for `Q` `[B·C, r]` at the points `rows`.
    fn act(&self, rows: &[usize], q: ArrayView2<f64>) -> Array2<f64> {
        let f = self.at(rows);
        matmul(f.t(), matmul(f.view(), q).view()) / (f.ncols() as f64 * self.trace)
    }

    /// Rayleigh–Ritz within `φ_p(x) e_o`: every hidden unit of a network in every output, `h·C` functions. The
    /// coefficients `A` `[h·C, k]` are in that order.
    pub fn ritz_of_units(&self, units: &mut Functions, batch: &Batch, k: usize) -> Result<Pairs> {
        if units.layout() != Layout::Units {
            return Err(Error::input("networks are functions with outputs of their own; give hidden units"));
        }
        units.calibrate(&batch.x)?;
        let (phi, c) = (units.columns(&batch.x)?, self.outputs);
        let mut spread = Array2::zeros((phi.nrows() * c, phi.ncols() * c));
        (0..c).for_each(|output| spread.slice_mut(s![output..;c, output..;c]).assign(&phi));
        within_span(spread.view(), k, |q, _| Ok(self.act(&batch.rows, q)))
    }
}

impl Action for MatrixValued<'_> {
    fn inputs(&self) -> usize {
        self.x.ncols()
    }

    fn outputs(&self) -> usize {
        self.outputs
    }

    fn standard(&self) -> Standard {
        self.standard.clone()
    }

    fn identity(&self) -> String {
        let (samples, n, hash) = (self.f.dim().0, self.x.nrows(), self.checksum);
        format!("{samples} functions of {} outputs at {n} points, checksum {hash:016x}", self.outputs)
    }

    fn sample(&mut self, device: Device, rng: &mut Rng, batch: usize) -> Result<Batch> {
        let rows = sample_rows(rng, self.x.nrows(), batch);
        Ok(Batch { x: self.standard.gather(device, self.x, rows.iter().copied())?, rows })
    }

    fn apply(&mut self, batch: &Batch, psi: &Tensor, _: &mut Functions, out: &mut Tensor) -> Result<()> {
        let f = self.at(&batch.rows);
        let (k, (samples, m)) = (psi.shape()[0], f.dim());
        let host: Vec<f32> = f.iter().map(|v| *v as f32).collect();
        let f = Tensor::from_host(psi.device(), &[samples, m], &host)?;
        let mut inner = Tensor::zeros(psi.device(), &[k, samples])?;
        gemm(1.0, psi.matrices(0, 0, k, m), f.stack().t(), Store::Replace, inner.stack_mut());
        out.reshape(psi.shape())?;
        let scale = (1.0 / (m as f64 * self.trace)) as f32;
        gemm(scale, inner.stack(), f.stack(), Store::Replace, out.matrices_mut(0, 0, 1, k, m));
        Ok(())
    }

    fn on_device(&self) -> Option<DeviceAction<'_>> {
        Some(DeviceAction::Average { values: Values::Samples(self.f), x: self.x, trace: self.trace })
    }

    fn unbiased(&mut self, batch: &Batch, psi: &Tensor, _: &Array2<f64>, r: &Array2<f64>) -> Result<Array2<f64>> {
        let (b, n, c) = (batch.rows.len(), self.x.nrows() as f64, self.outputs);
        if b < 2 {
            return Ok(r.clone());
        }
        // Pairs of a point with itself: D_ij = (1/(BC)²τ) Σ_b (F_bψ_i)·(F_bψ_j)
        let (f, psi) = (self.at(&batch.rows), super::action::wide(psi)?);
        let mut own = Array2::<f64>::zeros(r.dim());
        for point in 0..b {
            let outputs = point * c..(point + 1) * c;
            let inner = f.slice(s![.., outputs.clone()]).dot(&psi.slice(s![outputs, ..]));
            own += &inner.t().dot(&inner);
        }
        own /= ((b * c) as f64).powi(2) * self.trace;
        let b = b as f64;
        Ok((r - &own) * ((1.0 - 1.0 / n) * b / (b - 1.0)) + own * (b / n))
    }

    fn image(
        &mut self,
        batch: &Batch,
        q: ArrayView2<f64>,
        _: ArrayView2<f64>,
        _: &mut Functions,
    ) -> Result<Array2<f64>> {
        Ok(self.act(&batch.rows, q))
    }

    fn eigenvalue(&self, mu: f64) -> f64 {
        self.trace * mu
    }

    fn roundoff(&self) -> f64 {
        Precision::F64.roundoff(Device::Cpu)
    }
}

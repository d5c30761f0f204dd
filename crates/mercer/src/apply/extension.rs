use super::reference::fits;
use super::walk::{RandomWalk, SlowFunctions};
use crate::compute::Device;
use crate::kernel::Kernel;
use crate::model::Bundle;
use crate::operator::{Precision, cross_apply};
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, aview1, concatenate, s};

/// `ψ_j(x) = (1/λ_j) Σ_i p_i(x) ψ_ij`, `p_i(x) = κ(x,x_i) w_i / Σ κ(x,x_l) w_l`: one step of the walk from new points
/// `x` `[m, d]` (Nyström's extension). At a fitted point it gives back `ψ_ij`.
pub(super) struct Extension {
    /// `w = Q^{−a}1` `[n]`
    pub weights: Array1<f64>,
    pub eigenvalues: Vec<f64>,
    /// ψ `[n, k]`
    pub functions: Array2<f64>,
}

impl Extension {
    pub fn new(walk: &RandomWalk, slow: SlowFunctions) -> Extension {
        Extension { weights: walk.weights().clone(), eigenvalues: slow.eigenvalues, functions: slow.functions }
    }

    pub fn at(
        &self,
        kernel: &Kernel,
        points: ArrayView2<f64>,
        x: ArrayView2<f64>,
        precision: Precision,
        device: Device,
    ) -> Result<Array2<f64>> {
        let w = self.weights.view().insert_axis(Axis(1));
        let columns = &concatenate![Axis(1), self.functions, Array2::ones((points.nrows(), 1))] * &w;
        let sums = cross_apply(kernel, x, points, columns.view(), precision, device)?;
        let k = self.eigenvalues.len();
        let total = sums.column(k);
        if let Some(i) = total.iter().position(|t| !(*t > f64::MIN_POSITIVE && t.is_finite())) {
            return Err(Error::input(format!(
                "row {} (counted from 1) is so far from every fitted point that the kernel between them is zero; \
                 leave it out or use a larger lengthscale",
                i + 1
            )));
        }
        Ok(&sums.slice(s![.., ..k]) / &total.insert_axis(Axis(1)) / aview1(&self.eigenvalues))
    }

    pub(super) fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) {
        bundle.set("walk.eigenvalues", &self.eigenvalues);
        bundle.put("walk.weights", self.weights.view().insert_axis(Axis(0)));
        bundle.put("walk.functions", self.functions.view());
    }

    /// Reads the extension of a model of `n` points.
    pub(super) fn unpack(bundle: &Bundle, n: usize) -> Result<Extension> {
        let eigenvalues: Vec<f64> = bundle.value("walk.eigenvalues")?;
        let (weights, functions) = (bundle.matrix("walk.weights")?, bundle.matrix("walk.functions")?);
        fits("walk.weights", weights.dim(), (1, n))?;
        fits("walk.functions", functions.dim(), (n, eigenvalues.len()))?;
        let weights: Array1<f64> = weights.row(0).to_owned();
        Ok(Extension { weights, eigenvalues, functions })
    }
}

//! The features of all points for regression on landmarks, a block of rows at a time.

use crate::compute::Device;
use crate::linalg::{Cholesky, matmul};
use crate::operator::{cross_apply, gram_cross, ranges};
use crate::rng::Rng;
use crate::spectrum::NystromFeatures;
use crate::{FitContext, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use std::ops::Range;

/// Rows of κ(X,Z) that are in memory at once.
pub(super) const ROWS: usize = 1024;

/// `√w φ(x)` of all points, `φ(x) = κ(x,Z)N`. Products with N are taken on its own side of the sum, where they cost `M²` and not `n M²`; κ(X,Z) is
/// computed in every product, or stored where there is room for it.
pub(super) struct Design<'a> {
    pub map: &'a NystromFeatures,
    /// `[n, d]`
    pub x: ArrayView2<'a, f64>,
    /// w `[n]`
    pub weights: Array1<f64>,
    stored: Option<Vec<Array2<f64>>>,
    context: &'a FitContext<'a>,
}

impl<'a> Design<'a> {
    /// κ(X,Z) is stored where a third of the budget holds it beside `other` bytes; never for a GPU, which computes it faster than the host's
    /// memory would give it.
    pub fn new(
        map: &'a NystromFeatures,
        x: ArrayView2<'a, f64>,
        weights: Array1<f64>,
        context: &'a FitContext<'a>,
        other: u64,
    ) -> Result<Design<'a>> {
        let needed = 8 * x.nrows() as u64 * map.landmarks().nrows() as u64;
        let mut design = Design { map, x, weights, stored: None, context };
        if context.device == Device::Cpu && context.budget.allows(3 * needed + other) {
            let blocks = ranges(x.nrows(), ROWS);
            design.stored = Some(blocks.into_iter().map(|rows| design.computed(rows)).collect::<Result<_>>()?);
        }
        Ok(design)
    }

    fn computed(&self, rows: Range<usize>) -> Result<Array2<f64>> {
        gram_cross(self.map.kernel(), self.x.slice(s![rows, ..]), self.map.landmarks(), self.context.device)
    }

    /// Calls `f` with the rows of κ(X,Z) `[b, M]`, a block at a time.
    pub fn each_block(&self, mut f: impl FnMut(ArrayView2<f64>, Range<usize>)) -> Result<()> {
        for (i, rows) in ranges(self.x.nrows(), ROWS).into_iter().enumerate() {
            match &self.stored {
                Some(blocks) => f(blocks[i].view(), rows),
                None => f(self.computed(rows.clone())?.view(), rows),
            }
        }
        Ok(())
    }

    /// `κ(Z,X) diag(w) (κ(X,Z)U or Y)` `[M, m]`: of `U` `[M, m]`, or of `Y` `[n, m]`.
    fn weighted(&self, of: Side) -> Result<Array2<f64>> {
        let w = self.weights.view().insert_axis(Axis(1));
        if self.context.device != Device::Cpu {
            let FitContext { precision, device, .. } = *self.context;
            let (kernel, z) = (self.map.kernel(), self.map.landmarks());
            let y = match of {
                Side::Landmarks(u) => cross_apply(kernel, self.x, z, u, precision, device)? * w,
                Side::Points(y) => &y * &w,
            };
            return cross_apply(kernel, z, self.x, y.view(), precision, device);
        }
        let columns = match of {
            Side::Landmarks(u) => u.ncols(),
            Side::Points(y) => y.ncols(),
        };
        let mut sum = Array2::zeros((self.map.landmarks().nrows(), columns));
        self.each_block(|k, rows| {
            let w = w.slice(s![rows.clone(), ..]);
            let y = match of {
                Side::Landmarks(u) => matmul(k, u) * w,
                Side::Points(y) => &y.slice(s![rows, ..]) * &w,
            };
            sum += &matmul(k.t(), y.view());
        })?;
        Ok(sum)
    }

    /// `ΦᵀWΦ V` `[r, m]` for `V` `[r, m]`.
    pub fn normal(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        let n = self.map.normalisation();
        Ok(matmul(n.t(), self.weighted(Side::Landmarks(matmul(n, v).view()))?.view()))
    }

    /// `ΦᵀWY` `[r, m]` for `Y` `[n, m]`.
    pub fn transposed(&self, y: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(matmul(self.map.normalisation().t(), self.weighted(Side::Points(y))?.view()))
    }

    /// The factor of `(n/M) Σ w φφᵀ + αI` over M random rows.
    pub fn sampled(&self, alpha: f64) -> Result<Cholesky<f64>> {
        let (n, m) = (self.x.nrows(), self.map.landmarks().nrows());
        let rows = Rng::new(self.context.seed).fork(0x7072_6563).sample(n, m);
        let (r, share) = (self.map.dim(), n as f64 / m as f64);
        let mut sum = Array2::<f64>::zeros((r, r));
        for few in rows.chunks(ROWS) {
            let roots = self.weights.select(Axis(0), few).mapv(f64::sqrt);
            let phi = self.map.transform::<f64>(self.x.select(Axis(0), few).view())? * roots.insert_axis(Axis(1));
            sum += &(matmul(phi.t(), phi.view()) * share);
        }
        sum.diag_mut().mapv_inplace(|d| d + alpha);
        Cholesky::new(self.context.device, sum.view())
    }
}

/// What a product begins with.
#[derive(Clone, Copy)]
enum Side<'v> {
    /// `[M, m]`
    Landmarks(ArrayView2<'v, f64>),
    /// `[n, m]`
    Points(ArrayView2<'v, f64>),
}

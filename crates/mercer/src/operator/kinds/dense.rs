//! K in memory.

use crate::compute::Device;
use crate::linalg::matmul_into;
use crate::operator::{Operator, Real};
use crate::{Progress, Result};
use faer::{Accum, Par};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use rayon::prelude::*;
use std::ops::Range;

/// K in memory, in f32 or f64. Example: [`OnPoints`](crate::operator::OnPoints).
pub struct DenseOperator<T> {
    k: Array2<T>,
}

impl<T: Real> DenseOperator<T> {
    /// From a symmetric matrix `[n, n]`.
    pub fn new(k: Array2<T>) -> Self {
        assert!(k.is_square(), "an operator is square, got {:?}", k.dim());
        DenseOperator { k }
    }

    /// The matrix `[n, n]`.
    pub fn matrix(&self) -> ArrayView2<'_, T> {
        self.k.view()
    }
}

impl<T: Real> Operator for DenseOperator<T> {
    fn n(&self) -> usize {
        self.k.nrows()
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(products(self.k.view(), v))
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        Ok(Array2::from_shape_fn((rows.len(), columns.len()), |(a, b)| self.k[[rows[a], columns[b]]].wide()))
    }

    fn product(&self, rows: Range<usize>, columns: Range<usize>, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(products(self.k.slice(s![rows, columns]), v))
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        Ok(self.k.diag().iter().map(|d| d.wide()).collect())
    }

    fn roundoff(&self) -> f64 {
        T::PRECISION.roundoff(Device::Cpu)
    }

    fn to_dense(&self, _: &dyn Progress) -> Result<Array2<f64>> {
        Ok(self.k.mapv(|k| k.wide()))
    }

    fn is_stored(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("a stored matrix of {} rows", self.n())
    }
}

/// `K V` `[n, b]` of a part of K `[n, m]` with `V` `[m, b]`: row blocks on threads; within one, partial sums over column chunks are added in f64.
fn products<T: Real>(k: ArrayView2<T>, v: ArrayView2<f64>) -> Array2<f64> {
    const ROWS: usize = 256;
    const COLUMNS: usize = 2048;
    let rounded = v.mapv(T::of);
    let mut y = Array2::zeros((k.nrows(), v.ncols()));
    let blocks: Vec<_> = y.axis_chunks_iter_mut(Axis(0), ROWS).zip(k.axis_chunks_iter(Axis(0), ROWS)).collect();
    blocks.into_par_iter().for_each(|(mut y, k)| {
        let mut product = Array2::from_elem(y.dim(), T::default());
        for (k, v) in k.axis_chunks_iter(Axis(1), COLUMNS).zip(rounded.axis_chunks_iter(Axis(0), COLUMNS)) {
            matmul_into(product.view_mut(), Accum::Replace, k, v, T::one_impl(), Par::Seq);
            y.zip_mut_with(&product, |y, p| *y += p.wide());
        }
    });
    y
}

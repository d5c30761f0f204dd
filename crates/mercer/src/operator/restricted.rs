use super::{Operator, block_product};
use crate::Result;
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// An operator on some of its values, through blocks.
pub struct Restricted<'a> {
    inner: &'a dyn Operator,
    rows: &'a [usize],
}

impl<'a> Restricted<'a> {
    /// `K[rows, rows]`.
    pub fn new(inner: &'a dyn Operator, rows: &'a [usize]) -> Self {
        Restricted { inner, rows }
    }

    fn named(&self, places: &[usize]) -> Vec<usize> {
        places.iter().map(|&i| self.rows[i]).collect()
    }
}

impl Operator for Restricted<'_> {
    fn n(&self) -> usize {
        self.rows.len()
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        block_product(self.inner, self.rows, self.rows, v)
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        self.inner.block(&self.named(rows), &self.named(columns))
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        Ok(self.inner.diagonal()?.select(Axis(0), self.rows))
    }

    fn roundoff(&self) -> f64 {
        self.inner.roundoff()
    }
}

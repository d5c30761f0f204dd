use super::Operator;
use crate::Result;
use crate::linalg::matmul;
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

    /// Strips of rows, so that a large block is never whole in memory.
    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        const STRIP: usize = 1024;
        let mut out = Array2::zeros(v.dim());
        for (rows, mut out) in self.rows.chunks(STRIP).zip(out.axis_chunks_iter_mut(Axis(0), STRIP)) {
            out.assign(&matmul(self.inner.block(rows, self.rows)?.view(), v));
        }
        Ok(out)
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

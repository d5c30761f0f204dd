use super::{Operator, Precision};
use crate::linalg::matmul;
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// `K = FᵀF/S` from samples of functions, never formed: `F` `[S, n]` holds S functions at n points.
///
/// ```
/// use mercer::operator::{LowRankOperator, Operator};
/// let f = ndarray::array![[2.0, 2.0, 0.0], [0.0, 2.0, 4.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]];
/// let k = LowRankOperator::new(f)?;
/// assert_eq!(k.block(&[0, 1], &[1, 2]), ndarray::array![[1.0, 0.0], [2.0, 2.0]]);
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct LowRankOperator {
    /// `F/√S`, `[S, n]`
    f: Array2<f64>,
}

impl LowRankOperator {
    /// From function samples `[S, n]`.
    pub fn new(f: Array2<f64>) -> Result<Self> {
        if f.is_empty() {
            return Err(Error::input(format!("function samples must not be empty, got {} × {}", f.nrows(), f.ncols())));
        }
        if let Some(((s, n), value)) = f.indexed_iter().find(|(_, v)| !v.is_finite()) {
            return Err(Error::input(format!("function samples must be finite: sample {s} at point {n} is {value}")));
        }
        let scale = 1.0 / (f.nrows() as f64).sqrt();
        Ok(LowRankOperator { f: f * scale })
    }

    /// `F/√S` `[S, n]`
    pub fn factor(&self) -> ArrayView2<'_, f64> {
        self.f.view()
    }
}

impl Operator for LowRankOperator {
    fn n(&self) -> usize {
        self.f.ncols()
    }

    fn apply(&self, v: ArrayView2<f64>) -> Array2<f64> {
        matmul(self.f.t(), matmul(self.f.view(), v).view())
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Array2<f64> {
        matmul(self.f.select(Axis(1), rows).t(), self.f.select(Axis(1), columns).view())
    }

    fn diagonal(&self) -> Array1<f64> {
        self.f.map_axis(Axis(0), |column| column.dot(&column))
    }

    fn roundoff(&self) -> f64 {
        Precision::F64.roundoff()
    }
}

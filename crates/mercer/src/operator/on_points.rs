use super::{Extension, KernelOperator, LowRankOperator, Operator, Points};
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2};
use std::ops::Range;

/// An operator whose points have coordinates: function samples or a stored matrix, on which networks can be trained.
///
/// ```
/// use mercer::operator::{DenseOperator, OnPoints, Operator};
/// let k = DenseOperator::new(ndarray::array![[2.0, 1.0], [1.0, 2.0]]);
/// let x = ndarray::array![[0.0], [1.0]];
/// assert_eq!(OnPoints::new(&k, x.view())?.points().unwrap().dim(), (2, 1));
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct OnPoints<'a> {
    inner: &'a dyn Operator,
    x: ArrayView2<'a, f64>,
}

impl<'a> OnPoints<'a> {
    /// `inner` on the points `x` `[points, d]`.
    pub fn new(inner: &'a dyn Operator, x: ArrayView2<'a, f64>) -> Result<Self> {
        let (n, c) = (inner.n(), inner.outputs());
        match n == x.nrows() * c {
            true => Ok(OnPoints { inner, x }),
            false => Err(Error::input(format!("an operator on {} points was given {} points", n / c, x.nrows()))),
        }
    }
}

impl Operator for OnPoints<'_> {
    fn n(&self) -> usize {
        self.inner.n()
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.inner.apply(v)
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        self.inner.block(rows, columns)
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        self.inner.diagonal()
    }

    fn roundoff(&self) -> f64 {
        self.inner.roundoff()
    }

    fn product(&self, rows: Range<usize>, columns: Range<usize>, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.inner.product(rows, columns, v)
    }

    fn to_dense(&self) -> Result<Array2<f64>> {
        self.inner.to_dense()
    }

    fn outputs(&self) -> usize {
        self.inner.outputs()
    }

    fn points(&self) -> Option<ArrayView2<'_, f64>> {
        Some(self.x)
    }

    fn kernel(&self) -> Option<&KernelOperator<'_>> {
        self.inner.kernel()
    }

    fn low_rank(&self) -> Option<&LowRankOperator> {
        self.inner.low_rank()
    }

    fn is_stored(&self) -> bool {
        self.inner.is_stored()
    }

    fn extend(&self, rows: Option<&[usize]>, a: Array2<f64>) -> Result<Extension> {
        self.inner.extend(rows, a)
    }

    fn at<'p>(&'p self, points: Points<'p>) -> Result<Box<dyn Operator + 'p>> {
        self.inner.at(points)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

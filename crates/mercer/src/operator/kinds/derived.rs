//! Operators made of another one.

use crate::compute::Device;
use crate::data::Rows;
use crate::linalg::{Panel, Part, Sharding};
use crate::operator::{Extension, KernelOperator, LowRankOperator, Operator, Points, block_product};
use crate::{Error, Progress, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use std::ops::Range;

/// Methods that are those of `self.inner`.
macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> $output {
            self.inner.$name($($argument),*)
        }
    )*};
}
pub(crate) use forward;

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
    x: Rows<'a>,
}

impl<'a> OnPoints<'a> {
    /// `inner` on the points `x` `[points, d]`.
    pub fn new(inner: &'a dyn Operator, x: impl Into<Rows<'a>>) -> Result<Self> {
        let (x, n, c) = (x.into(), inner.n(), inner.outputs());
        match n == x.n() * c {
            true => Ok(OnPoints { inner, x }),
            false => Err(Error::input(format!("an operator on {} points was given {} points", n / c, x.n()))),
        }
    }
}

impl Operator for OnPoints<'_> {
    forward! {
        n() -> usize;
        apply(v: ArrayView2<f64>) -> Result<Array2<f64>>;
        block(rows: &[usize], columns: &[usize]) -> Result<Array2<f64>>;
        diagonal() -> Result<Array1<f64>>;
        roundoff() -> f64;
        product(rows: Range<usize>, columns: Range<usize>, v: ArrayView2<f64>) -> Result<Array2<f64>>;
        apply_panel(v: &Panel) -> Result<Panel>;
        product_panel(rows: &Part<'_>, columns: &Part<'_>, v: &Panel) -> Result<Panel>;
        block_panel(rows: &Part<'_>, columns: &Part<'_>, device: Device) -> Result<Panel>;
        to_dense(progress: &dyn Progress) -> Result<Array2<f64>>;
        outputs() -> usize;
        kernel() -> Option<&KernelOperator<'_>>;
        low_rank() -> Option<&LowRankOperator>;
        is_stored() -> bool;
        extend(rows: Option<&[usize]>, a: Array2<f64>) -> Result<Extension>;
        describe() -> String;
    }

    fn points(&self) -> Option<Rows<'_>> {
        Some(self.x)
    }

    fn at<'p>(&'p self, points: Points<'p>) -> Result<Box<dyn Operator + 'p>> {
        self.inner.at(points)
    }
}

/// An operator on some of its values, through blocks.
pub(crate) struct Restricted<'a> {
    pub inner: &'a dyn Operator,
    pub rows: &'a [usize],
}

impl Restricted<'_> {
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

/// `S K S` with `S = diag(s)`.
pub(crate) struct Scaled<'a> {
    pub inner: Box<dyn Operator + 'a>,
    /// s `[n]`
    pub scale: Array1<f64>,
}

impl Scaled<'_> {
    /// s `[rows, 1]` for some rows of vectors like `v`.
    fn factors(&self, rows: &Part<'_>, v: &Panel) -> Result<Panel> {
        let scale = self.scale.view().insert_axis(Axis(1));
        match rows.is_all(self.n()) {
            true => Panel::sharded(v.device(), v.sharding(), v.sharding().own(scale).to_owned()),
            false => Panel::from_host(v.device(), scale.select(Axis(0), &rows.list(self.n()))),
        }
    }
}

impl Operator for Scaled<'_> {
    forward! {
        n() -> usize;
        roundoff() -> f64;
        sharding() -> Sharding;
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        let scale = self.scale.view().insert_axis(Axis(1));
        Ok(self.inner.apply((&v * &scale).view())? * scale)
    }

    fn product(&self, rows: Range<usize>, columns: Range<usize>, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        let scale = |range: Range<usize>| self.scale.slice(s![range]).insert_axis(Axis(1));
        let scaled = &v * &scale(columns.clone());
        Ok(self.inner.product(rows.clone(), columns, scaled.view())? * scale(rows))
    }

    fn apply_panel(&self, v: &Panel) -> Result<Panel> {
        self.product_panel(&Part::All, &Part::All, v)
    }

    fn product_panel(&self, rows: &Part<'_>, columns: &Part<'_>, v: &Panel) -> Result<Panel> {
        let mut scaled = v.try_clone()?;
        scaled.scale_rows(&self.factors(columns, v)?);
        let mut y = self.inner.product_panel(rows, columns, &scaled)?;
        y.scale_rows(&self.factors(rows, &y)?);
        Ok(y)
    }

    fn block_panel(&self, rows: &Part<'_>, columns: &Part<'_>, device: Device) -> Result<Panel> {
        let n = self.n();
        let scale: Vec<f64> = columns.list(n).iter().map(|&j| self.scale[j]).collect();
        let mut block = self.inner.block_panel(rows, columns, device)?;
        block.scale(&scale)?;
        block.scale_rows(&self.factors(rows, &block)?);
        Ok(block)
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        let mut block = self.inner.block(rows, columns)?;
        block.indexed_iter_mut().for_each(|((a, b), k)| *k *= self.scale[rows[a]] * self.scale[columns[b]]);
        Ok(block)
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        Ok(self.inner.diagonal()? * &self.scale * &self.scale)
    }
}

/// `H K H` with `H = I − 11ᵀ/n`: the kernel of the features with their mean taken off.
/// Example: [`RandomWalk`](crate::operator::RandomWalk).
pub struct Centred<'a> {
    inner: &'a dyn Operator,
    /// Row means of K, `[n]`.
    row_means: Array1<f64>,
    mean: f64,
}

impl<'a> Centred<'a> {
    /// Centres `inner`; takes one product with it.
    pub fn new(inner: &'a dyn Operator) -> Result<Self> {
        let n = inner.n();
        let row_means = inner.apply(Array2::from_elem((n, 1), 1.0 / n as f64).view())?.remove_axis(Axis(1));
        let mean = row_means.mean().unwrap_or(0.0);
        Ok(Centred { inner, row_means, mean })
    }

    /// Row means of K `[n]`, and the mean of all of K: what centring a new point's kernel row needs.
    pub fn means(&self) -> (&Array1<f64>, f64) {
        (&self.row_means, self.mean)
    }
}

impl Operator for Centred<'_> {
    forward! {
        n() -> usize;
        roundoff() -> f64;
        outputs() -> usize;
        points() -> Option<Rows<'_>>;
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(centred_columns(self.inner.apply(centred_columns(v.to_owned()).view())?))
    }

    fn apply_panel(&self, v: &Panel) -> Result<Panel> {
        let mut v = v.try_clone()?;
        v.centre()?;
        let mut y = self.inner.apply_panel(&v)?;
        y.centre()?;
        Ok(y)
    }

    /// `(HKH)_ij = K_ij − m_i − m_j + m`
    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        let mut block = self.inner.block(rows, columns)?;
        for ((a, b), k) in block.indexed_iter_mut() {
            *k += self.mean - self.row_means[rows[a]] - self.row_means[columns[b]];
        }
        Ok(block)
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        Ok(self.inner.diagonal()? - 2.0 * &self.row_means + self.mean)
    }

    fn describe(&self) -> String {
        format!("centred {}", self.inner.describe())
    }
}

fn centred_columns(mut v: Array2<f64>) -> Array2<f64> {
    if let Some(means) = v.mean_axis(Axis(0)) {
        v -= &means;
    }
    v
}

use super::Operator;
use crate::Result;
use crate::linalg::Panel;
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// `H K H` with `H = I − 11ᵀ/n`: the kernel of the features with their mean taken off.
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
    fn n(&self) -> usize {
        self.inner.n()
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

    fn roundoff(&self) -> f64 {
        self.inner.roundoff()
    }

    fn outputs(&self) -> usize {
        self.inner.outputs()
    }

    fn points(&self) -> Option<ArrayView2<'_, f64>> {
        self.inner.points()
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

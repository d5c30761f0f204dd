//! Metrics `(x−x')ᵀM(x−x')` that are learnt from the gradients of a prediction, and what they say of the columns.

use crate::Result;
use crate::compute::Device;
use crate::linalg::{eigh, matmul};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};
use serde::{Deserialize, Serialize};

/// Directions that are reported.
const DIRECTIONS: usize = 3;

/// Which matrices M a learnt metric may have. Example: [`RecursiveFeatureMachine`](crate::apply::RecursiveFeatureMachine).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricForm {
    /// A weight for each column.
    Diagonal,
    /// Any: a weight for each direction.
    Full,
}

impl MetricForm {
    /// The shape of `M^{1/2}` as it is stored, for points of d columns.
    pub(crate) fn shape(self, d: usize) -> (usize, usize) {
        match self {
            MetricForm::Diagonal => (1, d),
            MetricForm::Full => (d, d),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            MetricForm::Diagonal => "diagonal",
            MetricForm::Full => "full",
        }
    }
}

/// A metric M: the distance of x and x' under it is that of `M^{1/2}x` and `M^{1/2}x'`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metric {
    pub form: MetricForm,
    /// `M^{1/2}` `[d, d]`, or its diagonal `[1, d]`.
    pub root: Array2<f64>,
}

impl Metric {
    /// M = I
    pub fn identity(d: usize) -> Metric {
        Metric { form: MetricForm::Diagonal, root: Array2::ones((1, d)) }
    }

    /// M proportional to the mean outer product `g` `[d, d]` of gradients, or to its diagonal, with the trace of I. I where every gradient
    /// is zero.
    pub fn of_gradients(g: ArrayView2<f64>, form: MetricForm, device: Device) -> Result<Metric> {
        let (d, trace) = (g.nrows(), g.diag().sum());
        if !(trace > 0.0 && trace.is_finite()) {
            return Ok(Metric::identity(d));
        }
        let scale = d as f64 / trace;
        let root = match form {
            MetricForm::Diagonal => g.diag().mapv(|g| (scale * g).max(0.0).sqrt()).insert_axis(Axis(0)),
            MetricForm::Full => {
                let (λ, u) = eigh(device, g)?;
                let roots: Array1<f64> = λ.iter().map(|λ| (scale * λ).max(0.0).sqrt()).collect();
                matmul((&u * &roots).view(), u.t())
            }
        };
        Ok(Metric { form, root })
    }

    /// Points `[n, d]` as the metric sees them: `M^{1/2}x`.
    pub fn map(&self, x: ArrayView2<f64>) -> Array2<f64> {
        match self.form {
            MetricForm::Diagonal => &x * &self.root,
            MetricForm::Full => matmul(x, self.root.view()),
        }
    }

    /// The mean outer product `[d, d]` of gradients by x, from that of gradients by `M^{1/2}x`: `M^{1/2} g M^{1/2}`.
    pub fn pull_back(&self, g: ArrayView2<f64>) -> Array2<f64> {
        match self.form {
            MetricForm::Diagonal => &g * &self.root * self.root.t(),
            MetricForm::Full => matmul(matmul(self.root.view(), g).view(), self.root.view()),
        }
    }
}

/// How much each column changes a prediction f, by the mean outer product of its gradients, `E[∇f ∇fᵀ]`.
/// Example: [`RecursiveFeatureMachine`](crate::apply::RecursiveFeatureMachine).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Importances {
    /// The share of each column in the mean squared gradient `[d]`; together one.
    pub columns: Vec<f64>,
    /// How far the shares of two machines, each fitted to its half of the rows, are from their mean `[d]`.
    pub spread: Option<Vec<f64>>,
    /// The directions along which the prediction changes the most.
    pub directions: Vec<Direction>,
    /// The cosine between the matrices of the two halves: 1 where they are proportional.
    pub agreement: Option<f64>,
}

/// An eigenvector of `E[∇f ∇fᵀ]`. Example: [`RecursiveFeatureMachine`](crate::apply::RecursiveFeatureMachine).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Its share in the mean squared gradient.
    pub share: f64,
    /// The unit vector `[d]`, its largest entry positive.
    pub vector: Vec<f64>,
    /// The smaller cosine with the same direction of each half of the rows.
    pub agreement: Option<f64>,
}

impl Importances {
    /// Of the mean outer product `[d, d]` of a machine's gradients, and those of machines fitted to two halves of the rows.
    pub(crate) fn new(g: ArrayView2<f64>, halves: Option<[Array2<f64>; 2]>, device: Device) -> Result<Importances> {
        let (shares, u) = (shares(g), leading(g, device)?);
        let trace = g.diag().sum().max(f64::MIN_POSITIVE);
        let of_halves =
            halves.as_ref().map(|[a, b]| -> Result<_> { Ok([leading(a.view(), device)?, leading(b.view(), device)?]) });
        let of_halves = of_halves.transpose()?;
        let direction = |(j, (λ, u)): (usize, (f64, Array1<f64>))| {
            let cosine = |half: &Vec<(f64, Array1<f64>)>| u.dot(&half[j].1).abs();
            let agreement = of_halves.as_ref().map(|[a, b]| cosine(a).min(cosine(b)));
            Direction { share: λ.max(0.0) / trace, vector: u.to_vec(), agreement }
        };
        let directions = u.into_iter().enumerate().map(direction).collect();
        let spread = halves.as_ref().map(|[a, b]| {
            let (a, b) = (self::shares(a.view()), self::shares(b.view()));
            a.iter().zip(b).map(|(a, b)| 0.5 * (a - b).abs()).collect()
        });
        let agreement = halves.as_ref().map(|[a, b]| cosine(a.view(), b.view()));
        Ok(Importances { columns: shares, spread, directions, agreement })
    }
}

/// The diagonal of `g` `[d, d]` over its trace; zeros where all of it is.
fn shares(g: ArrayView2<f64>) -> Vec<f64> {
    let trace = g.diag().sum().max(f64::MIN_POSITIVE);
    g.diag().iter().map(|g| g.max(0.0) / trace).collect()
}

/// The leading eigenpairs of `g` `[d, d]`.
fn leading(g: ArrayView2<f64>, device: Device) -> Result<Vec<(f64, Array1<f64>)>> {
    let (λ, mut u) = eigh(device, g)?;
    crate::apply::embedding::eigen_solver::fix_signs(&mut u);
    Ok(λ.into_iter().zip(u.columns().into_iter().map(|u| u.to_owned())).take(DIRECTIONS).collect())
}

/// `⟨a, b⟩/(‖a‖‖b‖)` of two matrices `[d, d]`; zero where one is zero.
fn cosine(a: ArrayView2<f64>, b: ArrayView2<f64>) -> f64 {
    let flat = |m: ArrayView2<f64>| -> Array1<f64> { m.iter().copied().collect() };
    let (a, b) = (flat(a), flat(b));
    let norm = |v: ArrayView1<f64>| v.dot(&v).sqrt();
    let norms = norm(a.view()) * norm(b.view());
    if norms > 0.0 { a.dot(&b) / norms } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn a_metric_is_the_square_of_its_root_and_has_the_trace_of_the_identity() {
        let g = array![[4.0, 2.0], [2.0, 2.0]];
        let metric = Metric::of_gradients(g.view(), MetricForm::Full, Device::Cpu).unwrap();
        let square = metric.root.dot(&metric.root);
        assert!((&square - &(&g / 3.0)).mapv(f64::abs).sum() < 1e-14);
        let (x, y) = (array![[1.0, -2.0]], array![[0.5, 1.0]]);
        let mapped = metric.map(x.view()) - metric.map(y.view());
        let difference = &x - &y;
        let distance = difference.dot(&square).dot(&difference.t())[[0, 0]];
        assert!((mapped.dot(&mapped.t())[[0, 0]] - distance).abs() < 1e-14);
        let diagonal = Metric::of_gradients(g.view(), MetricForm::Diagonal, Device::Cpu).unwrap();
        assert!((diagonal.root[[0, 0]].powi(2) - 4.0 / 3.0).abs() < 1e-15);
        // The gradient of f(M^{1/2}x) is M^{1/2}∇f.
        let v = array![[0.3], [-0.7]];
        for metric in [metric, diagonal] {
            let v_of_x = metric.map(v.t());
            let want = v_of_x.t().dot(&v_of_x);
            assert!((metric.pull_back(v.dot(&v.t()).view()) - want).mapv(f64::abs).sum() < 1e-15);
        }
        let flat = Metric::of_gradients(Array2::zeros((2, 2)).view(), MetricForm::Full, Device::Cpu).unwrap();
        assert_eq!(flat, Metric::identity(2));
    }

    #[test]
    fn importances_are_shares_and_compare_halves() {
        let g = array![[3.0, 0.0], [0.0, 1.0]];
        let halves = [array![[1.0, 0.0], [0.0, 1.0]], array![[1.0, 0.0], [0.0, 0.0]]];
        let found = Importances::new(g.view(), Some(halves), Device::Cpu).unwrap();
        assert_eq!((found.columns, found.spread), (vec![0.75, 0.25], Some(vec![0.25, 0.25])));
        assert_eq!((found.directions[0].share, &found.directions[0].vector[..]), (0.75, &[1.0, 0.0][..]));
        assert!((found.agreement.unwrap() - 0.5f64.sqrt()).abs() < 1e-15);
        let alone = Importances::new(g.view(), None, Device::Cpu).unwrap();
        assert!(alone.agreement.is_none() && alone.spread.is_none());
    }
}

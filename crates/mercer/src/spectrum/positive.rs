//! Positive random features.

use super::covariance;
use super::random_features::{FEATURES, SAMPLING};
use super::random_features::{Form, RandomFeatures, require};
use super::{Method, Problem, Sampling, Size, Solution};
use crate::compute::Device;
use crate::data::Rows;
use crate::kernel::{Base, Kernel};
use crate::linalg::matmul;
use crate::operator::{Precision, gram};
use crate::options::{Entry, Opt};
use crate::rng::Rng;
use crate::{Error, Result, fail_if};
use ndarray::Array2;

static EXACT_NORM: Opt = Opt::flag(
    "exact-norm",
    "scale the features of each point to the norm that the kernel gives it, which is less noise but a bias of some percent",
);

/// Positive random features: the eigenpairs of `exp(x·x'/s)` within the span of random exponentials.
///
/// As they are drawn, the features are unbiased: `E[φ(x)·φ(x')] = κ(x,x')`. Their norm is a mean of log-normal numbers that a few large ones
/// dominate: it is mostly too small, sometimes several times too large, and the eigenvalues with it. With `exact_norm`, every feature
/// vector is brought to the norm `‖φ(x)‖² = κ(x,x)`: the trace is exact, and residuals are two to ten times smaller where the norms vary much,
/// but products of different points, and with them eigenvalues, are too large by some percent. A note of the fit has the error of
/// both kernels on some of the points.
///
/// The kernel must be `expdot(scale)`, or a multiple of it.
///
/// ```
/// use mercer::{FitContext, kernel::Kernel, spectrum::{Positive, Problem, Sampling, Spectrum}};
/// let x = ndarray::Array2::from_shape_fn((300, 1), |(i, _)| i as f64 / 75.0 - 2.0);
/// let operator = FitContext::default().kernel_operator(&Kernel::parse("expdot(2)")?, x.view())?;
/// let method = Positive { features: 500, sampling: Sampling::QuasiMonteCarlo, exact_norm: true };
/// let spectrum = Spectrum::fit(&method, &Problem::new(&operator, 3), None)?;
/// assert!(spectrum.certificate.trace_captured < 1.0 && spectrum.certificate.trace_captured > 0.98);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Positive {
    /// How many features.
    pub features: usize,
    /// How their directions are drawn.
    pub sampling: Sampling,
    /// Whether feature vectors are scaled to the norm `‖φ(x)‖² = κ(x,x)`.
    pub exact_norm: bool,
}

impl Positive {
    /// 1000 features, or twice as many as pairs where that is more, of orthogonal directions, as they are drawn.
    pub fn usual(k: usize) -> Positive {
        Positive { features: (2 * k).max(1000), sampling: Sampling::default(), exact_norm: false }
    }

    pub(crate) fn entry() -> Entry<Size> {
        Entry::<Size>::new(
            "positive",
            "approximate, from positive random features; for the kernel expdot",
            vec![&FEATURES, &SAMPLING, &EXACT_NORM],
            |o, size| {
                let usual = Positive::usual(size.k);
                let features = o.take(&FEATURES)?.unwrap_or(usual.features);
                let sampling = o.take_word(&SAMPLING, &Sampling::NAMED)?.unwrap_or(usual.sampling);
                Ok(Box::new(Positive { features, sampling, exact_norm: o.flag(&EXACT_NORM)? }))
            },
        )
    }
}

impl Method for Positive {
    fn name(&self) -> String {
        "positive".into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let kernel = problem.kernel("positive random features")?;
        let (x, d) = (kernel.x(), kernel.x().d());
        let (count, sampling) = (self.features, self.sampling);
        require(problem, count, d, covariance::memory(count, problem.context.precision.bytes()))?;
        let features = RandomFeatures::positive(kernel.formula(), d, count, sampling, problem.context.seed)?;
        let mut features = features.enough(problem.k)?;
        let some = x.select(&Rng::new(problem.context.seed).fork(0x6572_726f).sample(x.n(), SAMPLE));
        let [scaled, drawn] = [true, false].map(|exact| {
            features.set_exact_norm(exact);
            features.kernel_error(kernel.formula(), some.rows())
        });
        let note = format!(
            "the features' kernel is off by {:.2} % as they are drawn, and by {:.2} % with the exact norm (root mean square over {} points, of that of \
             the kernel); {} was taken",
            100.0 * drawn?,
            100.0 * scaled?,
            some.n(),
            if self.exact_norm { "the exact norm" } else { "the first, without bias," },
        );
        features.set_exact_norm(self.exact_norm);
        features.precision = problem.context.precision;
        Ok(Solution { notes: vec![note], ..features.solution(problem, x)? })
    }
}

/// Points on which the features' kernel is compared with κ.
const SAMPLE: usize = 500;

impl RandomFeatures {
    /// With the norm `‖φ(x)‖² = κ(x,x)`, or as they are drawn; waves have it anyway.
    fn set_exact_norm(&mut self, exact: bool) {
        if let Form::Exponentials { exact_norm, .. } = &mut self.form {
            *exact_norm = exact;
        }
    }

    /// `‖φ(X)φ(X)ᵀ − κ(X,X)‖/‖κ(X,X)‖` in the Frobenius norm at points `[n, d]`.
    fn kernel_error(&self, kernel: &Kernel, x: Rows<'_>) -> Result<f64> {
        let (phi, exact) = (self.at::<f64>(x), gram::<f64>(kernel, x, Device::Cpu)?);
        let square = |a: &Array2<f64>| a.iter().map(|v| v * v).sum::<f64>();
        Ok((square(&(matmul(phi.view(), phi.t()) - &exact)) / square(&exact)).sqrt())
    }

    /// `φ_i(x) = exp(ω_i·x/√s − ‖x‖²/2s)/√m` with `ω_i ~ N(0, I)`: positive, and `E[φ(x)·φ(x')] = exp(x·x'/s)` (the features
    /// of the Performer), so that attention with positive weights takes time linear in the length of the sequence.
    ///
    /// ```
    /// use mercer::{kernel::Kernel, spectrum::{RandomFeatures, Sampling}};
    /// let map = RandomFeatures::positive(&Kernel::parse("expdot(2)")?, 2, 20_000, Sampling::Orthogonal, 0)?;
    /// let x = ndarray::array![[0.3, 0.4], [0.5, -1.0]];
    /// let phi = map.transform::<f64>(x.view())?;
    /// assert!((phi.row(0).dot(&phi.row(1)) - (-0.125f64).exp()).abs() < 0.03);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    ///
    /// The kernel must be `expdot(s)`, or a multiple of it, on `R^d`.
    pub fn positive(kernel: &Kernel, d: usize, features: usize, sampling: Sampling, seed: u64) -> Result<Self> {
        let (c, s) = multiple_of_expdot(kernel).ok_or_else(|| {
            Error::input(format!(
                "positive random features are those of expdot(scale) with one lengthscale for all columns, not of {kernel}; use {nystrom}", nystrom = crate::advice!(Nystrom)))
        })?;
        fail_if!(
            features == 0 || d == 0,
            "there must be at least one random feature of one column, got {features} of {d}"
        );
        let mut rng = Rng::new(seed).fork(0x706f_7369);
        Ok(RandomFeatures {
            form: Form::Exponentials { damping: 0.5 / s, exact_norm: false },
            amplitude: (c / features as f64).sqrt(),
            directions: sampling.normals(features, d, 0, &mut rng) / s.sqrt(),
            precision: Precision::F64,
        })
    }
}

/// c and s of `c·exp(x·x'/s)`.
fn multiple_of_expdot(kernel: &Kernel) -> Option<(f64, f64)> {
    match kernel {
        Kernel::Base(Base::ExpDot(formula)) if formula.columns.is_none() => {
            Some((1.0, formula.scale * formula.lengthscale.powi(2)))
        }
        Kernel::Scale(c, inner) => multiple_of_expdot(inner).map(|(c_inner, s)| (c * c_inner, s)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Features;
    use ndarray::ArrayView2;

    #[test]
    fn features_follow_their_formula() {
        let map = RandomFeatures::positive(&Kernel::parse("3*expdot(2)").unwrap(), 2, 5, Sampling::Plain, 1).unwrap();
        let x = [0.7, -1.1];
        let phi = map.eval(ArrayView2::from(&[x]).into()).unwrap();
        for (value, direction) in phi.row(0).iter().zip(map.directions.rows()) {
            let angle = direction[0] * x[0] + direction[1] * x[1];
            let want = (angle - (x[0] * x[0] + x[1] * x[1]) / 4.0).exp() * (3.0f64 / 5.0).sqrt();
            assert!((value / want - 1.0).abs() < 1e-13);
        }
    }

    /// `‖φ(x)‖² = κ(x,x)`, and the directions of the vectors are those of the features as they are drawn.
    #[test]
    fn the_exact_norm_changes_the_length_of_feature_vectors_alone() {
        let kernel = Kernel::parse("3*expdot(2)").unwrap();
        let mut map = RandomFeatures::positive(&kernel, 2, 64, Sampling::Plain, 1).unwrap();
        let x = ndarray::array![[0.7, -1.1], [0.0, 0.0], [20.0, -25.0]];
        let drawn = map.eval(x.view().into()).unwrap();
        map.form = Form::Exponentials { damping: 0.25, exact_norm: true };
        let exact = map.eval(x.view().into()).unwrap();
        for (i, row) in exact.rows().into_iter().enumerate() {
            let (point, norm) = (x.row(i).to_vec(), row.dot(&row).sqrt());
            assert!((norm * norm / kernel.value(&point, &point) - 1.0).abs() < 1e-12);
            let other = drawn.row(i);
            let cosine = row.dot(&other) / (norm * other.dot(&other).sqrt());
            assert!((cosine - 1.0).abs() < 1e-12, "{cosine}");
        }
        assert!(map.transform::<f32>(x.slice(ndarray::s![..2, ..])).unwrap().iter().all(|v| v.is_finite()));
    }
}

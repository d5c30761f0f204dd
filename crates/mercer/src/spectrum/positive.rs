use super::covariance::{self, covariance, principal_pairs};
use super::projection::{projected, require};
use super::{Method, Problem, Sampling, Solution, check_columns};
use crate::data::Rows;
use crate::kernel::{Base, Kernel};
use crate::model::Bundle;
use crate::operator::{Extension, Features, Points, Precision, Real, in_precision, vectorised};
use crate::rng::Rng;
use crate::simd::Num;
use crate::{Error, Result};
use ndarray::{Array1, Array2};

/// Positive random features: the eigenpairs of `exp(x·x'/s)` within the span of random exponentials.
///
/// The kernel must be `expdot(scale)`, or a multiple of it.
#[derive(Clone, Copy, Debug)]
pub struct Positive {
    /// How many features.
    pub features: usize,
    /// How their directions are drawn.
    pub sampling: Sampling,
}

impl Method for Positive {
    fn name(&self) -> String {
        "positive".into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let kernel = problem.kernel("positive random features")?;
        let (x, (n, d)) = (kernel.x(), kernel.x().dim());
        let (count, sampling) = (self.features, self.sampling);
        let mut features = PositiveFeatures::new(kernel.formula(), d, count, sampling, problem.context.seed)?;
        require(problem, count, covariance::memory(count, problem.context.precision.bytes()))?;
        features.precision = problem.context.precision;
        problem.context.progress.step("positive", 0, 2, "features");
        let sigma = in_precision!(problem.context.precision, T => {
            covariance(n, count, |rows| Ok(features.exponentials::<T>(x.slice(rows))))?
        });
        problem.context.progress.step("positive", 1, 2, "eigendecomposition");
        let (eigenvalues, coefficients) = principal_pairs(&problem.context, sigma.view(), problem.k)?;
        problem.context.progress.step("positive", 2, 2, "done");
        Ok(Solution::new(eigenvalues, Extension { features: Box::new(features), coefficients }))
    }
}

/// `φ_i(x) = exp(ω_i·x/√s − ‖x‖²/2s)/√m` with `ω_i ~ N(0, I)`: positive, and `E[φ(x)·φ(x')] = exp(x·x'/s)` (the features
/// of the Performer), so that attention with positive weights takes time linear in the length of the sequence.
///
/// ```
/// use mercer::{kernel::Kernel, spectrum::{PositiveFeatures, Sampling}};
/// let map = PositiveFeatures::new(&Kernel::parse("expdot(2)")?, 2, 20_000, Sampling::Orthogonal, 0)?;
/// let x = ndarray::array![[0.3, 0.4], [0.5, -1.0]];
/// let phi = map.transform::<f64>(x.view())?;
/// assert!((phi.row(0).dot(&phi.row(1)) - (-0.125f64).exp()).abs() < 0.03);
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct PositiveFeatures {
    /// `√(c/m)` for the kernel `c·exp(x·x'/s)`.
    amplitude: f64,
    /// `ω/√s` `[m, d]`
    directions: Array2<f64>,
    /// `1/2s`
    damping: f64,
    precision: Precision,
}

impl PositiveFeatures {
    pub(super) const KIND: &'static str = "positive";

    /// Features of `expdot(s)`, or of a multiple of it, on `R^d`, evaluated in f64 by [`Features::eval`].
    pub fn new(kernel: &Kernel, d: usize, features: usize, sampling: Sampling, seed: u64) -> Result<Self> {
        let (c, s) = multiple_of_expdot(kernel).ok_or_else(|| {
            Error::input(format!(
                "positive random features are those of expdot(scale), not of {kernel}; use the Nyström method"
            ))
        })?;
        if features == 0 || d == 0 {
            return Err(Error::input(format!(
                "there must be at least one random feature of one column, got {features} of {d}"
            )));
        }
        let mut rng = Rng::new(seed).fork(0x706f_7369);
        Ok(PositiveFeatures {
            amplitude: (c / features as f64).sqrt(),
            directions: sampling.normals(features, d, 0, &mut rng) / s.sqrt(),
            damping: 0.5 / s,
            precision: Precision::F64,
        })
    }

    /// `φ(x)` `[n, m]` at points `[n, d]`, computed in `T`.
    pub fn transform<'x, T: Real>(&self, x: impl Into<Rows<'x>>) -> Result<Array2<T>> {
        let x = x.into();
        check_columns(x, self.directions.ncols())?;
        Ok(self.exponentials(x))
    }

    fn exponentials<T: Real>(&self, x: Rows<'_>) -> Array2<T> {
        let origin = Array1::zeros(x.d());
        let (damping, amplitude) = (T::of(self.damping), T::of(self.amplitude));
        projected(x, origin.view(), self.directions.view(), self.dim(), |strip, norms| {
            exponentials(strip, norms, damping, amplitude);
        })
    }

    pub(super) fn load(bundle: &Bundle) -> Result<Self> {
        Ok(PositiveFeatures {
            amplitude: bundle.value("features.amplitude")?,
            directions: bundle.matrix("features.directions")?,
            damping: bundle.value("features.damping")?,
            precision: bundle.value("features.precision")?,
        })
    }
}

impl Features for PositiveFeatures {
    fn dim(&self) -> usize {
        self.directions.nrows()
    }

    fn inputs(&self) -> Option<usize> {
        Some(self.directions.ncols())
    }

    fn eval(&self, points: Points<'_>) -> Result<Array2<f64>> {
        let x = points.coordinates()?;
        Ok(in_precision!(self.precision, T => self.exponentials::<T>(x).mapv_into_any(T::wide)))
    }

    fn multiply_adds(&self) -> usize {
        self.directions.len()
    }

    fn save<'a>(&'a self, bundle: &mut Bundle<'a>) -> &'static str {
        bundle.set("features.amplitude", self.amplitude);
        bundle.set("features.damping", self.damping);
        bundle.set("features.precision", self.precision);
        bundle.put("features.directions", self.directions.view());
        Self::KIND
    }
}

/// c and s of `c·exp(x·x'/s)`.
fn multiple_of_expdot(kernel: &Kernel) -> Option<(f64, f64)> {
    match kernel {
        Kernel::Base(Base::ExpDot(formula)) => Some((1.0, formula.scale)),
        Kernel::Scale(c, inner) => multiple_of_expdot(inner).map(|(c_inner, s)| (c * c_inner, s)),
        _ => None,
    }
}

vectorised! {
    /// `t ← a exp(t − γ‖x‖²)` over rows of projections t in `strip` `[h, m]`; `norms` are `‖x‖²` `[h]`.
    fn exponentials<FMA, 'a, T: Real>(strip: &'a mut [T], norms: &'a [T], damping: T, amplitude: T) {
        let (a, damping) = (amplitude.lane::<FMA>(), damping.lane::<FMA>());
        let m = strip.len() / norms.len();
        for (row, norm) in strip.chunks_exact_mut(m).zip(norms) {
            let offset = norm.lane::<FMA>() * damping;
            for t in row {
                *t = T::of_lane(a * (t.lane::<FMA>() - offset).exp());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::ArrayView2;

    #[test]
    fn features_follow_their_formula() {
        let map = PositiveFeatures::new(&Kernel::parse("3*expdot(2)").unwrap(), 2, 5, Sampling::Plain, 1).unwrap();
        let x = [0.7, -1.1];
        let phi = map.eval(ArrayView2::from(&[x]).into()).unwrap();
        for (value, direction) in phi.row(0).iter().zip(map.directions.rows()) {
            let angle = direction[0] * x[0] + direction[1] * x[1];
            let want = (angle - (x[0] * x[0] + x[1] * x[1]) / 4.0).exp() * (3.0f64 / 5.0).sqrt();
            assert!((value / want - 1.0).abs() < 1e-13);
        }
    }
}

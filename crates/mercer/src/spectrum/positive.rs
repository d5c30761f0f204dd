use super::covariance;
use super::random_features::{Form, RandomFeatures, require};
use super::{Method, Problem, Sampling, Solution};
use crate::kernel::{Base, Kernel};
use crate::operator::Precision;
use crate::rng::Rng;
use crate::{Error, Result, fail_if};

/// Positive random features: the eigenpairs of `exp(x·x'/s)` within the span of random exponentials.
///
/// The kernel must be `expdot(scale)`, or a multiple of it. Example: [`crate::spectrum::RandomFeatures::positive`].
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
        let (x, d) = (kernel.x(), kernel.x().d());
        let (count, sampling) = (self.features, self.sampling);
        let mut features = RandomFeatures::positive(kernel.formula(), d, count, sampling, problem.context.seed)?;
        require(problem, count, covariance::memory(count, problem.context.precision.bytes()))?;
        features.precision = problem.context.precision;
        features.solution(problem, "positive", x)
    }
}

impl RandomFeatures {
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
                "positive random features are those of expdot(scale), not of {kernel}; use the Nyström method"
            ))
        })?;
        fail_if!(
            features == 0 || d == 0,
            "there must be at least one random feature of one column, got {features} of {d}"
        );
        let mut rng = Rng::new(seed).fork(0x706f_7369);
        Ok(RandomFeatures {
            form: Form::Exponentials { damping: 0.5 / s },
            amplitude: (c / features as f64).sqrt(),
            directions: sampling.normals(features, d, 0, &mut rng) / s.sqrt(),
            precision: Precision::F64,
        })
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
}

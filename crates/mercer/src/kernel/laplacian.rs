use super::{Formula, Pair, Parameter, Statistic, parameter::LENGTHSCALE};
use crate::simd::Num;
use crate::special::normal_cdf;

/// `κ(x,x') = exp(−‖x−x'‖₁ / ℓ)`
#[derive(Clone, Debug, PartialEq)]
pub struct Laplacian {
    lengthscale: f64,
}

impl Formula for Laplacian {
    const NAME: &'static str = "laplacian";
    const HELP: &'static str = "exp(−‖x−x'‖₁ / lengthscale), sum of absolute differences";
    const PARAMETERS: &'static [Parameter] = &[LENGTHSCALE];
    const STATISTIC: Statistic = Statistic::L1;
    const SHIFT_INVARIANT: bool = true;

    numbers!(Laplacian { lengthscale });

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        (pair.s * R::of(-1.0 / self.lengthscale)).exp()
    }

    /// Each coordinate of ω is Cauchy with scale `1/ℓ`: its quantile at `Φ(z)`.
    fn frequency(&self, normals: &mut [f64]) {
        for z in normals {
            *z = (std::f64::consts::PI * (normal_cdf(*z) - 0.5)).tan() / self.lengthscale;
        }
    }
}

use super::{Formula, Pair, Parameter, parameter::LENGTHSCALE};
use crate::simd::Num;

/// `κ(x,x') = exp(−‖x−x'‖² / 2ℓ²)`
#[derive(Clone, Debug, PartialEq)]
pub struct Rbf {
    lengthscale: f64,
}

impl Formula for Rbf {
    const NAME: &'static str = "rbf";
    const HELP: &'static str = "exp(−‖x−x'‖² / (2·lengthscale²)), the Gaussian kernel";
    const PARAMETERS: &'static [Parameter] = &[LENGTHSCALE];
    const SHIFT_INVARIANT: bool = true;

    numbers!(Rbf { lengthscale });

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        (pair.squared_distance() * R::of(-0.5 / (self.lengthscale * self.lengthscale))).exp()
    }

    /// `ω ~ N(0, I/ℓ²)`
    fn frequency(&self, normals: &mut [f64]) {
        normals.iter_mut().for_each(|z| *z /= self.lengthscale);
    }
}

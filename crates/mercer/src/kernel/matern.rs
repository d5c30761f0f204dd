//! The Matérn family at ν = 1/2, 3/2, 5/2, as functions of `a = √(2ν) ‖x−x'‖ / ℓ`.

use super::{Formula, Pair, Parameter, parameter::LENGTHSCALE};
use crate::simd::Num;

macro_rules! matern {
    ($type:ident, $name:literal, $help:literal, $two_nu:literal, |$a:ident: $r:ident| $polynomial:expr) => {
        #[doc = $help]
        #[derive(Clone, Debug, PartialEq)]
        pub struct $type {
            lengthscale: f64,
        }

        impl Formula for $type {
            const NAME: &'static str = $name;
            const HELP: &'static str = $help;
            const PARAMETERS: &'static [Parameter] = &[LENGTHSCALE];
            const SHIFT_INVARIANT: bool = true;
            const EXTRA_NORMALS: usize = $two_nu;

            numbers!($type { lengthscale });

            #[inline(always)]
            fn eval<$r: Num>(&self, pair: Pair<$r>) -> $r {
                let $a = pair.squared_distance().sqrt() * $r::of(f64::from($two_nu).sqrt() / self.lengthscale);
                $polynomial * (-$a).exp()
            }

            fn frequency(&self, normals: &mut [f64]) {
                student_t(normals, $two_nu, self.lengthscale);
            }
        }
    };
}

matern!(Matern12, "matern12", "exp(−a), a = ‖x−x'‖/lengthscale: Matérn, ν = 1/2, rough", 1, |a: R| R::of(
    1.0
));
matern!(
    Matern32,
    "matern32",
    "(1 + a)·exp(−a), a = √3·‖x−x'‖/lengthscale: Matérn, ν = 3/2, once differentiable",
    3,
    |a: R| (R::of(1.0) + a)
);
matern!(
    Matern52,
    "matern52",
    "(1 + a + a²/3)·exp(−a), a = √5·‖x−x'‖/lengthscale: Matérn, ν = 5/2, twice differentiable",
    5,
    |a: R| (R::of(1.0) + a + a * a * R::of(1.0 / 3.0))
);

/// The spectral measure of Matérn ν is Student's t with `2ν` degrees of freedom:
/// `ω = z √(2ν/χ²_{2ν}) / ℓ`, with χ² the sum of squares of the last `2ν` normals.
fn student_t(normals: &mut [f64], two_nu: usize, lengthscale: f64) {
    let (z, extra) = normals.split_at_mut(normals.len() - two_nu);
    let chi2: f64 = extra.iter().map(|e| e * e).sum();
    let factor = (two_nu as f64 / chi2).sqrt() / lengthscale;
    z.iter_mut().for_each(|z| *z *= factor);
}

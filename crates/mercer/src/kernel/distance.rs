//! Kernels that are functions of a distance.

use super::{Formula, Pair, Parameter, Result, Statistic, Value, parameter::LENGTHSCALE};
use crate::simd::Num;
use crate::special::normal_cdf;
use std::f64::consts::PI;

formula! {
    /// `κ(x,x') = exp(−‖x−x'‖² / 2ℓ²)`
    Rbf("rbf", "exp(−‖x−x'‖² / (2·lengthscale²)), the Gaussian kernel") columns { lengthscale: LENGTHSCALE }

    const STATISTIC: Statistic = Statistic::SquaredDistance;
    const SHIFT_INVARIANT: bool = true;

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        (pair.s * R::of(-0.5 / (self.lengthscale * self.lengthscale))).exp()
    }

    /// `ω ~ N(0, I/ℓ²)`
    fn frequency(&self, normals: &mut [f64]) {
        normals.iter_mut().for_each(|z| *z /= self.lengthscale);
    }
}

formula! {
    /// `κ(x,x') = exp(−‖x−x'‖₁ / ℓ)`
    Laplacian("laplacian", "exp(−‖x−x'‖₁ / lengthscale), sum of absolute differences") columns { lengthscale: LENGTHSCALE }

    const STATISTIC: Statistic = Statistic::L1;
    const SHIFT_INVARIANT: bool = true;

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        (pair.s * R::of(-1.0 / self.lengthscale)).exp()
    }

    /// Each coordinate of ω is Cauchy with scale `1/ℓ`: its quantile at `Φ(z)`.
    fn frequency(&self, normals: &mut [f64]) {
        normals.iter_mut().for_each(|z| *z = (PI * (normal_cdf(*z) - 0.5)).tan() / self.lengthscale);
    }
}

/// The Matérn kernel at half of `$two_nu`: a polynomial in `a = √(2ν) ‖x−x'‖ / ℓ`, times `exp(−a)`.
macro_rules! matern {
    ($type:ident, $two_nu:literal, $name:literal, $help:literal, |$a:ident: $r:ident| $polynomial:expr) => {
        formula! {
            #[doc = $help]
            $type($name, $help) columns { lengthscale: LENGTHSCALE }

            const STATISTIC: Statistic = Statistic::SquaredDistance;
            const SHIFT_INVARIANT: bool = true;
            const EXTRA_NORMALS: usize = $two_nu;

            #[inline(always)]
            fn eval<$r: Num>(&self, pair: Pair<$r>) -> $r {
                let (two_nu, square) = (f64::from($two_nu), self.lengthscale * self.lengthscale);
                // Where ℓ² overflows, an infinite ‖x−x'‖² tells nothing, and ∞·0 is no number.
                let distance = match square.is_finite() {
                    true => pair.s.sqrt() * $r::of(two_nu.sqrt() / self.lengthscale),
                    false => (pair.s * $r::of(two_nu / square)).sqrt(),
                };
                // From 1000 on, exp(−a) is 0; the polynomial stays finite.
                #[allow(unused_variables, reason = "the polynomial of ν = 1/2 is constant")]
                let $a = distance.min($r::of(1000.0));
                $polynomial * (-distance).exp()
            }

            /// The spectral measure is Student's t with `2ν` degrees of freedom: `ω = z √(2ν/χ²_{2ν}) / ℓ`, with χ² the
            /// sum of squares of the last `2ν` normals.
            fn frequency(&self, normals: &mut [f64]) {
                let (z, extra) = normals.split_at_mut(normals.len() - $two_nu);
                let chi2: f64 = extra.iter().map(|e| e * e).sum();
                let factor = (f64::from($two_nu) / chi2).sqrt() / self.lengthscale;
                z.iter_mut().for_each(|z| *z *= factor);
            }
        }
    };
}

matern!(Matern12, 1, "matern12", "exp(−a), a = ‖x−x'‖/lengthscale: Matérn, ν = 1/2, rough", |a: R| R::of(
    1.0
));
matern!(
    Matern32,
    3,
    "matern32",
    "(1 + a)·exp(−a), a = √3·‖x−x'‖/lengthscale: Matérn, ν = 3/2, once differentiable",
    |a: R| (R::of(1.0) + a)
);
matern!(
    Matern52,
    5,
    "matern52",
    "(1 + a + a²/3)·exp(−a), a = √5·‖x−x'‖/lengthscale: Matérn, ν = 5/2, twice differentiable",
    |a: R| (R::of(1.0) + a + a * a * R::of(1.0 / 3.0))
);

//! Elementary functions on one number, branch-free. The formulas are the same in both widths; the constants are not.

// The coefficients are written as they were fitted; the compiler rounds them. One cast is needed in f64 only.
#![allow(clippy::excessive_precision, clippy::unnecessary_cast)]

use super::Num;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// One element of a vector loop: branch-free arithmetic on `T` = `f32` or `f64`. `FMA` says whether products and
/// sums may be fused, which only pays where the instruction exists ([`super::SimdJob::run`] is told).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct Lane<T, const FMA: bool>(pub T);

// The constants below. Coefficients of polynomials are least-squares fits, weighted for relative error, at Chebyshev-spaced
// points; the tests state and check the accuracy.
//
// MANTISSA, BIAS: bits of the mantissa, and what is added to an exponent.
// ROUND: 1.5·2^MANTISSA; adding it leaves a number's nearest integer in the low bits of the mantissa.
// LN2: ln 2 in two pieces; products of the first with an exponent are exact.
// HALF_PI: π/2 in three pieces; products of the first two with small integers are exact.
// EXP_RANGE: where e^x is a normal number. SQRT_HALF: the bits of √½. ERF_END: beyond it, erf is 1 to the last bit.

/// The constants of the functions in f32.
mod single {
    pub const MANTISSA: u32 = 23;
    pub const BIAS: f32 = 127.0;
    pub const ROUND: f32 = 12_582_912.0;
    pub const LN2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
    /// Products with |n| < 2¹³ are exact: angles up to 10⁴ are accurate.
    pub const HALF_PI: [f32; 3] = [1.570_312_5, 4.837_513e-4, 7.549_789_4e-8];
    pub const EXP_RANGE: [f32; 2] = [-86.9, 89.0];
    pub const SQRT_HALF: u32 = 0x3F35_04F3;
    pub const ERF_END: f32 = 4.0;
    pub const EXP: [f32; 5] = [0.500_000_005, 0.166_665_36, 0.041_666_34, 8.367_434e-3, 1.394_216_2e-3];
    pub const ASIN: [f32; 5] = [0.166_667_53, 0.074_952_98, 0.045_469_188, 0.024_188_65, 0.042_147_365];
    pub const LN: [f32; 3] = [0.333_333_9, 0.199_884_4, 0.149_447_95];
    pub const SIN: [f32; 3] = [-0.166_666_54, 8.332_118_6e-3, -1.950_946_5e-4];
    pub const COS: [f32; 3] = [0.041_666_645, -1.388_727_9e-3, 2.442_855_3e-5];
    pub const ERF: [f32; 10] = [
        std::f32::consts::FRAC_2_SQRT_PI,
        0.636_619_85,
        0.102_771_06,
        -0.019_116_42,
        -2.566_333_5e-4,
        1.804_774_2e-3,
        -7.453_584_5e-4,
        1.697_566_1e-4,
        -2.193_510_6e-5,
        1.253_332_5e-6,
    ];
}

/// The constants of the functions in f64.
mod double {
    pub const MANTISSA: u32 = 52;
    pub const BIAS: f64 = 1023.0;
    pub const ROUND: f64 = 6_755_399_441_055_744.0;
    pub const LN2: [f64; 2] = [0.693_147_180_559_662_956_511_601_805_686_95, 2.823_529_056_303_157_710_3e-13];
    /// Products with |n| < 2²⁰ are exact: angles up to 10⁶ are accurate.
    pub const HALF_PI: [f64; 3] = [
        1.570_796_326_734_125_614_166_259_765_625,
        6.077_100_506_303_965_976_595_549_136_6e-11,
        2.022_266_248_795_950_631_541_1e-21,
    ];
    pub const EXP_RANGE: [f64; 2] = [-708.0, 710.0];
    pub const SQRT_HALF: u64 = 0x3FE6_A09E_667F_3BCD;
    pub const ERF_END: f64 = 6.0;
    pub const EXP: [f64; 10] = [
        0.500_000_000_000_000_62,
        0.166_666_666_666_666_78,
        0.041_666_666_666_565_381,
        8.333_333_333_320_444_4e-3,
        1.388_888_893_517_516_9e-3,
        1.984_126_988_935_231e-4,
        2.480_150_097_308_754e-5,
        2.755_724_075_393_803_8e-6,
        2.762_774_761_932_328_1e-7,
        2.511_030_788_103_902_2e-8,
    ];
    pub const ASIN: [f64; 12] = [
        0.166_666_666_666_654_07,
        0.075_000_000_003_349_008,
        0.044_642_856_831_191_543,
        0.030_381_958_992_268_915,
        0.022_371_761_908_616_496,
        0.017_359_642_941_642_982,
        0.013_885_868_265_586_491,
        0.012_164_970_640_893_123,
        6.546_516_617_912_140_7e-3,
        0.019_477_305_521_095_439,
        -0.016_144_303_807_402_176,
        0.031_857_655_432_785_677,
    ];
    pub const LN: [f64; 7] = [
        0.333_333_333_333_337_07,
        0.199_999_999_996_838_9,
        0.142_857_143_765_713_09,
        0.111_110_987_136_474_4,
        0.090_918_131_233_534_824,
        0.076_562_022_528_232_039,
        0.074_065_180_115_696_933,
    ];
    pub const SIN: [f64; 6] = [
        -0.166_666_666_666_666_26,
        8.333_333_333_321_057_1e-3,
        -1.984_126_982_872_405e-4,
        2.755_731_331_360_344_6e-6,
        -2.505_069_831_550_542_3e-8,
        1.589_329_196_067_234_7e-10,
    ];
    pub const COS: [f64; 6] = [
        0.041_666_666_666_666_587,
        -1.388_888_888_887_202_5e-3,
        2.480_158_728_818_273_5e-5,
        -2.755_731_397_781_653_9e-7,
        2.087_567_229_826_884e-9,
        -1.135_699_949_451_120_5e-11,
    ];
    pub const ERF: [f64; 21] = [
        std::f64::consts::FRAC_2_SQRT_PI,
        0.636_619_772_367_714_26,
        0.102_772_603_294_459_49,
        -0.019_128_446_843_122_176,
        -2.091_965_757_072_311_4e-4,
        1.696_219_672_410_575_7e-3,
        -5.901_878_726_696_461e-4,
        2.608_424_330_502_754_1e-5,
        6.399_480_326_675_668_8e-5,
        -2.881_782_205_199_667e-5,
        2.133_861_821_009_813_2e-6,
        4.236_455_381_078_630_6e-6,
        -2.963_333_930_941_162_3e-6,
        1.187_195_382_895_63e-6,
        -3.383_885_176_754_582_8e-7,
        7.201_347_550_614_530_1e-8,
        -1.146_278_478_081_651_1e-8,
        1.330_768_875_556_872_8e-9,
        -1.066_133_405_281_883_2e-10,
        5.270_440_580_234_048_8e-12,
        -1.210_856_558_538_147_7e-13,
    ];
}

macro_rules! operators {
    ($($trait:ident $method:ident($($other:ident)?);)*) => {$(
        impl<T: $trait<Output = T>, const FMA: bool> $trait for Lane<T, FMA> {
            type Output = Self;
            #[inline(always)]
            fn $method(self $(, $other: Self)?) -> Self {
                Lane(self.0.$method($($other.0)?))
            }
        }
    )*};
}
operators! { Add add(other); Sub sub(other); Mul mul(other); Div div(other); Neg neg(); }

/// `Lane<$t, _>` with the constants of the module `$fit`; `$extra` are methods of [`Num`] for this width alone.
macro_rules! lane {
    ($t:ty, $bits:ty, $int:ty, $fit:ident, { $($extra:tt)* }) => {
        impl<const FMA: bool> Lane<$t, FMA> {
            const SIGN: $bits = 1 << (<$bits>::BITS - 1);

            /// `sign(sign) |self|`.
            #[inline(always)]
            fn with_sign_of(self, sign: Self) -> Self {
                Lane(<$t>::from_bits((self.0.to_bits() & !Self::SIGN) | (sign.0.to_bits() & Self::SIGN)))
            }

            /// `c₀ + c₁ x + c₂ x² + …`, by Horner's rule.
            #[inline(always)]
            fn polynomial<const N: usize>(self, coefficients: [$t; N]) -> Self {
                let mut sum = Lane(coefficients[N - 1]);
                for i in (0..N - 1).rev() {
                    sum = sum.mul_add(self, Lane(coefficients[i]));
                }
                sum
            }

            /// `(n, e^r − 1)` with `self = n ln 2 + r`, `|r| ≤ ln 2 / 2`; `n` is returned as the sum with `round`.
            #[inline(always)]
            fn exp_reduced(self, round: Self) -> (Self, Self) {
                let n = self.mul_add(Self::of(std::f64::consts::LOG2_E), round);
                let k = n - round;
                let r = k.mul_add(Lane(-$fit::LN2[1]), k.mul_add(Lane(-$fit::LN2[0]), self));
                (n, (r.polynomial($fit::EXP) * r).mul_add(r, r))
            }

            /// `e^self − 1` for `self ≥ 0` well below overflow, without cancellation near zero.
            #[inline(always)]
            fn exp_m1(self) -> Self {
                let (n, q) = self.exp_reduced(Lane($fit::ROUND + $fit::BIAS));
                let scale: Self = Lane(<$t>::from_bits(n.0.to_bits() << $fit::MANTISSA));
                scale.mul_add(q, scale - Lane(1.0))
            }

            /// `asin s` for `s = self` up to ½, and for `s = √((1 − self)/2)` above.
            #[inline(always)]
            fn folded_asin(self) -> Self {
                let half = Lane(0.5);
                let folded = (Lane(1.0) - self) * half;
                let z = Self::select_gt(self, half, folded, self * self);
                let s = Self::select_gt(self, half, folded.sqrt(), self);
                (z.polynomial($fit::ASIN) * z).mul_add(s, s)
            }
        }

        impl<const FMA: bool> Num for Lane<$t, FMA> {
            $($extra)*

            #[inline(always)]
            fn exp(self) -> Self {
                // e^x = 2^n e^r. The scale is 2·2^{n−1}, so that n just below overflow has a finite factor.
                let (low, high) = (Lane($fit::EXP_RANGE[0]), Lane($fit::EXP_RANGE[1]));
                let (n, q) = self.max(low).min(high).exp_reduced(Lane($fit::ROUND + ($fit::BIAS - 1.0)));
                let half = <$t>::from_bits(n.0.to_bits() << $fit::MANTISSA);
                Self::select_gt(low, self, Lane(0.0), Lane((q.0 + 1.0) * half * 2.0))
            }
            #[inline(always)]
            fn ln(self) -> Self {
                // x = 2^e m with m in [√½, √2); ln m = 2 atanh s, s = (m − 1)/(m + 1).
                let shifted = self.0.to_bits().wrapping_sub($fit::SQRT_HALF);
                let e = Lane((shifted as $int >> $fit::MANTISSA) as i32 as $t);
                let m: Self = Lane(<$t>::from_bits((shifted & ((1 << $fit::MANTISSA) - 1)) + $fit::SQRT_HALF));
                let f = m - Lane(1.0);
                let s = f / (m + Lane(1.0));
                let z = s * s;
                // 2s = f − s f, which keeps the leading term exact; the rest is 2 s z P(z).
                let p = z.polynomial($fit::LN) * (z + z);
                let tail = e.mul_add(Lane($fit::LN2[1]), s * (p - f));
                let y = e.mul_add(Lane($fit::LN2[0]), f + tail);
                let y = Self::select_gt(self, Lane(<$t>::MAX), self, y);
                // Zero (and below the normal range) is −∞; negative numbers and NaN are NaN.
                let y = Self::select_gt(Lane(<$t>::MIN_POSITIVE), self, Lane(<$t>::NEG_INFINITY), y);
                Lane(if self.0 >= 0.0 { y.0 } else { <$t>::NAN })
            }
            /// Accurate for small angles, see `HALF_PI`; bounded by one beyond.
            #[inline(always)]
            fn sin_cos(self) -> (Self, Self) {
                // x = n π/2 + r, |r| ≤ π/4: (sin, cos) of r, swapped when n is odd, with the quadrant's signs.
                let n = self.mul_add(Self::of(std::f64::consts::FRAC_2_PI), Lane($fit::ROUND));
                let k = n - Lane($fit::ROUND);
                let r = k.mul_add(Lane(-$fit::HALF_PI[0]), self);
                let r = k.mul_add(Lane(-$fit::HALF_PI[2]), k.mul_add(Lane(-$fit::HALF_PI[1]), r));
                let r = r.max(Lane(-1.0)).min(Lane(1.0));
                let z = r * r;
                let s = (z.polynomial($fit::SIN) * z).mul_add(r, r);
                let c = (z.polynomial($fit::COS) * z).mul_add(z, z.mul_add(Lane(-0.5), Lane(1.0)));
                let q = n.0.to_bits();
                let (sin, cos) = if q & 1 == 1 { (c, s) } else { (s, c) };
                let flip = |y: Self, sign: $bits| {
                    Lane(<$t>::from_bits(y.0.to_bits() ^ (sign << (<$bits>::BITS - 2) & Self::SIGN)))
                };
                (flip(sin, q), flip(cos, q.wrapping_add(1)))
            }
            #[inline(always)]
            fn erf(self) -> Self {
                // erf|x| = 1 − e^{−|x| Q(|x|)}, Q(x) = −ln(erfc x)/x, fitted on [0, ERF_END].
                let x = self.abs().min(Lane($fit::ERF_END));
                let e = (x * x.polynomial($fit::ERF)).exp_m1();
                // 1 − e^{−t} = (e^t − 1)/e^t
                (e / (e + Lane(1.0))).with_sign_of(self)
            }
            #[inline(always)]
            fn of(x: f64) -> Self {
                Lane(x as $t)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                Lane(self.0.sqrt())
            }
            #[inline(always)]
            fn abs(self) -> Self {
                Lane(self.0.abs())
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if other.0 > self.0 { other } else { self }
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                if other.0 < self.0 { other } else { self }
            }
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                if FMA { Lane(self.0.mul_add(a.0, b.0)) } else { Lane(self.0 * a.0 + b.0) }
            }
            #[inline(always)]
            fn select_gt(a: Self, b: Self, then: Self, otherwise: Self) -> Self {
                if a.0 > b.0 { then } else { otherwise }
            }
            #[inline(always)]
            fn tanh(self) -> Self {
                // tanh|x| = (e^{2|x|} − 1) / (e^{2|x|} + 1), and 1 to the last bit beyond the clamp.
                let double = self.abs().min(Lane(20.0));
                let e = (double + double).exp_m1();
                (e / (e + Lane(2.0))).with_sign_of(self)
            }
            #[inline(always)]
            fn asin(self) -> Self {
                // Below ½ directly; above, asin x = π/2 − 2 asin √((1 − x)/2).
                let (a, half) = (self.abs(), Lane(0.5));
                let series = a.folded_asin();
                let right = Self::of(std::f64::consts::FRAC_PI_2);
                Self::select_gt(a, half, right - (series + series), series).with_sign_of(self)
            }
            #[inline(always)]
            fn acos(self) -> Self {
                // π/2 − asin x in the middle; 2 asin √((1 − |x|)/2), reflected for x < 0, near the ends.
                let (a, half) = (self.abs(), Lane(0.5));
                let series = a.folded_asin();
                let double = series + series;
                let end = Self::select_gt(self, Lane(0.0), double, Self::of(std::f64::consts::PI) - double);
                let middle = Self::of(std::f64::consts::FRAC_PI_2) - series.with_sign_of(self);
                Self::select_gt(a, half, end, middle)
            }
        }
    };
}

lane!(f32, u32, i32, single, {
    /// For one square root: with `t = 1 − |cos θ|`, `θ = √t A(t)` and `sin θ − θ cos θ = t√t B(t)`, fitted on [0, 1]; the
    /// second has no cancellation at small angles. Beyond the right angle, both of `π − θ`.
    #[inline(always)]
    fn angle(self) -> (Self, Self) {
        const A: [f32; 8] = [
            1.414_213_54,
            0.117_853_631,
            0.026_466_915_2,
            8.262_816_08e-3,
            1.345_567_09e-3,
            3.535_921_02e-3,
            -2.135_531_15e-3,
            1.253_442_89e-3,
        ];
        const B: [f32; 7] = [
            0.942_809_055,
            0.047_139_183_7,
            7.595_220_54e-3,
            1.647_463_27e-3,
            7.633_510_95e-4,
            -1.951_066_7e-4,
            2.408_182_31e-4,
        ];
        let (zero, pi) = (Lane(0.0), Self::of(std::f64::consts::PI));
        let cos = self.abs();
        let t = (Lane(1.0) - cos).max(zero);
        let root = t.sqrt();
        let (theta, rest) = (root * t.polynomial(A), root * t * t.polynomial(B));
        (Self::select_gt(zero, self, pi - theta, theta), Self::select_gt(zero, self, pi.mul_add(cos, rest), rest))
    }
});
lane!(f64, u64, i64, double, {});
